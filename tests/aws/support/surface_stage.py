"""One script that requests every route, and the comparison of its answers on two engines."""

from __future__ import annotations

import json
import re
import time
from typing import Any, NamedTuple

from paceline.shells.dashboard import files
from paceline.shells.ripe_api.routes import ROUTES as RIPE_ROUTES
from tests.shells.api.conftest import OUTGOING, Client, Reply, World, run_path
from tests.shells.api.support.day import PROVIDER, TOMORROW, end_all
from tests.shells.api.support.job_stage import AtlasWorld, job
from tests.shells.ripe_api.conftest import request_of

PAGES = ("/", "/docs", "/openapi.json", "/ui/sign-in", files.address("paceline.js"), files.address("paceline.css"))
VIEWS = ("/", "/ui/monitors", "/ui/providers", "/ui/batches", "/ui/dead", "/ui/jobs", "/ui/accounts", "/ui/users")
"""Pages of the dashboard that are asked for as an admin."""
ROUTES_APART = frozenset({"DELETE /v1/batches/{batch}"})
"""An engine deletes in passes of its own: 204 when that is all, 202 while it goes on. Contract tests compare it."""
RECORDS = [{"id": f"r{number}", "provider": "shop", "endpoint": "/x"} for number in range(4)]
ME = "/v1/users/me"
SECRET = re.compile(r"pl_[0-9a-f]+_[0-9a-f]+|\bs[0-9a-f]{6,}\b|whsec_\S+|\b[0-9a-f]{12,}\b|[0-9a-f-]{36}")
VOLATILE = frozenset(
    {"cursor", "next_cursor", "file_bytes", "latency_ms", "seconds_since_turn", "next_due_in", "lease", "secret"}
)
"""Fields whose value differs between two runs of the script."""
TIMES = 1_000_000_000
"""Numbers from here on are seconds or more since 1970."""
BY_THE_MINUTE = frozenset({"windows", "parts", "worst"})
"""Fields of the forecast: its minutes depend on the time of the request. Contract tests compare them."""
OF_AN_ENGINE = frozenset({"dead_messages", "store", "schema"})
"""Fields in which an engine speaks of itself."""


class Told(NamedTuple):
    """The request, and the answer without values that differ between two runs."""

    what: str
    status: int
    shape: Any


def shape(value: Any, name: str = "") -> Any:
    """Keys, types and words; times, ids and secrets are masked. Lists are compared by the kinds of things in them."""
    match value:
        case {"prb_id": _, **more}:
            return sorted(more)  # what a probe measured
        case dict():
            return {key: shape(inner, key) for key, inner in sorted(value.items()) if key not in OF_AN_ENGINE}
        case list() if name in BY_THE_MINUTE:
            return "list"
        case list():
            return sorted({json.dumps(shape(inner), sort_keys=True) for inner in value})
        case bool() | None:
            return value
        case int() | float():
            passing = name in VOLATILE or name.endswith("_ms") or isinstance(value, float) or value >= TIMES
            return "number" if passing else value
        case str():
            return "text" if name in VOLATILE else re.sub(r"\d+", "0", SECRET.sub("*", value))
        case _:
            raise AssertionError(value)


