"""The guides' commands, run as they stand, one guide after the other, on one store beside one daemon.

As in the tutorial's test; besides, a command without any text below it must end well. Addresses of the Internet are
those of a model server on this machine, and the day is tomorrow.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from paceline.simulators.http import ModelHttpServer
from tests.test_tutorial import LOOK_AGAIN_S, Shell, Step, as_pattern, blocks, free_ports, steps, terminal

GUIDES = Path(__file__).parents[1] / "docs" / "guides"
IN_ORDER = ("operate", "monitors", "batches")
"""The other guides show what their own tests run: a checker, RIPE's clients, the simulator, AWS."""
LOOKS = re.compile(r"paceline (run|monitor|batch) (show|list)\b")
ENDED = "it ended with "


@pytest.mark.skipif(shutil.which("curl") is None, reason="the guides ask for curl")
def test_the_guides_do_what_they_say_in_order_on_one_store(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PACELINE_")}
    env |= {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}",
        "PACELINE_PORT": str(port),
        "PACELINE_OUTBOUND_ALLOW": "127.0.0.0/8",
    }
    with ModelHttpServer() as model, ExitStack() as stack:
        mine = stack.enter_context(terminal(tmp_path, env))
        for name in IN_ORDER:
            text = on_this_machine((GUIDES / f"{name}.md").read_text(), port=port, model_url=model.base_url)
            for info, body in blocks(text):
                if info == "console background":
                    (step,) = steps(body)
                    stack.enter_context(terminal(tmp_path, env)).begin(step._replace(expected=["Paceline is up: …"]))
                elif info == "console":
                    for step in steps(body):
                        assert_works(mine, step)


def on_this_machine(text: str, *, port: int, model_url: str) -> str:
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).date().isoformat()
    for there, here in (
        ("https://api.example.org/v2", model_url),
        ("https://example.org/", f"{model_url}/ok"),
        ("example.org", "127.0.0.1"),
        ("127.0.0.1:8080", f"127.0.0.1:{port}"),
        ("2026-11-20", tomorrow),
    ):
        text = text.replace(there, here)
    return text


def assert_works(shell: Shell, step: Step) -> None:
    """What only looks is asked again for a while: a check may not have been made yet."""
    deadline_s = time.monotonic() + LOOK_AGAIN_S
    printed, code = told(shell, step)
    while code and LOOKS.match(step.command) and time.monotonic() < deadline_s:
        time.sleep(0.5)
        printed, code = told(shell, step)
    assert code == 0, f"$ {step.command}\n{printed}"
    assert '"code":' not in printed or not step.command.startswith("curl"), f"$ {step.command}\n{printed}"
    expected = [line for line in step.expected if line.strip()]
    assert not expected or as_pattern(expected).fullmatch(printed), f"$ {step.command}\n{printed}"


def told(shell: Shell, step: Step) -> tuple[str, int]:
    printed, _, code = shell.run(f'{step.command}\necho; echo "{ENDED}$?"').rpartition(ENDED)
    return printed.strip() + "\n", int(code)
