"""Lists of monitors with filters and orders: a walk over all pages, compared with the rule applied to everything."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from paceline.core.monitors.checks import Check, DnsCheck, HttpCheck, OutgoingCheck, TcpCheck, TlsCheck
from paceline.core.monitors.definition import MonitorSpec
from paceline.core.monitors.due import CatchUp
from paceline.core.monitors.lists.query import HEALTH_ORDER, START, MonitorQuery, Sort, matches, parse_query
from paceline.core.monitors.outcome import Done
from paceline.core.monitors.values import PutMonitor
from paceline.core.users import UserEdit
from paceline.ports import Store
from paceline.steps import access
from paceline.steps.monitors import define, find
from paceline.steps.monitors.tick import tick
from paceline.steps.views.report import MonitorView, monitor_views
from tests.contract.support.stage import MINUTE_MS, MONITORS_MAX, T0_MS, claim, settle, user

NOW_MS = T0_MS + 30 * MINUTE_MS
CHECKS: list[Check] = [
    HttpCheck(url="https://Shop.example.org/health"),
    HttpCheck(url="https://bank.example.com/"),
    TcpCheck(host="mail.example.org", port=25),
    DnsCheck(name="example.net"),
    TlsCheck(host="shop.example.org"),
    OutgoingCheck(document={"kind": "outgoing", "page": "/shop"}),
]
QUERIES: list[dict[str, Any]] = [
    {},
    {"tag": "web"},
    {"tag": "rare"},
    {"tag": "nothing"},
    {"kind": "dns"},
    {"kind": "http"},
    {"q": "shop"},
    {"q": "SHOP.EXAMPLE"},
    {"q": "m-1"},
    {"q": "x"},
    {"q": "nowhere at all"},
    {"q": '"quoted"'},
    {"health": "failing"},
    {"health": "late"},
    {"health": "new"},
    {"health": "ok"},
    {"health": "paused"},
    {"tag": "web", "kind": "http", "q": "bank"},
    {"tag": "web", "health": "ok"},
    {"q": "example.org", "health": "paused", "kind": "tcp"},
]


def put(store: Store, owner: str, name: str, *, now_ms: int = T0_MS, **fields: Any) -> None:
    fields = {"check": CHECKS[0], "every": "10m", **fields}
    one = PutMonitor(owner, name, MonitorSpec(**fields))
    (result,) = define.put_monitors(store, [one], monitors_max=MONITORS_MAX, now_ms=now_ms)
    assert result.monitor is not None


def furnish(store: Store) -> None:
    """Three users with monitors of every kind and every health, and one without any."""
    random = Random(5)
    for name in ("ann", "bob", "cy", "dora"):
        store.add_user(user(name)) if store.user(name) is None else None
    for owner, count in (("ann", 24), ("bob", 12), ("cy", 1)):
        puts = [
            PutMonitor(
                owner,
                f"m-{number}",
                MonitorSpec(
                    check=CHECKS[number % len(CHECKS)],
                    every=random.choice(("60s", "10m", "1d")),
                    initial_delay=random.choice(("0s", "0s", "5m", "2h")),
                    paused=random.random() < 0.15,
                    tags=("web",) if number % 3 else ("web", "rare") if number % 7 == 0 else (),
                ),
            )
            for number in range(count)
        ]
        define.put_monitors(store, puts, monitors_max=MONITORS_MAX, now_ms=T0_MS)
    for minute in range(0, 28, 7):
        now_ms = T0_MS + minute * MINUTE_MS
        tick(store, now_ms=now_ms, catch_up=CatchUp())
        for item in claim(store, now_ms=now_ms):
            if random.random() < 0.8:
                settle(store, [item], Done(ok=random.random() < 0.6), now_ms=now_ms)
    access.edit_user(store, "cy", UserEdit(disabled=True), now_ms=NOW_MS - 1)


def walk(store: Store, query: MonitorQuery, *, limit: int, now_ms: int = NOW_MS) -> list[MonitorView]:
    """Reads all pages one after the other, each within its limit, up to a bounded number."""
    found: list[MonitorView] = []
    mark = START
    for _ in range(1_000):
        page = find.find_monitors(store, query, mark, limit=limit, now_ms=now_ms)
        assert len(page.views) <= limit
        found += page.views
        if page.following is None:
            return found
        assert page.following != mark
        mark = page.following
    raise AssertionError("the list has no end")


def expected(store: Store, query: MonitorQuery) -> list[str]:
    """The rule, applied to every monitor there is."""
    owners = [one.id for one in store.users(after="", limit=100)]
    everything = [one for owner in owners for one in store.monitors(owner, after="", limit=1_000)]
    views = monitor_views(store, [one for one in everything if matches(query, one)], now_ms=NOW_MS)
    entries = store.entries([one.generation for one in everything], now_ms=NOW_MS)

    def rank(view: MonitorView) -> Any:
        name = (view.user, view.id)
        if query.sort == "health":
            return next(at for at, group in enumerate(HEALTH_ORDER) if view.health in group), name
        due_ms = entries[view.schedule.generation].due_ms
        if query.sort == "next_due":
            return (0, due_ms, view.schedule.generation) if due_ms is not None else (1, name)
        return name

    shown = [view for view in views if query.health in (None, view.health)]
    return [f"{view.user}/{view.id}" for view in sorted(shown, key=rank)]


@pytest.fixture
def furnished(store: Store) -> Store:
    furnish(store)
    return store


def test_every_monitor_query_equals_the_rule_of_core_in_pages_of_any_size(
    furnished: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tries queries without indexes, with indexes, and with pages that read few monitors."""
    healths = {view.health for view in walk(furnished, MonitorQuery(), limit=100)}
    assert healths == {"ok", "failing", "late", "new", "paused"}
    for looks_max, chunk in ((1_000, 250), (7, 3)):
        monkeypatch.setattr(find, "LOOKS_MAX", looks_max)
        monkeypatch.setattr(find, "CHUNK", chunk)
        for owner in (None, "ann", "dora"):
            for fields in QUERIES:
                sort: Sort = ("id", "health", "next_due")[len(str(fields)) % 3]
                for query in (MonitorQuery(owner, **fields), MonitorQuery(owner, **fields, sort=sort)):
                    found = [f"{view.user}/{view.id}" for view in walk(furnished, query, limit=5)]
                    assert found == expected(furnished, query), query
        while furnished.index_monitors(limit=10):
            pass


