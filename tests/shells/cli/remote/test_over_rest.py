"""Commands that read say the same on the store and over REST, byte for byte; and every command is compared."""

from __future__ import annotations

import json
import re

import pytest

from paceline.core.daemons import Daemon
from paceline.steps.upkeep.daemons import beat
from tests.shells.api.support.day import TOMORROW
from tests.shells.cli.support.both_ways import DEAD_DAY, Both, Said
from tests.shells.cli.support.change_scripts import SCRIPTS
from tests.shells.cli.support.commands import commands

STORE_ONLY = {
    *("up", "worker", "check", "backup", "migrate", "purge", "export", "import", "aws init", "verify"),
    *("simulator http", "simulator atlas"),
}
LOGIN = {"login", "logout"}
READS = [
    "user list",
    "user budget alice",
    "user budget nobody",
    "user webhook-secret alice",
    "token list alice",
    "token list --user nobody",
    "monitor list --user alice",
    "monitor list --user alice --limit 2",
    "monitor list --user alice --cursor x",
    "monitor list --user nobody",
    "monitor list --user alice --tag a",
    "monitor list --user alice --tag nothing",
    "monitor list --user alice --kind tls --search EXAMPLE --health paused",
    "monitor list --user alice --sort next_due --limit 1",
    "monitor list --user alice --sort health --limit 2",
    "monitor list --user alice --health bad --kind x --sort y",
    "monitor list --all-users --limit 1",
    "monitor list --all-users --user alice",
    "monitor show web --user alice",
    "monitor show own --user alice",
    "monitor show nothing --user alice",
    "monitor next cert --user alice",
    "monitor next own --user alice --count 2",
    "monitor next nothing --user alice",
    "monitor run own --user alice",
    "monitor run nothing --user alice",
    "monitor export --user alice",
    "monitor export --user nobody",
    "export --as-code --user alice",
    "export --as-code --user nobody",
    "monitor runs own --user alice",
    "monitor runs own --user alice --limit 1",
    "monitor runs web --user alice",
    "monitor uptime own --user alice",
    "monitor uptime own --user alice --csv -",
    "monitor uptime nothing --user alice",
    "why --monitor cert --user alice",
    "why --monitor nothing --user alice",
    "why alice/nothing#1@0",
    "why",
    f"why daily/home@{TOMORROW}",
    "why past/r0@2026-11-15",
    "why past/x@2026-11-15",
    "why --record past/r0",
    "why --record past/nothing",
    "why --record past",
    "why --job nothing",
    "why nothing/0",
    "why {run}",
    "why {job}/0",
    "why --job {job}",
    "why --monitor own --user alice",
    "channel list --user alice",
    "channel list --user nobody",
    "silence list --user alice",
    "alert list --user alice",
    "alert list --user alice --limit 1",
    "alert list --user alice --cursor x",
    "alert list --user nobody",
    "provider list",
    "provider list --limit 1",
    "provider show shop",
    "provider show nothing",
    "batch list",
    "batch list --limit 1",
    f"batch plan --dry-run --batch daily --date {TOMORROW}",
    "batch plan --dry-run --batch daily --date soon",
    "batch plan --batch nothing",
    "batch records daily",
    "batch records --batch daily --provider shop --active --limit 1",
    "batch records --batch daily --inactive",
    "batch records nothing",
    "batch days --batch daily",
    "batch days",
    f"batch show {TOMORROW} --batch daily",
    f"batch show {DEAD_DAY} --batch past",
    "batch show 2026-11-14 --batch past",
    f"batch runs {DEAD_DAY} --batch past",
    f"batch runs {DEAD_DAY} --batch past --state failed --provider bank --limit 2",
    f"batch export {DEAD_DAY} --batch past",
    f"batch export {DEAD_DAY} --batch past --format csv --state failed",
    f"batch export {DEAD_DAY} --batch past --output day.ndjson",
    "dead list",
    "dead list --provider bank --limit 1",
    "dead list --date 2026-11-15",
    "dead redrive",
    "dead redrive --queues",
    "dead redrive --queues --provider bank",
    "dead discard --provider nothing",
    f"run show past/r1@{DEAD_DAY}",
    "run show alice/nothing#1@1",
    "run show {run}",
    "run show {job}/0",
    "run show {job}/7",
    "run show nothing/0",
    "ahead --hours 48",
    "ahead --user alice",
    "ahead --user nobody",
    "job list",
    "job list --user alice --limit 1",
    "job list --user nobody",
    "job show {job}",
    "job show {job} --limit 0",
    "job show nothing",
    "job results {job}",
    "job results {job} --merged",
    "job results {job} --output results.ndjson",
    "job results nothing",
    "account list",
    "key list",
    "key list lab",
    "key list nothing",
]


