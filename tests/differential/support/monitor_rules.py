"""Acts on monitors: definitions, ticks, claims, outcomes and upkeep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from paceline.core.ids import run_id
from paceline.core.monitors.checks import Check, HttpCheck, OutgoingCheck, TcpCheck
from paceline.core.monitors.definition import MonitorSpec
from paceline.core.monitors.dispatch import RetryPolicy
from paceline.core.monitors.due import CatchUp
from paceline.core.monitors.lists.query import START, Mark, parse_query
from paceline.core.monitors.outcome import Dead, Done, Outcome, Retry, Unknown
from paceline.core.monitors.places import Places
from paceline.core.monitors.schedule import Missed, Overlap
from paceline.core.monitors.values import PutMonitor, RemoveMonitor, Run, Settlement
from paceline.ports import Store
from paceline.steps.monitors import define, outgoing, react, send, tick
from paceline.steps.monitors.find import find_monitors
from paceline.steps.monitors.run_now import run_now
from paceline.steps.upkeep.purge import purge
from tests.contract.support.stage import HOUR_MS, MINUTE_MS
from tests.differential.support.history import act
from tests.differential.support.machine import Machine, a_pick, a_user
from tests.differential.support.pair import Both, Side
from tests.support import outgoing_runs

CHECKS: dict[str, Check] = {
    "get": HttpCheck(url="http://example.org/"),
    "post": HttpCheck(url="http://example.org/", method="POST"),
    "tcp": TcpCheck(host="example.net", port=25),
    "outgoing": OutgoingCheck(document={"kind": "outgoing", "task": "x"}),
}
CADENCES = {"1s": "1s", "1m": "60s", "5m": "300s", "cron": "* * * * *", "hourly": "0 * * * *"}
POLICY = RetryPolicy(attempts_max=3)
CATCH_UP = CatchUp(runs_max=4, waiting_max=2)
HELD_MAX = 8
NEED_HELD = frozenset({"settle", "settle_and_claim", "record_outcome", "extend", "release"})

a_monitor = ("m1", "m2", "m3")
a_revision = (None, None, None, 0, 1, 2)
a_lease = (1_000, MINUTE_MS, HOUR_MS)
a_room = (100, 100, 100, 1, 2, 3)
an_outcome = ("ok", "failed", "retry", "later", "dead", "unknown")


def spec_of(*, check: str, when: str, missed: Missed, overlap: Overlap, paused: bool, delay: str | None) -> MonitorSpec:
    cadence = CADENCES[when]
    every, cron = (None, cadence) if "*" in cadence else (cadence, None)
    return MonitorSpec(
        check=CHECKS[check],
        every=every,
        cron=cron,
        missed=missed,
        overlap=overlap,
        paused=paused,
        initial_delay=delay,
    )


a_spec: dict[str, Any] = {
    "check": sorted(CHECKS),
    "when": sorted(CADENCES),
    "missed": ("skip", "once", "all"),
    "overlap": ("skip", "queue"),
    "paused": (False, False, False, True),
    "delay": (None, "0s", "90s"),
}


def in_order_of_name(claimed: list[Any]) -> list[Any]:
    """The port promises which runs start, and no order among those that start together."""
    return sorted(claimed, key=lambda one: (one.user if hasattr(one, "user") else one.owner, one.monitor))


class MonitorRules(Machine):
    """``held``: what was claimed last, also what is settled, stale or lost by now."""

    def __init__(self) -> None:
        self.held: list[Both] = []
        super().__init__()

    def furnish(self) -> None:
        super().furnish()
        spec = {"when": "1m", "missed": "all", "paused": False, "delay": "0s", "revision": None}
        self.put_monitor(owner="ann", monitor="m1", check="get", overlap="queue", **spec)
        self.put_monitor(owner="bob", monitor="m1", check="outgoing", overlap="skip", **spec)

    def can(self, act: str) -> bool:
        return super().can(act) and (bool(self.held) or act not in NEED_HELD)

    def hold(self, claimed: Both) -> None:
        """Pairs up what both stores gave out, by name."""
        if claimed.raised:
            return
        mine = {self._name(self.pair.sqlite, one): one for one in claimed.sqlite}
        others = {self._name(self.pair.aws, one): one for one in claimed.aws}
        self.held = [*(Both(one, others[name]) for name, one in mine.items()), *self.held][:HELD_MAX]

    def _name(self, side: Side, one: Any) -> Any:
        return side.names.plain(one.run if isinstance(one, outgoing.OutgoingItem) else one.run_id), one.attempt

    # -- definitions

    @act(6, owner=a_user, monitor=a_monitor, revision=a_revision, **a_spec)
    def put_monitor(self, owner: str, monitor: str, revision: int | None, **spec: Any) -> None:
        put = PutMonitor(owner, monitor, spec_of(**spec), revision)

        def put_it(side: Side) -> object:
            return define.put_monitors(side.store, [put], monitors_max=2, now_ms=self.now_ms, firings_max=2)

        self.ask("put_monitor", put_it)

    @act(2, owner=a_user, monitor=a_monitor, revision=a_revision, **a_spec)
    def put_monitor_without_reaction(self, owner: str, monitor: str, revision: int | None, **spec: Any) -> None:
        """Its process died before the entry followed."""
        put = PutMonitor(owner, monitor, spec_of(**spec), revision)

        def put_it(side: Side) -> object:
            return side.store.put_monitors([put], monitors_max=2, now_ms=self.now_ms, firings_max=2)

        self.ask("put_monitor_without_reaction", put_it)

    @act(2, owner=a_user, monitor=a_monitor, paused=(False, True))
    def pause_monitor(self, owner: str, monitor: str, *, paused: bool) -> None:
        def pause(side: Side) -> object:
            return define.edit_monitor(
                side.store,
                owner,
                monitor,
                lambda spec: define.set_paused(spec, paused=paused),
                expected_revision=None,
                monitors_max=2,
                now_ms=self.now_ms,
            )

        self.ask("pause_monitor", pause)

    @act(2, owner=a_user, monitor=a_monitor, revision=a_revision)
    def remove_monitor(self, owner: str, monitor: str, revision: int | None) -> None:
        remove = RemoveMonitor(owner, monitor, revision)
        self.ask("remove_monitor", lambda side: define.remove_monitors(side.store, [remove], now_ms=self.now_ms))

    @act(2)
    def react(self) -> None:
        def follow(side: Side) -> object:
            report = react.react_to_all(side.store, now_ms=self.now_ms)
            return report._replace(followed=[])

        self.ask("react", follow)

    # -- entries

    @act(12)
    def tick(self) -> None:
        def arrange(report: tick.TickReport) -> object:
            return report._replace(late_ms=sorted(report.late_ms))

        def advance(side: Side) -> object:
            return tick.tick(side.store, now_ms=self.now_ms, catch_up=CATCH_UP)

        self.ask("tick", advance, arrange=arrange)

    @act(
        3,
        owner=(None, "ann", "bob"),
        health=(None, None, "late", "failing", "new", "ok", "paused"),
        kind=(None, None, "http", "outgoing"),
        q=(None, None, "m1", "example"),
        sort=("id", "health", "next_due"),
    )
    def list_monitors(self, **asked: Any) -> None:
        """All pages of one monitor each: they may be cut differently, but not hold others or in another order."""
        query = parse_query(**asked)

        def walk(side: Side) -> object:
            found: list[tuple[str, str, str]] = []
            mark: Mark | None = START
            while mark is not None:
                page = find_monitors(side.store, query, mark, limit=1, now_ms=self.now_ms)
                found += [(view.user, view.id, view.health) for view in page.views]
                mark = page.following
            return found

        self.ask("list_monitors", walk)

    @act(4, owner=a_user, monitor=a_monitor)
    def run_now(self, owner: str, monitor: str) -> None:
        def run(side: Side) -> object:
            return run_now(side.store, owner, monitor, now_ms=self.now_ms, catch_up=CATCH_UP)

        self.ask("run_now", run)

    # -- claims

    @act(8, runs_max=a_room, lease_ms=a_lease, places=(None, (1, 100), (2, 100)))
    def claim_checks(self, runs_max: int, lease_ms: int, places: tuple[int, int] | None) -> None:
        """A second after what was before: why checks wait is noted a few times a second at most."""
        self.now_ms += 1_000
        runs_max = self._room(runs_max)
        limits = None if places is None else Places(*places)

        def claim(side: Side) -> object:
            return send.claim_orders(
                side.store, now_ms=self.now_ms, runs_max=runs_max, lease_ms=lease_ms, policy=POLICY, places=limits
            )

        self.hold(self.ask("claim_checks", claim, arrange=in_order_of_name))

    @act(5, owner=(None, "ann", "bob"), runs_max=a_room, lease_ms=a_lease)
    def claim_outgoing(self, owner: str | None, runs_max: int, lease_ms: int) -> None:
        def claim(side: Side) -> object:
            return outgoing.claim_outgoing(
                side.store, owner=owner, now_ms=self.now_ms, runs_max=runs_max, lease_ms=lease_ms, policy=POLICY
            )

        self.hold(self.ask("claim_outgoing", claim, arrange=in_order_of_name))

    @act(
        3,
        owner=a_user,
        monitor=a_monitor,
        counter=range(4),
        attempt=(None, 1, 2),
        viewer=(None, "ann"),
    )
    def claim_run(self, owner: str, monitor: str, counter: int, attempt: int | None, viewer: str | None) -> None:
        def claim(side: Side) -> object:
            there = side.store.monitor(owner, monitor)
            name = run_id(owner, monitor, generation=there.generation if there else 999, counter=counter)
            asked = outgoing.RunClaim(name, attempt, MINUTE_MS, viewer)
            return [outgoing_runs.claim_run(side.store, asked, now_ms=self.now_ms, policy=POLICY)]

        self.hold(self.ask("claim_run", claim))

    def _room(self, runs_max: int) -> int:
        """Room for all if a lease has run out: SQLite counts such a run as out no more once it lacks a place."""
        runs = open_runs(self.pair.aws.store, now_ms=self.now_ms)
        lost = any(run.state == "out" and run.until_ms is not None and run.until_ms <= self.now_ms for run in runs)
        return 100 if lost else runs_max

    # -- outcomes

    @act(10, pick=a_pick, outcome=an_outcome)
    def settle(self, pick: int, outcome: str) -> None:
        item = self.held[pick % len(self.held)]

        def settle(side: Side) -> object:
            handle, attempt = fence_of(item.of(side))
            return side.store.settle([Settlement(handle, attempt, self._outcome(outcome), self.now_ms, self.now_ms)])

        self.ask("settle", settle)

    @act(5, pick=a_pick, outcome=an_outcome, runs_max=a_room, lease_ms=a_lease)
    def settle_and_claim(self, pick: int, outcome: str, runs_max: int, lease_ms: int) -> None:
        self.now_ms += 1_000
        runs_max = self._room(runs_max)
        item = self.held[pick % len(self.held)]

        def settle(side: Side) -> object:
            handle, attempt = fence_of(item.of(side))
            settlement = Settlement(handle, attempt, self._outcome(outcome), self.now_ms, self.now_ms)
            won, claimed = side.store.settle_and_claim(
                [settlement], now_ms=self.now_ms, runs_max=runs_max, lease_ms=lease_ms, places=None
            )
            return won, send.make_orders(side.store, claimed, now_ms=self.now_ms, policy=POLICY)

        both = self.ask("settle_and_claim", settle, arrange=lambda told: (told[0], in_order_of_name(told[1])))
        self.hold(Both(both.sqlite[1], both.aws[1]))

    def _outcome(self, name: str) -> Outcome:
        match name:
            case "ok":
                return Done(ok=True, latency_ms=1.5, code=200, detail={"n": 1})
            case "failed":
                return Done(ok=False, reason="it failed")
            case "retry":
                return Retry("again", self.now_ms)
            case "later":
                return Retry("again in a minute", self.now_ms + MINUTE_MS)
            case "dead":
                return Dead("given up")
        return Unknown("nobody knows")

    @act(4, pick=a_pick, status=("ok", "failed", "retry"), viewer=(None, "ann"))
    def record_outcome(self, pick: int, status: Any, viewer: str | None) -> None:
        item = self.held[pick % len(self.held)]

        def record(side: Side) -> object:
            run, lease = lease_of(item.of(side))
            told = outgoing.OutcomeReport(run, lease, status, {"reason": "why"}, viewer, chance=0.5)
            return outgoing_runs.record_outcome(side.store, told, now_ms=self.now_ms, policy=POLICY)

        self.ask("record_outcome", record)

    @act(2, pick=a_pick, by_ms=a_lease)
    def extend(self, pick: int, by_ms: int) -> None:
        item = self.held[pick % len(self.held)]

        def extend(side: Side) -> object:
            run, lease = lease_of(item.of(side))
            return outgoing.extend_lease(side.store, run, lease=lease, by_ms=by_ms, viewer=None, now_ms=self.now_ms)

        self.ask("extend", extend)

    @act(2, pick=a_pick)
    def release(self, pick: int) -> None:
        item = self.held[pick % len(self.held)]

        def release(side: Side) -> object:
            return side.store.release([fence_of(item.of(side))], now_ms=self.now_ms)

        self.ask("release", release)

    # -- upkeep

    @act(2, keep_ms=(0, MINUTE_MS, HOUR_MS), expire_ms=(MINUTE_MS, HOUR_MS))
    def purge(self, keep_ms: int, expire_ms: int) -> None:
        def purge_all(side: Side) -> object:
            deleted = expired = 0
            for _ in range(20):
                done = purge(side.store, keep_ms=keep_ms, expire_ms=expire_ms, now_ms=self.now_ms)
                deleted, expired = deleted + done.runs_deleted, expired + done.runs_expired
                if not done.more:
                    break
            return deleted, expired

        self.ask("purge", purge_all)


def open_runs(store: Store, *, now_ms: int) -> Iterator[Run]:
    for user in store.users(after="", limit=10):
        for monitor in store.monitors(user.id, after="", limit=10):
            runs = store.monitor_runs(monitor, before=None, limit=100, now_ms=now_ms)
            yield from (run for run in runs if run.ended_ms is None)


def fence_of(item: Any) -> tuple[int, int]:
    if isinstance(item, outgoing.OutgoingItem):
        handle, _, attempt = item.lease.partition(".")
        return int(handle, 16), int(attempt)
    return item.handle, item.attempt


def lease_of(item: Any) -> tuple[str, str]:
    """The run and the lease as a user's checker knows them."""
    if isinstance(item, outgoing.OutgoingItem):
        return item.run, item.lease
    return item.run_id, f"{item.handle:x}.{item.attempt}"
