"""Commands that change something say the same on the store and over REST, byte for byte."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from tests.shells.cli.support.both_ways import Both, Said
from tests.shells.cli.support.change_scripts import FILES, SCRIPTS, VARYING


def play(both: Both, run: Callable[..., Said], script: list[str], form: list[str], **names: str) -> list[Said]:
    """Runs the script with names of its own; returns what was said with these names and what must differ masked."""
    for file, text in FILES.items():
        (both.folder / file).write_text(text.replace("{n}", names["n"]))
    names["id"], said = "nothing", []
    for line in script:
        ended = run(*line.format(**names).split(), *form)
        ids = re.findall(
            r'"(?:id|job)":"(\w+)"|, id (\w+)\.|^(\w+) (?:submitted|\(…)', ended.out.decode() + ended.err.decode()
        )
        if line.startswith(("token new", "job submit", "key add")) and ids:
            names["id"] = next(filter(None, ids[0]))
        masked = [ended.out.decode(), ended.err.decode()]
        for name, value in sorted(names.items(), key=lambda pair: -len(pair[1])):
            masked = [text.replace(value, name.upper()) for text in masked]
        for pattern, word in VARYING:
            masked = [re.sub(pattern, word, text) for text in masked]
        said.append(Said(ended.code, masked[0].encode(), masked[1].encode()))
    return said


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize("title", SCRIPTS)
def test_commands_that_change_say_the_same_on_the_store_and_over_rest(both: Both, title: str, form: list[str]) -> None:
    mark = "j" if form else "t"
    first, second = (("r0", "r1"), ("r2", "r3"))[bool(form)]
    there = play(both, both.on_store, SCRIPTS[title], form, n=f"s{mark}Q", r=first, d=first)
    elsewhere = play(both, both.over_rest, SCRIPTS[title], form, n=f"r{mark}Q", r=second, d=second)
    for line, one, other in zip(SCRIPTS[title], there, elsewhere, strict=True):
        assert other == one, line
    assert {said.code for said in there} & {0, 3}


@pytest.mark.parametrize("way", ["on_store", "over_rest"])
def test_token_made_by_a_command_has_its_scope_and_its_end(both: Both, way: str) -> None:
    def new(*options: str) -> Said:
        said: Said = getattr(both, way)("token", "new", "alice", *options, "--json")
        return said

    made = json.loads(new("--scope", "read", "--expires", "2099-01-01T00:00:00Z").out)
    assert (made["scope"], made["expires"]) == ("read", "2099-01-01T00:00:00.000Z")
    reader, monitors = both.world.client(made["token"]), "/v1/users/me/monitors"
    assert reader("GET", monitors).status == 200
    assert reader("DELETE", f"{monitors}/nothing").status == 403
    soon = (datetime.now(UTC) + timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    brief = both.world.client(json.loads(new("--expires", soon).out)["token"])
    until_s = time.monotonic() + 20
    while (status := brief("GET", monitors).status) == 200 and time.monotonic() < until_s:
        time.sleep(0.1)
    assert status == 401
    for option, value in (("--scope", "everything"), ("--expires", "tomorrow"), ("--expires", "2020-01-01T00:00:00Z")):
        refused = new(option, value)
        problem = json.loads(refused.err)
        assert (refused.code, problem["code"]) == (2, "invalid_input")
        assert [error["pointer"] for error in problem["errors"]] == [option.replace("--", "/")]