@pytest.fixture(scope="module")
def names(staged: Both) -> dict[str, str]:
    alice = staged.world.client(staged.world.tokens["alice"])
    runs = alice("GET", "/v1/users/me/monitors/own/runs").json["items"]
    return {"run": runs[0]["run"], "job": alice("GET", "/v1/jobs").json["items"][0]["job"]}


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize("line", READS)
def test_a_command_that_reads_says_the_same_on_the_store_and_over_rest(
    both: Both, names: dict[str, str], line: str, form: list[str]
) -> None:
    words = [*line.format(**names).split(), *form]
    there, elsewhere = both.on_store(*words), both.over_rest(*words)
    if elsewhere != there:  # a monitor may have become late between the two, and does so once
        there, elsewhere = both.on_store(*words), both.over_rest(*words)
    assert elsewhere == there
    assert there.out or there.err


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_the_status_is_the_same_on_the_store_and_over_rest_but_for_ages(both: Both, form: list[str]) -> None:
    store, now_ms = both.world.system.store, both.world.system.clock.now_ms()
    beat(store, Daemon("up-1", "up", "another-machine", 7, both.url, now_ms, now_ms, 600_000))
    ages = re.compile(rb"\d+\.\d+")
    there, elsewhere = both.on_store("status", *form), both.over_rest("status", *form)
    assert ages.sub(b"", elsewhere.out) == ages.sub(b"", there.out)
    assert elsewhere._replace(out=b"") == there._replace(out=b"") == Said(0, b"", b"")


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_top_is_the_same_on_the_store_and_over_rest_but_for_times(both: Both, form: list[str]) -> None:
    times = re.compile(rb"\d\d:\d\d:\d\d(?:\.\d+)?|\d+\.\d+|\d+ s\b")
    words = ("top", "--once", *form)
    there, elsewhere = both.on_store(*words), both.over_rest(*words)
    if times.sub(b"", elsewhere.out) != times.sub(b"", there.out):  # a minute may have begun between the two
        there, elsewhere = both.on_store(*words), both.over_rest(*words)
    assert times.sub(b"", elsewhere.out) == times.sub(b"", there.out)
    assert elsewhere._replace(out=b"") == there._replace(out=b"") == Said(0, b"", b"")
    assert b"shop" in there.out


def test_cursor_from_the_store_works_over_rest_and_the_other_way_round(both: Both) -> None:
    for list_ in (
        "monitor list --user alice",
        "alert list --user alice",
        "provider list",
        "batch list",
        "dead list",
        "job list",
    ):
        first = json.loads(both.on_store(*list_.split(), "--limit", "1", "--json").out)
        rest = both.over_rest(*list_.split(), "--cursor", first["next_cursor"], "--json")
        whole = json.loads(both.over_rest(*list_.split(), "--json").out)
        joined = [*first["items"], *json.loads(rest.out)["items"]]
        for one in (*joined, *whole["items"]):
            one.pop("eta", None)  # it begins now, and now moves on
        assert joined == whole["items"]


def test_every_command_is_compared_or_said_to_need_the_store() -> None:
    lines = [*READS, *(line for script in SCRIPTS.values() for line in script), "status", "top"]
    told = {path.removeprefix("paceline ") for path, _ in commands()}
    compared = {name for name in told if any(line == name or line.startswith(f"{name} ") for line in lines)}
    assert compared | STORE_ONLY | LOGIN == told
    assert compared & STORE_ONLY == {"export"}, "as a stream it needs the store, as code it does not"


@pytest.mark.parametrize("name", sorted(STORE_ONLY))
def test_a_command_that_needs_the_store_says_so(both: Both, name: str) -> None:
    said = both.over_rest(*name.split(), *(["copy.db"] if name == "backup" else []))
    assert said.code == 2
    assert b"This command needs the store and cannot be done over REST" in said.err
    assert both.url.encode() in said.err