class Surface:
    """Asks and remembers."""

    def __init__(self, world: World) -> None:
        self.told: list[Told] = []
        self._jobs: set[str] = set()
        self.document = Client(world.port)("GET", "/openapi.json").json
        self._templates = [
            (method.upper(), path, re.compile(re.sub(r"\{[^}]+\}", "[^/]+", path)))
            for path, methods in self.document["paths"].items()
            for method in methods
        ]

    @property
    def routes(self) -> set[str]:
        """All there are."""
        ours = {f"{method} {path}" for method, path, _ in self._templates}
        return (
            ours
            | {f"{route.method} {route.name}" for route in RIPE_ROUTES}
            | {f"GET {page}" for page in (*PAGES, *VIEWS)}
        )

    @property
    def walked(self) -> set[str]:
        """Those that were asked and found."""
        return {told.what for told in self.told if told.status not in (404, 405, 500)}

    def ask(self, client: Client, method: str, path: str, body: Any = None, **more: Any) -> Reply:
        reply = client(method, path, body, **more)
        if method == "POST" and reply.status == 202 and "job" in reply.json:
            self._jobs.add(reply.json["job"])
        self.told.append(Told(self._name(method, path), reply.status, self._shape(reply)))
        return reply

    def _name(self, method: str, path: str) -> str:
        bare = path.partition("?")[0]
        names = [
            f"{method} {name}" for verb, name, pattern in self._templates if verb == method and pattern.fullmatch(bare)
        ]
        # The first that fits, as the service itself finds it: its fixed paths stand before its open ones.
        names += [
            f"{method} {route.name}"
            for route in RIPE_ROUTES
            if route.method == method and route.pattern.fullmatch(bare.rstrip("/"))
        ]
        return names[0] if names else f"{method} {bare}"

    def _shape(self, reply: Reply) -> Any:
        kind = reply.headers.get("content-type", "").partition(";")[0]
        for name in self._jobs:
            reply = reply._replace(body=reply.body.replace(name.encode(), b"JOB"))
        if kind == "application/x-ndjson":
            return [kind, shape([json.loads(line) for line in reply.body.splitlines()])]
        if kind.endswith("json"):
            return [kind, shape(reply.json)]
        if kind == "text/plain":  # metrics
            return [
                kind,
                sorted({line.split()[2] for line in reply.body.decode().splitlines() if line.startswith("# HELP")}),
            ]
        return [kind, bool(reply.body)]


def tell_api(stage: AtlasWorld) -> Surface:
    """Right and wrong requests to every route."""
    surface = Surface(stage.world)
    for part in (_users, _monitors, _told, _checker, _batches, _jobs, _ripe, _service):
        part(stage, surface)
    return surface


def _users(stage: AtlasWorld, at: Surface) -> None:
    root, alice = stage.root, stage.alice
    at.ask(root, "POST", "/v1/users", {"id": "bob", "daily_credits": 50})
    at.ask(root, "POST", "/v1/users", {"id": "bob"})
    at.ask(root, "POST", "/v1/users", {"id": "no such name!"})
    at.ask(alice, "POST", "/v1/users", {"id": "eve"})
    at.ask(stage.world.client("pl_wrong"), "GET", ME)
    at.ask(stage.world.client(), "GET", "/v1/users")
    at.ask(root, "GET", "/v1/users?limit=1")
    at.ask(root, "GET", "/v1/users?limit=0")
    at.ask(alice, "GET", ME)
    at.ask(alice, "GET", "/v1/users/bob")
    at.ask(root, "PATCH", "/v1/users/bob", {"disabled": True, "daily_credits": 60})
    at.ask(root, "PATCH", "/v1/users/bob", {"nonsense": 1})
    made = at.ask(alice, "POST", f"{ME}/tokens", {"label": "second"}).json
    at.ask(alice, "GET", f"{ME}/tokens")
    at.ask(alice, "DELETE", f"{ME}/tokens/{made['id']}")
    at.ask(stage.world.client(made["token"]), "GET", ME)
    at.ask(alice, "DELETE", f"{ME}/tokens/{made['id']}")
    at.ask(alice, "GET", f"{ME}/budget")
    at.ask(alice, "GET", f"{ME}/webhook-secret")
    at.ask(root, "DELETE", "/v1/users/bob")
    at.ask(root, "DELETE", "/v1/users/bob")


def _monitors(stage: AtlasWorld, at: Surface) -> None:
    alice, base = stage.alice, f"{ME}/monitors"
    http = {
        "check": {"kind": "http", "url": "https://example.org/"},
        "every": "1h",
        "initial_delay": "1h",
        "tags": ["a"],
    }
    put = at.ask(alice, "PUT", f"{base}/web", http)
    at.ask(alice, "PUT", f"{base}/web", http)
    at.ask(alice, "PUT", f"{base}/web", http | {"every": "1 parsec"})
    at.ask(alice, "PUT", f"{base}/web", raw=b"{")
    at.ask(alice, "PUT", f"{base}/web", http | {"every": "2h"}, headers={"If-Match": '"g9r9"'})
    at.ask(alice, "GET", f"{base}/web")
    at.ask(alice, "GET", f"{base}/web", headers={"If-None-Match": put.headers["etag"]})
    at.ask(alice, "GET", f"{base}/nothing")
    at.ask(
        alice,
        "PATCH",
        f"{base}/web",
        {"every": None, "initial_delay": None, "cron": "0 0 1 1 *", "timezone": "Europe/Berlin"},
    )
    at.ask(alice, "PATCH", f"{base}/web", {"cron": "x"})
    at.ask(alice, "POST", f"{base}/web/pause")
    at.ask(alice, "POST", f"{base}/web/resume")
    at.ask(alice, "PUT", base, {"items": [{"id": "b", **http}, {"id": "c", **http}, {"id": "d", "every": "1s"}]})
    at.ask(alice, "GET", f"{base}?limit=2")
    at.ask(alice, "GET", f"{base}/web/runs")
    at.ask(alice, "DELETE", f"{base}/c")
    at.ask(alice, "DELETE", f"{base}/c")
    at.ask(stage.root, "GET", "/v1/users/alice/monitors/b")
    at.ask(stage.root, "GET", "/v1/users/nobody/monitors")
    at.ask(stage.root, "GET", "/v1/monitors?tag=a&sort=health")
    at.ask(stage.root, "GET", "/v1/schedulers")


