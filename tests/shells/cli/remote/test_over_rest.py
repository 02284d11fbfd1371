"""Every command says the same on the store and over REST, byte for byte: text, JSON, errors and exit codes."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from paceline.core.alerts.alert import Alert
from paceline.core.daemons import Daemon
from paceline.shells.cli.app import main
from paceline.steps.upkeep.daemons import beat
from tests.shells.api.conftest import HTTP, OUTGOING, Client, World, serving
from tests.shells.api.support.day import PROVIDER, TOMORROW, end_all
from tests.shells.api.support.job_stage import job
from tests.shells.cli.support.commands import commands

STORE_ONLY = {
    *("up", "worker", "check", "backup", "migrate", "purge", "export", "import", "aws init", "verify"),
    *("simulator http", "simulator atlas"),
}
LOGIN = {"login", "logout"}
DEAD_DAY = "2026-11-15"


class Said(NamedTuple):
    code: int
    out: bytes
    err: bytes


class Both:
    """One store with a server on it; commands are run on the store, and over REST with the token of an admin."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world, self.folder = world, folder
        self.store = world.system.settings.store
        self.url = f"http://127.0.0.1:{world.port}"
        self.patch: pytest.MonkeyPatch
        self.capture: pytest.CaptureFixture[bytes]

    def on_store(self, *words: str) -> Said:
        return self._run({"PACELINE_STORE": self.store}, words)

    def over_rest(self, *words: str) -> Said:
        return self._run({"PACELINE_URL": self.url, "PACELINE_TOKEN": self.world.tokens["root"]}, words)

    def _run(self, env: dict[str, str], words: tuple[str, ...]) -> Said:
        with self.patch.context() as patch:
            patch.setenv("XDG_CONFIG_HOME", str(self.folder / "config"))
            patch.chdir(self.folder)
            for name, value in env.items():
                patch.setenv(name, value)
            self.capture.readouterr()
            code = main([*words])
            return Said(code, *self.capture.readouterr())


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("both")
    with serving(folder, wrong_tokens_max=1_000) as world:
        root, alice = world.add("root", "admin"), world.add("alice")
        stage_monitors(world, alice)
        stage_batches(world, root)
        stage_jobs(root, alice)
        yield Both(world, folder)


def stage_monitors(world: World, alice: Client) -> None:
    monitors = "/v1/users/me/monitors"
    http = {"kind": "http", "url": "https://example.org/", "headers": {"X-Key": "a secret"}}
    alice("PUT", f"{monitors}/web", {"check": http, "every": "1h", "paused": True, "tags": ["a", "b"]})
    alice(
        "PUT",
        f"{monitors}/cert",
        {"check": {"kind": "tls", "host": "example.org"}, "cron": "0 6 * * *", "paused": True},
    )
    alice("PUT", f"{monitors}/own", {**OUTGOING, "every": "1d"})
    for name in ("ops", "spare"):
        alice("PUT", f"/v1/users/me/channels/{name}", {"kind": "webhook", "url": f"https://{name}.example.org/secret"})
    alice("POST", "/v1/users/me/silences", {"tag": "b", "for": "300d"})
    alerts = [Alert(f"al_{n}", "monitor.failing", world.system.clock.now_ms(), "alice", "web") for n in range(3)]
    world.system.store.add_alerts(alerts)
    while not alice("GET", f"{monitors}/own/runs").json["items"]:
        world.fire()


def stage_batches(world: World, root: Client) -> None:
    root("PUT", "/v1/providers/shop", {**PROVIDER, "headers": {"X-Key": "a secret"}})
    root("PUT", "/v1/providers/bank", {**PROVIDER, "rate": "5/1s"})
    for batch, provider, date in (("daily", "shop", TOMORROW), ("past", "bank", DEAD_DAY)):
        root("PUT", f"/v1/batches/{batch}", {"missed": "all"})
        records = [{"id": f"r{number}", "provider": provider, "body": {"n": 1.0}} for number in range(4)]
        root("PUT", f"/v1/batches/{batch}/records", {"items": records})
        assert root("POST", f"/v1/batches/{batch}/plan", {"date": date}).status == 200
    assert end_all(world, "failed", provider="bank", reason="status 400", payload="no") == 4


def stage_jobs(root: Client, alice: Client) -> None:
    root("PUT", "/v1/accounts/lab", {"concurrent": 7})
    root("POST", "/v1/accounts/lab/keys?check=false", {"key": "the-key-of-the-lab", "label": "l"})
    root("PUT", "/v1/accounts/empty", {})
    for _ in range(3):
        assert alice("POST", "/v1/jobs", job()).status == 202


