"""A page of each filtered list of monitors, in a small and in a large store; and the cost of keeping the indexes."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

from msgspec.structs import replace

from bench.harness import Context, Result, judged
from bench.seed import BATCH, MONITORS_MAX, START_MS, add_owners, monitors
from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.monitors.checks import Check, DnsCheck, HttpCheck, OutgoingCheck, TcpCheck, TlsCheck
from paceline.core.monitors.due import CatchUp
from paceline.core.monitors.lists.query import START, MonitorQuery
from paceline.core.monitors.outcome import Done
from paceline.core.monitors.values import CHECKS, PutMonitor, Settlement
from paceline.steps.monitors import define
from paceline.steps.monitors.find import find_monitors
from paceline.steps.monitors.tick import tick

SMALL, LARGE = 1_000, 1_000_000
COST_MAX = 3.0
PAGE = 100
BIG = "owner7"
"""User who owns half of all monitors; the others share the rest."""
RARE = 200
"""How many monitors have the rare tag, are paused, or are of a rare kind: a full page of each, at both sizes."""
QUICK_MS = 1.0
"""A page that takes less than this counts as if it took this long."""
QUERIES: dict[str, dict[str, Any]] = {
    "all": {},
    "tag of half": {"tag": "web"},
    "tag of 200": {"tag": "rare"},
    "tag of none": {"tag": "nothing"},
    "kind of most": {"kind": "http"},
    "kind of 200": {"kind": "dns"},
    "text of all": {"q": "example.org"},
    "text of one": {"q": "host17."},
    "text of none": {"q": "nowhere"},
    "text of two letters": {"q": "zq"},
    "failing": {"health": "failing"},
    "late": {"health": "late"},
    "paused": {"health": "paused"},
    "new": {"health": "new"},
    "ok": {"health": "ok"},
    "by health": {"sort": "health"},
    "by next_due": {"sort": "next_due"},
    "tag of half by next_due": {"tag": "web", "sort": "next_due"},
    "text of one by health": {"q": "host17.", "sort": "health"},
}


def run(context: Context) -> list[Result]:
    rounds = 41 if context.full else 15
    stores: dict[int, SqliteStore] = {}
    results: list[Result] = []
    for size in (SMALL, LARGE):
        started_s = time.perf_counter()
        stores[size] = SqliteStore(context.file(f"lists-{size}.db"), synchronous="normal")
        _fill(stores[size], size)
        context.say(f"lists: {size:,} monitors set up in {time.perf_counter() - started_s:.1f} s")
        indexed_s = _index(stores[size])
        results.append({"subject": "index of a new monitor, later", "size": size, "per_s": round(size / indexed_s)})
    for name, fields in QUERIES.items():
        for owner in (BIG, None):
            spent = _spent_ms(stores, MonitorQuery(owner, **fields), rounds)
            results.append(_judged(f"{name}, {'all users' if owner is None else 'one user'}", spent))
    return results


def _judged(name: str, spent: dict[int, tuple[float, int]]) -> Result:
    (small_ms, few), (large_ms, many) = spent[SMALL], spent[LARGE]
    ratio = max(large_ms, QUICK_MS) / max(small_ms, QUICK_MS)
    values: Result = {
        "subject": name,
        "size": LARGE,
        "page_ms": round(large_ms, 2),
        "found": many,
        "page_ms_small": round(small_ms, 2),
        "found_small": few,
        "cost_ratio": round(ratio, 2),
    }
    return values | judged(ratio, at_most=COST_MAX)


def _spent_ms(stores: dict[int, SqliteStore], query: MonitorQuery, rounds: int) -> dict[int, tuple[float, int]]:
    """Returns the least CPU time of a first page in each store, measured in turns, and its number of monitors."""
    times: dict[int, list[float]] = {size: [] for size in stores}
    found = dict.fromkeys(stores, 0)
    for _ in range(rounds):
        for size, store in stores.items():
            start_s = time.thread_time()
            found[size] = len(find_monitors(store, query, START, limit=PAGE, now_ms=START_MS + 5_000).views)
            times[size].append((time.thread_time() - start_s) * 1_000)
    return {size: (min(times[size]), found[size]) for size in stores}


def _fill(store: SqliteStore, size: int) -> None:
    add_owners(store)
    left = _mixed(size)
    while batch := list(islice(left, BATCH)):
        define.put_monitors(store, batch, monitors_max=MONITORS_MAX, now_ms=START_MS)
    _fail_some(store)


def _fail_some(store: SqliteStore) -> None:
    """Lets some monitors fire and fail, as many at both sizes."""
    tick(store, now_ms=START_MS + 4_000, catch_up=CatchUp(), limit=50)
    claimed = store.claim(CHECKS, now_ms=START_MS + 4_000, runs_max=200, lease_ms=60_000)
    ended_ms = START_MS + 4_500
    outcomes = [Done(ok=bool(index % 2), reason="it failed") for index in range(len(claimed))]
    store.settle(
        [
            Settlement(one.handle, one.attempt, outcome, ended_ms, ended_ms)
            for one, outcome in zip(claimed, outcomes, strict=True)
        ]
    )


def _mixed(size: int) -> Iterator[PutMonitor]:
    """Yields monitors, half of them one user's. Tags, kinds and pauses are independent of the order of creation."""
    chance = random.Random(3)
    apart = size // RARE
    for index, put in enumerate(monitors(size)):
        host, place = f"host{index}.example.org", index % apart
        check: Check = HttpCheck(url=f"https://{host}/health")
        if place == 1:
            check = DnsCheck(name=host)
        elif chance.randrange(10) == 0:
            others = (TcpCheck(host=host, port=25), TlsCheck(host=host), OutgoingCheck({"kind": "outgoing"}))
            check = chance.choice(others)
        tags = (*(("web",) if chance.random() < 0.5 else ()), *(("rare",) if place == 0 else ()))
        changed = replace(put.spec, tags=tags, check=check, paused=place == 2)
        owner = BIG if place < 3 or chance.random() < 0.5 else put.owner
        yield replace(put, owner=owner, spec=changed)


def _index(store: SqliteStore) -> float:
    start_s = time.perf_counter()
    while store.index_monitors(limit=500):
        pass
    return time.perf_counter() - start_s
