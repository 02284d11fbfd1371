"""A signal at any moment of the start and shortly after it ends a worker: none is lost, whichever thread takes it."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.shells.support.daemons import SECRET, free_port, start_process

MOMENTS, LATEST_S = 12, 3.0
"""Within that time a worker has started, has said so and makes its first turns."""
ENDS_S = 30.0
SWALLOWED = """
import os, signal, sys
class Swallows:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
class Hook:
    def find_spec(self, name, *_):
        if name == "paceline.shells.daemon.daemon":
            Swallows()
            print("swallowed", flush=True)
sys.meta_path.insert(0, Hook())
sys.argv[1:] = [sys.argv[1]]
from paceline.shells.cli import main
sys.exit(main())
"""


@contextmanager
def a_store(engine: str, folder: Path) -> Iterator[dict[str, str]]:
    """The settings that name it."""
    if engine == "sqlite":
        yield {"PACELINE_STORE": f"sqlite:///{folder / 'p.db'}"}
        return
    from tests.aws.support.ministack import environment, fresh_prefix, make_tables, shared_clients, shared_emulator

    prefix = fresh_prefix()
    make_tables(shared_clients(), prefix)
    yield environment(shared_emulator().url) | {"PACELINE_STORE": f"aws://?prefix={prefix}"}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["sqlite", pytest.param("aws", marks=pytest.mark.aws)])
def test_worker_ends_cleanly_at_a_signal_at_any_time(tmp_path: Path, engine: str) -> None:
    """A dozen moments, each somewhere in its own part of the first seconds; it drains whatever has begun to work."""
    part_s, chance = LATEST_S / MOMENTS, random.Random(MOMENTS)
    with a_store(engine, tmp_path) as settings:
        for moment in range(MOMENTS):
            after_s = part_s * (moment + chance.random())
            (tmp_path / "daemon.log").write_text("")
            process = start_process(tmp_path, "worker", PACELINE_LOG_LEVEL="info", **settings)
            time.sleep(after_s)
            process.send_signal(signal.SIGTERM)
            try:
                code = process.wait(ENDS_S)
            finally:
                process.kill()
            log = (tmp_path / "daemon.log").read_text()
            assert (code, log.count("Traceback")) == (0, 0), f"after {after_s:.2f} s: {log}"
            assert log.count('"working"') == log.count('"draining"') == log.count('"stopped"'), log


@pytest.mark.parametrize("command", ["worker", "up"])
def test_signal_ends_the_start_even_if_its_exception_was_swallowed(tmp_path: Path, command: str) -> None:
    settings = {"PACELINE_STORE": f"sqlite:///{tmp_path / 'p.db'}", "PACELINE_SECRET_KEY": SECRET}
    ended = subprocess.run(
        [sys.executable, "-c", SWALLOWED, command],
        env=settings | {"PACELINE_PORT": str(free_port())},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=ENDS_S,
        check=False,
    )
    assert ended.returncode == 0, ended
    assert ended.stdout == "swallowed\n", "the exception ended in the destructor, and nothing came up"
    assert ended.stderr == "", "a stop during the start is no error to tell of"