@pytest.fixture
def both(staged: Both, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Both:
    staged.patch, staged.capture = monkeypatch, capfdbinary
    return staged


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


MONITORS_FILE = (
    '{"id": "{n}-a", "check": {"kind": "tcp", "host": "example.org", "port": 1}, "every": "1h", "paused": true}\n'
    '{"id": "{n}-a", "check": {"kind": "tcp", "host": "example.org", "port": 1}, "every": "1h", "paused": true}\n'
    '{"id": "{n}-b", "check": {"kind": "tcp", "host": "", "port": 0}, "every": "1ms"}\n'
    '{"check": {}}\n'
    "not json\n"
)
RECORDS_FILE = (
    '{"id": "{n}-1", "provider": "shop", "body": {"n": 1.0}}\n'
    '{"id": "{n}-2", "provider": "nothing"}\n'
    '{"id": "{n}-1", "provider": "shop", "body": {"n": 1.0}}\n'
    '{"id": "", "provider": "shop"}\n'
)
RECORDS_CSV = "id,provider,endpoint,body,active\n{n}-3,shop,/x,plain text,no\n{n}-4,shop,,,perhaps\n"
ALL_YAML = """
providers:
  {n}: {base_url: https://bank.example, rate: 5/1s, headers: {X-Key: "k-{n}"}}
batches:
  {n}: {start: 02:00, window: 6h, paused: true}
users:
  alice:
    channels:
      {n}: {kind: webhook, url: "https://hooks.example/{n}"}
    monitors:
      {n}: &one
        check: {kind: http, url: https://example.org/, auth: {kind: bearer, token: a-secret}}
        every: 1h
        paused: true
        alert: {channels: ["{n}"]}
      {n}-two:
        <<: *one
        alert: {channels: [nothing]}
"""
FILES = {
    "monitors.ndjson": MONITORS_FILE,
    "records.ndjson": RECORDS_FILE,
    "records.csv": RECORDS_CSV,
    "monitor.json": json.dumps({"check": {**HTTP["check"], "headers": {"X-Key": "k"}}, "every": "1h"}),
    "provider.json": '{"base_url": "https://bank.example", "headers": {"X-Key": "k"}}',
    "broken.json": '{"check":',
    "all.yaml": ALL_YAML,
    "less.yaml": "users: {alice: {channels: {ops: &c {kind: webhook, url: '***'}, spare: *c}}}\n",
    "broken.yaml": "users:\n  alice:\n    monitors:\n      {n}: {check: {kind: tcp, host: a, port: 0}, every: 1x}\n",
    "job.json": json.dumps(job(2)),
    "dear.json": json.dumps({"measurements": job(900)["measurements"]}),
}
SCRIPTS: dict[str, list[str]] = {
    "users": [
        "user add {n} --daily-credits 50",
        "user add {n}",
        "token list {n}",
        "user limit {n} --daily-credits 70",
        "user limit {n} --daily-credits -1",
        "user disable {n}",
        "user enable {n}",
        f"token new {{n}} --label {'x' * 101}",
        "token new {n} --scope everything",
        "token new {n} --scope worker:",
        "token new {n} --scope worker:nothing",
        "token new {n} --expires tomorrow",
        "token new {n} --expires 2020-01-01T00:00:00Z",
        "token new {n} --expires 2099-01-01T00:00:00",
        "token new {n} --scope read --expires 2099-01-01T00:00:00Z",
        "token new {n} --scope checker",
        "token new {n} --scope worker:shop --expires 2099-01-01T01:00:00+01:00",
        "token list {n}",
        "token new {n} --label phone",
        "token revoke nothing --user {n}",
        "token revoke {id} --user {n}",
        "user rm {n}",
        "user rm {n}",
        "user limit {n} 5",
        "token new {n}",
    ],
    "monitors": [
        "monitor set {n} --every 1h --user alice",
        "monitor set {n} --url https://example.org/ --every 1h --paused --tag a --user alice",
        "monitor set {n} --url https://example.org/ --every 1h --paused --tag a --user alice",
        "monitor set {n} --every 2h --timeout 5s --user alice",
        "monitor set {n} --every 1ms --timeout 0s --user alice",
        "monitor set {n} --tls example.org --user alice",
        "monitor set {n} --file monitor.json --user alice",
        "monitor set {n} --file monitor.json --user alice",
        "monitor set {n} --file broken.json --user alice",
        "monitor set {n} --cron 61 --replace --user alice",
        "monitor pause {n} --user alice",
        "monitor resume {n} --user alice",
        "monitor pause {n} --user nobody",
        "monitor rm {n} --user alice",
        "monitor rm {n} --user alice",
        "monitor pause {n} --user alice",
        "monitor import monitors.ndjson --user alice",
        "monitor import monitors.ndjson --user alice",
    ],
    "as code": [
        "apply -f all.yaml --dry-run",
        "apply -f all.yaml",
        "apply -f all.yaml --dry-run",
        "apply -f all.yaml",
        "monitor set {n} --every 2h --bearer another --user alice",
        "provider set {n} --rate 7/1s",
        "apply -f all.yaml --dry-run",
        "apply -f all.yaml",
        "apply -f broken.yaml",
        "apply -f nothing.yaml",
        "apply -f less.yaml --dry-run --prune",
        "apply -f less.yaml --prune",
        "apply -f less.yaml --prune --yes",
        "monitor rm {n} --user alice",
        "channel rm {n} --user alice",
        "batch rm {n}",
        "provider rm {n}",
    ],
    "channels": [
        "channel set {n} --user alice",
        "channel set {n} --url http://127.0.0.1:9/x --default --user alice",
        "channel set {n} --no-default --user alice",
        "channel set {n} --kind apprise --user alice",
        "channel set {n} --url mailto://a:b@127.0.0.1:9 --user alice",
        "channel set {n} --url syslog:// --user alice",
        "channel set {n} --kind pigeon --user alice",
        "channel test nothing --user alice",
        "channel rm {n} --user alice",
        "channel rm {n} --user alice",
        "monitor silence web --for 2h --reason moving --user alice",
        "monitor silence nothing --for 2h --user alice",
        "monitor silence web --for soon --user alice",
        "silence add a --for 1h --user alice",
        "silence add a --for 1s --user alice",
        "silence end nothing --user alice",
    ],
    "providers": [
        "provider set {n} --rate 5/1s",
        "provider set {n} --base-url https://bank.example --rate 5/1s --header X-Key:k --max-attempts 3",
        "provider set {n} --base-url https://bank.example --rate 5/1s",
        "provider set {n} --retry-base 2s --paused",
        "provider set {n} --rate often",
        "provider set {n} --file provider.json",
        "provider set {n} --file broken.json",
        "provider pause {n}",
        "provider resume {n}",
        "provider rm {n}",
        "provider rm {n}",
        "provider pause {n}",
        "provider rm shop",
    ],
    "batches": [
        "batch set {n} --window 2h --timezone Europe/Berlin",
        "batch set {n} --window 2h",
        "batch set {n} --start 25:00",
        "batch set {n} --replace",
        "batch pause {n}",
        "batch resume {n}",
        "batch pause {n}-x",
        "batch import records.ndjson --batch {n}",
        "batch import records.csv --batch {n}",
        f"batch plan {{n}} --date {TOMORROW}",
        f"batch plan {{n}} --date {TOMORROW}",
        f"batch show {TOMORROW} --batch {{n}}",
        f"batch rerun {TOMORROW} --batch {{n}} --state done",
        f"batch rerun {TOMORROW} --batch {{n}} --record {{n}}-1",
        f"batch rerun {TOMORROW} --batch {{n}} --record nothing",
        f"batch rerun {TOMORROW} --batch {{n}}",
        "batch rm {n}",
        "batch rm {n}",
    ],
    "dead letters": [
        "dead redrive past/{r}@2026-11-15",
        "dead redrive past/{r}@2026-11-15",
        "dead redrive past/x@2026-11-15",
    ],
    "discarded letters": ["dead discard past/{d}@2026-11-15", "dead discard past/{d}@2026-11-15"],
    "jobs": [
        "job submit job.json --user alice --dry-run",
        "job submit job.json --user alice --idempotency-key {n}",
        "job submit job.json --user alice --idempotency-key {n}",
        "job cancel {id}",
        "job cancel {id}",
        "job submit dear.json --user alice",
        "job submit dear.json --user alice --dry-run",
        "job submit broken.json --user alice",
        "job submit job.json --user nobody",
        "job cancel nothing",
    ],
    "accounts": [
        "account set {n} --concurrent 5",
        "account set {n} --concurrent 5",
        "account set {n} --daily-credits 9 --disabled",
        "account set {n} --concurrent -1",
        "account set {n} --replace",
        "key add {n} short --no-check",
        "key add {n} key-of-{n} --label l --no-check",
        "key add {n} key-of-{n} --no-check",
        "key add nothing key-of-{n} --no-check",
        "key list {n}",
        "key disable {n} {id}",
        "key enable {n} {id}",
        "key rm {n} {id}",
        "key rm {n} {id}",
    ],
}
VARYING = [
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
    (r"pl_\w+", "TOKEN"),
    (r"\b[0-9a-f]{12}\b", "TOKEN_ID"),
    (r"\bs[0-9a-f]{12}\b", "SILENCE_ID"),
    (r'("(?:generation|number)":)\d+', r"\1N"),
    (r"(generation +)\d+", r"\1N"),
    (r"(refused#)\d+", r"\1N"),
]


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


# -- which commands


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
