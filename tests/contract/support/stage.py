"""The few moves that the contract's scenes are made of, in the words of the port."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from paceline.core.monitors.checks import DEFAULT_QUEUE, Check, HttpCheck, OutgoingCheck
from paceline.core.monitors.definition import Monitor, MonitorSpec
from paceline.core.monitors.due import Advance, Due, Firing
from paceline.core.monitors.outcome import Done, Outcome
from paceline.core.monitors.schedule import Arm, Cadence, Overlap, Reaction, Remove
from paceline.core.monitors.values import CHECKS, Claimed, PutMonitor, PutResult, Reacted, Run, RunQueue, Settlement
from paceline.core.users import Token, User
from paceline.ports import Store

T0_MS = 1_790_000_000_000
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
LEASE_MS = 60_000
MONITORS_MAX = 1_000
EVERY_MINUTE = Cadence(every_ms=MINUTE_MS)
GET = HttpCheck(url="http://example.org/")
POST = HttpCheck(url="http://example.org/", method="POST")
OUTGOING = OutgoingCheck(document={"kind": "outgoing", "task": "x"})
ALL_OUTGOING = RunQueue(outgoing=True)


def outgoing_of(owner: str) -> RunQueue:
    return RunQueue(outgoing=True, owner=owner)


def spec(
    check: Check = GET,
    *,
    every: str = "60s",
    paused: bool = False,
    tags: tuple[str, ...] = (),
    overlap: Overlap = "skip",
) -> MonitorSpec:
    return MonitorSpec(check=check, every=every, paused=paused, tags=tags, overlap=overlap)


def user(user_id: str, *, created_ms: int = T0_MS) -> User:
    return User(id=user_id, role="user", daily_credits=5, disabled=False, created_ms=created_ms)


def token(token_id: str, user_id: str, *, created_ms: int = T0_MS) -> Token:
    return Token(
        id=token_id, user=user_id, label="a label", digest=token_id.encode().ljust(32, b"."), created_ms=created_ms
    )


def put(
    store: Store,
    monitor_id: str,
    written: MonitorSpec | None = None,
    *,
    owner: str = "ann",
    expected_revision: int | None = None,
    now_ms: int = T0_MS,
) -> PutResult:
    item = PutMonitor(owner=owner, id=monitor_id, spec=written or spec(), expected_revision=expected_revision)
    return store.put_monitors([item], monitors_max=MONITORS_MAX, now_ms=now_ms)[0]


def react_with(store: Store, reaction: Reaction, *, now_ms: int = T0_MS) -> list[bool]:
    """The same reaction to every recorded change."""
    changes = store.changes(limit=1_000, now_ms=now_ms)
    return store.react([Reacted(change=change, reaction=reaction) for change in changes], now_ms=now_ms)


def arm_all(store: Store, due_ms: int, *, cadence: Cadence = EVERY_MINUTE, outgoing: bool = False) -> None:
    """Every recorded change arms its entry, or removes it if the definition is gone."""
    arm = Arm(due_ms=due_ms, cadence=cadence, outgoing=outgoing)
    changes = store.changes(limit=1_000, now_ms=due_ms)
    reacted = [
        Reacted(change, replace(arm, queue=_queue_of(change.monitor)) if change.monitor else Remove())
        for change in changes
    ]
    assert all(store.react(reacted, now_ms=due_ms))


def _queue_of(monitor: Monitor) -> str:
    check = monitor.spec.check
    return check.queue if isinstance(check, OutgoingCheck) else DEFAULT_QUEUE


def armed(
    store: Store,
    monitor_id: str,
    *,
    check: Check = GET,
    owner: str = "ann",
    due_ms: int = T0_MS,
    every: str = "60s",
    overlap: Overlap = "skip",
) -> Monitor:
    """A monitor whose entry is due at the given time."""
    (monitor,) = armed_all(store, [monitor_id], check=check, owner=owner, due_ms=due_ms, every=every, overlap=overlap)
    return monitor


def armed_all(
    store: Store,
    monitor_ids: Iterable[str],
    *,
    check: Check = GET,
    owner: str = "ann",
    due_ms: int = T0_MS,
    every: str = "60s",
    overlap: Overlap = "skip",
) -> list[Monitor]:
    """Puts and arms many equal monitors together."""
    puts = [PutMonitor(owner, monitor_id, spec(check, every=every, overlap=overlap)) for monitor_id in monitor_ids]
    results = store.put_monitors(puts, monitors_max=MONITORS_MAX, now_ms=T0_MS)
    arm_all(store, due_ms, cadence=replace(EVERY_MINUTE, overlap=overlap), outgoing=isinstance(check, OutgoingCheck))
    monitors = [result.monitor for result in results if result.monitor is not None]
    assert len(monitors) == len(puts)
    return monitors


def due_of(store: Store, monitor: Monitor, *, now_ms: int = T0_MS) -> Due:
    entry = store.entries([monitor.generation], now_ms=now_ms)[monitor.generation]
    assert entry.due_ms is not None
    return Due(entry.generation, entry.counter, entry.revision, entry.due_ms, entry.cadence)


def step(due: Due, *, runs: int = 1, after_ms: int = 0) -> Advance:
    """Returns the advance that makes this many runs, a period apart, and moves the entry by as many periods."""
    period_ms = due.cadence.every_ms
    firings = tuple(Firing(due.counter + index, due.due_ms + index * period_ms, after_ms) for index in range(runs))
    return Advance(due, due.due_ms + max(runs, 1) * period_ms, firings)


def make_runs(store: Store, monitor: Monitor, runs: int = 1, *, after_ms: int = 0, now_ms: int = T0_MS) -> None:
    due = due_of(store, monitor, now_ms=now_ms)
    assert store.commit([step(due, runs=runs, after_ms=after_ms)], now_ms=now_ms) == [True]


def make_run_of_each(store: Store, monitors: Iterable[Monitor], *, now_ms: int = T0_MS) -> None:
    advances = [step(due_of(store, monitor, now_ms=now_ms)) for monitor in monitors]
    assert all(store.commit(advances, now_ms=now_ms))


def claim(
    store: Store, queue: RunQueue = CHECKS, *, now_ms: int = T0_MS, runs_max: int = 100, lease_ms: int = LEASE_MS
) -> list[Claimed]:
    return store.claim(queue, now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms)


def settlement(item: Claimed, outcome: Outcome | None = None, *, now_ms: int = T0_MS) -> Settlement:
    return Settlement(item.handle, item.attempt, outcome or Done(ok=True), started_ms=now_ms, ended_ms=now_ms)


def settle(
    store: Store, items: Iterable[Claimed], outcome: Outcome | None = None, *, now_ms: int = T0_MS
) -> list[bool]:
    return store.settle([settlement(item, outcome, now_ms=now_ms) for item in items])


def run_of(store: Store, item: Claimed, *, now_ms: int = T0_MS) -> Run:
    run = store.runs([item.handle], now_ms=now_ms).get(item.handle)
    assert run is not None
    return run


def names(items: Iterable[Claimed]) -> list[tuple[str, int]]:
    return [(item.monitor, item.counter) for item in items]