def test_index_follows_edits_and_removals_at_once(furnished: Store) -> None:
    while furnished.index_monitors(limit=100):
        pass
    put(furnished, "ann", "m-3", now_ms=NOW_MS, tags=("moved",), check=TcpCheck(host="elsewhere.example", port=1))
    put(furnished, "ann", "newcomer", now_ms=NOW_MS, tags=("moved",))
    define.remove_monitor(furnished, "ann", "m-4", now_ms=NOW_MS)
    for _ in range(2):
        for asked in ({"tag": "moved"}, {"q": "elsewhere"}, {"q": "m-4"}, {"kind": "tls"}, {"tag": "web"}):
            query = parse_query(owner="ann", **asked)
            assert [f"{one.user}/{one.id}" for one in walk(furnished, query, limit=50)] == expected(furnished, query)
        while furnished.index_monitors(limit=2):
            pass
    assert [one.id for one in walk(furnished, MonitorQuery(tag="moved"), limit=50)] == ["m-3", "newcomer"]


def test_removed_user_leaves_nothing_in_any_list(furnished: Store) -> None:
    while furnished.index_monitors(limit=100):
        pass
    access.remove_user(furnished, "ann", now_ms=NOW_MS)
    for query in (MonitorQuery(tag="web"), MonitorQuery(q="example"), MonitorQuery(sort="next_due")):
        assert {one.user for one in walk(furnished, query, limit=50)} <= {"bob", "cy"}
    furnished.index_monitors(limit=1_000)
    assert furnished.verify() == []


def test_query_without_a_match_reads_a_bounded_number_of_monitors(
    furnished: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "LOOKS_MAX", 10)
    monkeypatch.setattr(find, "CHUNK", 5)
    page = find.find_monitors(furnished, parse_query(owner="ann", q="zz"), START, limit=5, now_ms=NOW_MS)
    assert page.views == []
    assert page.following is not None