def _told(stage: AtlasWorld, at: Surface) -> None:
    alice, monitor = stage.alice, f"{ME}/monitors/b"
    at.ask(alice, "GET", f"{monitor}/next?count=2")
    at.ask(alice, "GET", f"{monitor}/uptime")
    at.ask(alice, "PUT", f"{ME}/channels/ops", {"kind": "webhook", "url": "http://10.255.255.1/", "default": True})
    at.ask(alice, "PUT", f"{ME}/channels/ops", {"kind": "pigeon", "url": "x"})
    at.ask(alice, "GET", f"{ME}/channels/ops")
    at.ask(alice, "GET", f"{ME}/channels")
    at.ask(alice, "POST", f"{ME}/channels/ops/test")
    at.ask(alice, "POST", f"{monitor}/silence", {"for": "1h", "reason": "moves"})
    made = at.ask(alice, "POST", f"{ME}/silences", {"tag": "a", "for": "1h"}).json
    at.ask(alice, "GET", f"{ME}/silences")
    at.ask(alice, "DELETE", f"{ME}/silences/{made['id']}")
    at.ask(alice, "GET", f"{ME}/alerts")
    at.ask(alice, "DELETE", f"{ME}/channels/ops")
    at.ask(alice, "PUT", f"{ME}/monitors/now", OUTGOING | {"paused": True})
    at.ask(alice, "GET", f"{ME}/monitors/now/why")
    at.ask(alice, "POST", f"{ME}/monitors/now/run")
    at.ask(alice, "DELETE", f"{ME}/monitors/now")


def _checker(stage: AtlasWorld, at: Surface) -> None:
    alice, base = stage.alice, f"{ME}/monitors"
    for name in ("out1", "out2"):
        at.ask(alice, "PUT", f"{base}/{name}", OUTGOING)
    at.ask(alice, "POST", "/v1/outgoing/claim", {"max": 5, "lease": "1m", "wait": "0s"})
    _fire(stage.world, 2)
    claim = {"max": 1, "lease": "1m", "wait": "1s"}
    item = at.ask(alice, "POST", "/v1/outgoing/claim", claim).json["items"][0]
    path = run_path(item["run"])
    at.ask(alice, "POST", "/v1/outgoing/claim", {"lease": "an age"})
    at.ask(alice, "POST", f"{path}/extend", {"lease": item["lease"], "by": "2m"})
    at.ask(alice, "POST", f"{path}/extend", {"lease": "0-0-wrong", "by": "2m"})
    at.ask(alice, "GET", path)
    at.ask(alice, "POST", f"{path}/outcome", {"lease": item["lease"], "status": "fine"})
    at.ask(alice, "POST", f"{path}/outcome", {"lease": item["lease"], "status": "ok", "detail": {"a": 1}})
    at.ask(alice, "POST", f"{path}/outcome", {"lease": item["lease"], "status": "ok"})
    again = {"run": item["run"], "lease": item["lease"], "status": "ok"}
    at.ask(alice, "POST", "/v1/outgoing/outcomes", {"items": [again, {**again, "status": "fine"}]})
    at.ask(alice, "POST", f"{path}/claim", {"attempt": 1, "lease": "1m"})
    other = next(run for name in ("out1", "out2") if (run := _newest(alice, name)) != item["run"])
    at.ask(alice, "POST", f"{run_path(other)}/claim", {"attempt": 7, "lease": "1m"})
    at.ask(alice, "POST", f"{run_path(other)}/claim", {"attempt": 1, "lease": "1m"})
    at.ask(stage.root, "GET", run_path("alice/out1#1@999"))
    at.ask(alice, "GET", f"{base}/out1/runs?limit=1")
    at.ask(alice, "GET", f"{base}/out1")


def _fire(world: World, runs: int) -> None:
    """Ticks until as many runs are made: what was put just now is due at the next full slot."""
    made = 0
    for _ in range(100):
        made += world.fire()
        if made >= runs:
            break
        time.sleep(0.02)
    assert made == runs


def _newest(client: Client, monitor: str) -> str:
    return str(client("GET", f"{ME}/monitors/{monitor}/runs").json["items"][0]["run"])


def _batches(stage: AtlasWorld, at: Surface) -> None:
    root, day = stage.root, f"/v1/batches/daily/days/{TOMORROW}"
    at.ask(root, "PUT", "/v1/providers/shop", PROVIDER | {"headers": {"X-Key": "sesame"}})
    at.ask(root, "PUT", "/v1/providers/shop", {"base_url": "ftp://x"})
    at.ask(stage.alice, "GET", "/v1/providers")
    for verb in ("pause", "resume"):
        at.ask(root, "POST", f"/v1/providers/shop/{verb}")
    at.ask(root, "GET", "/v1/providers")
    at.ask(root, "GET", "/v1/providers/shop")
    at.ask(root, "GET", "/v1/providers/none")
    at.ask(root, "PUT", "/v1/batches/daily", {"start": "00:00", "window": "24h"})
    at.ask(root, "PUT", "/v1/batches/daily", {"start": "25:00"})
    for verb in ("pause", "resume"):
        at.ask(root, "POST", f"/v1/batches/daily/{verb}")
    at.ask(root, "GET", "/v1/batches")
    at.ask(root, "GET", "/v1/batches/daily")
    at.ask(root, "PUT", "/v1/batches/daily/records", {"items": [*RECORDS, {"id": "bad", "provider": "none"}]})
    at.ask(root, "GET", "/v1/batches/daily/records?limit=3")
    at.ask(root, "GET", "/v1/batches/daily/records/r1")
    at.ask(root, "GET", "/v1/batches/daily/records/r1/why")
    at.ask(root, "DELETE", "/v1/batches/daily/records/r3")
    at.ask(root, "DELETE", "/v1/batches/daily/records/r9")
    at.ask(root, "POST", "/v1/batches/daily/plan?dry_run=true", {"date": TOMORROW})
    at.ask(root, "POST", "/v1/batches/daily/plan", {"date": TOMORROW})
    at.ask(root, "POST", "/v1/batches/daily/plan", {"date": TOMORROW})
    at.ask(root, "POST", "/v1/batches/daily/plan", {"date": "soon"})
    at.ask(root, "GET", "/v1/batches/daily/days")
    at.ask(root, "GET", "/v1/days")
    at.ask(root, "GET", day)
    at.ask(root, "DELETE", "/v1/providers/shop")
    assert end_all(stage.world, "failed", provider="shop", reason="refused") == 3
    at.ask(root, "GET", f"{day}/runs?state=failed")
    at.ask(root, "GET", f"{day}/runs?state=lost")
    at.ask(root, "GET", f"{day}/export?format=ndjson")
    at.ask(root, "GET", f"{day}/export?format=csv")
    at.ask(root, "GET", run_path(f"daily/r0@{TOMORROW}"))
    at.ask(root, "GET", f"{run_path(f'daily/r0@{TOMORROW}')}/why")
    at.ask(root, "GET", "/v1/dead?limit=2")
    at.ask(root, "POST", "/v1/dead/redrive", {"runs": [f"daily/r0@{TOMORROW}"]})
    at.ask(root, "POST", "/v1/dead/redrive", {"runs": [f"daily/r0@{TOMORROW}"]})
    at.ask(root, "POST", "/v1/dead/discard", {"provider": "shop"})
    at.ask(root, "POST", "/v1/dead/discard", {})
    at.ask(root, "GET", "/v1/dead")
    at.ask(root, "GET", f"{day}/providers?limit=1")
    at.ask(root, "POST", f"{day}/rerun", {"state": "done"})
    at.ask(root, "POST", f"{day}/rerun", {"state": "soon"})
    at.ask(root, "DELETE", "/v1/batches/none")
    at.ask(root, "PUT", "/v1/providers/idle", PROVIDER)
    at.ask(root, "DELETE", "/v1/providers/idle")


def _jobs(stage: AtlasWorld, at: Surface) -> None:
    root, alice = stage.root, stage.alice
    at.ask(root, "PUT", "/v1/accounts/spare", {"daily_credits": 500})
    at.ask(root, "PUT", "/v1/accounts/spare", {"daily_credits": -1})
    at.ask(root, "GET", "/v1/accounts")
    at.ask(root, "GET", "/v1/accounts/lab")
    key = stage.simulator.add_account("spare")[0]
    made = at.ask(root, "POST", "/v1/accounts/spare/keys", {"key": key, "label": "one"}).json["id"]
    at.ask(root, "POST", "/v1/accounts/spare/keys", {"key": key})
    at.ask(root, "GET", f"/v1/accounts/spare/keys/{made}")
    at.ask(root, "PATCH", f"/v1/accounts/spare/keys/{made}", {"enabled": False})
    at.ask(root, "DELETE", f"/v1/accounts/spare/keys/{made}")
    at.ask(alice, "POST", "/v1/jobs", job(100))
    at.ask(alice, "POST", "/v1/jobs", {"title": "none"})
    at.ask(alice, "POST", "/v1/jobs?dry_run=true", job(2))
    once = {"Idempotency-Key": "once"}
    first = at.ask(alice, "POST", "/v1/jobs", job(2), headers=once).json["job"]
    at.ask(alice, "POST", "/v1/jobs", job(2), headers=once)
    at.ask(alice, "GET", f"{ME}/budget")
    stage.done(stage.send())
    at.ask(alice, "GET", "/v1/jobs")
    at.ask(alice, "GET", f"/v1/jobs/{first}")
    at.ask(alice, "GET", f"/v1/jobs/{first}?measurements=false")
    at.ask(alice, "GET", f"/v1/jobs/{first}/results")
    at.ask(alice, "DELETE", f"/v1/jobs/{first}")
    at.ask(alice, "DELETE", f"/v1/jobs/{first}")
    at.ask(alice, "GET", f"/v1/jobs/{first}/why")
    for client in (alice, root):
        at.ask(client, "GET", "/v1/ahead?hours=1")
    at.ask(root, "GET", "/v1/jobs/none")


def _ripe(stage: AtlasWorld, at: Surface) -> None:
    token = stage.alice.token or ""
    key = {"headers": {"Authorization": f"Key {token}"}}
    client, base = stage.world.client(), "/api/v2"
    made = at.ask(client, "POST", f"{base}/measurements/", request_of(), **key).json["measurements"][0]
    for path in ("measurements/my/", "measurements/ping/"):
        at.ask(client, "POST", f"{base}/{path}", request_of(), **key)
    at.ask(client, "POST", f"{base}/measurements/", {"definitions": []}, **key)
    at.ask(client, "GET", f"{base}/measurements/")
    stage.send()
    lists = ("measurements/", "measurements/my/", "measurements/ping/", "credits/", "keys/", "probes/", "probes/1/")
    parts = (f"measurements/{made}/{part}" for part in ("", "results/", "latest/"))
    for path in (*lists, *parts, f"measurements-latest/{made}/"):
        at.ask(client, "GET", f"{base}/{path}", **key)
    one = request_of()["definitions"][0]
    many = at.ask(client, "POST", f"{base}/measurements/", request_of(one, one), **key).json["measurements"]
    group = at.ask(client, "GET", f"{base}/measurements/{many[0]}/", **key).json["group_id"]
    at.ask(client, "GET", f"{base}/measurements/groups/{group}/", **key)
    at.ask(client, "DELETE", f"{base}/measurements/{made}/", **key)
    at.ask(client, "DELETE", f"{base}/measurements/groups/{group}/", **key)
    at.ask(client, "GET", f"{base}/measurements/999999/", **key)


def _service(stage: AtlasWorld, at: Surface) -> None:
    for path in VIEWS:
        at.ask(stage.root, "GET", path)
    for path in (*PAGES, "/healthz", "/readyz", "/metrics", "/nothing"):
        at.ask(stage.world.client(), "GET", path)
    at.ask(stage.root, "GET", "/v1/status")
    at.ask(stage.alice, "GET", "/v1/status")
    at.ask(stage.root, "POST", "/v1/status")
