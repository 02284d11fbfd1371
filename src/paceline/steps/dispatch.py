"""Sends the next measurement: whose turn it is, with which account and key, and what follows from RIPE's answer.

The intent is written before the one POST, and it is the judge: the pool here is only a good guess at who has room.
Whatever stops the process after the intent leaves it there, and ``steps.lookup`` finds out what became of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Literal, NamedTuple, assert_never

import msgspec

from paceline.core.atlas import Answer, Created, Marker, client_id, request_body
from paceline.core.leases import may_send
from paceline.core.measurement import is_overdue, kinds_of, targets_of
from paceline.core.meters import DAY_MS, MINUTE_MS, Short
from paceline.core.pool import (
    LOOK_AGAIN_MS,
    Key,
    Pool,
    Refuse,
    Reservation,
    Send,
    Wait,
    choose,
    is_exhausted,
    make_pool,
    pick,
    reserve,
    was_passed_too_long,
    with_account,
)
from paceline.ports import (
    Atlas,
    Blame,
    Busy,
    Clock,
    JobStore,
    NotSent,
    Paused,
    Rejected,
    SendOutcome,
    Sent,
    StoredMeasurement,
    TargetFull,
    Unsure,
    Vault,
)
from paceline.steps.atlas_answers import Gates, cut, judge_answer
from paceline.steps.atlas_keys import NoKey, OpenKey, open_key

USERS_MAX = 32
EACH_MAX = 8
USERS_MAX_WIDE = 128
EACH_MAX_WIDE = 32
"""How far a second look goes if none of the first fits although there is room."""
ROOM_LEFT_MS = 5_000
"""While there is room that nothing waiting fits into, something that was parked may, when its time comes."""
CHOICES_MAX = 32
"""How often others may be faster before one measurement is passed over; keys that do not open come on top."""
BUSY_MS = 250
OVERDUE = "its stop time passed before it could be sent"

Outcome = Literal["sent", "unknown", "not_sent", "rejected", "idle"]
_Waiting = tuple[StoredMeasurement, Wait]


class Desk(NamedTuple):
    """``site`` tells this installation from others at RIPE, ``secret`` keeps users' names from it.

    ``sending_max``: of all processes together. ``settle_ms``: how long RIPE's lists may lag.
    """

    site: str
    secret: bytes
    sending_max: int
    settle_ms: int


class Dispatched(NamedTuple):
    """One pass. ``next_ms``: when the next is due at the latest; 0: at once; None: when something is submitted.

    ``reason``: why it was not sent; of one that was sent, RIPE's warnings.
    """

    outcome: Outcome
    item: StoredMeasurement | None = None
    reason: str = ""
    next_ms: int | None = None
    parked: int = 0
    refused: int = 0


class _Post(NamedTuple):
    """What is about to be sent."""

    item: StoredMeasurement
    key: OpenKey


class _Passed(NamedTuple):
    """Nothing can be said of this one now: it is no longer as it was, or others were faster again and again."""


class _Pass:
    """The pool as one pass sees it, what it has put aside, and the room that is kept for one that waited too long."""

    def __init__(self, store: JobStore, vault: Vault, desk: Desk, *, now_ms: int) -> None:
        self.store, self.vault, self.desk, self.now_ms = store, vault, desk, now_ms
        self.pool = self._look(now_ms + LOOK_AGAIN_MS)
        self.reserved: Reservation | None = None
        self.reserved_for: int | None = None
        self.parked = self.refused = 0

    def keep_room(self, item: StoredMeasurement) -> None:
        """All releases are read for it: its room may be as far away as a day."""
        self.reserved_for = item.handle
        self.pool = self._look(self.now_ms + DAY_MS + MINUTE_MS)
        types = kinds_of(item.measurement)
        if isinstance(choose(item.cost, self.pool, now_ms=self.now_ms, types=types), Wait):
            self.reserved = reserve(item.cost, self.pool, now_ms=self.now_ms, types=types)

    def park(self, items: Sequence[StoredMeasurement], *, next_ms: int, reason: str) -> None:
        self.parked += sum(self.store.park(_fences(items), next_ms=next_ms, reason=reason)) if items else 0

    def refuse(self, items: Sequence[StoredMeasurement], *, reason: str) -> None:
        self.refused += sum(self.store.refuse(_fences(items), reason=reason, now_ms=self.now_ms)) if items else 0

    def idle(self, reason: str, next_ms: int | None) -> Dispatched:
        return Dispatched("idle", None, reason, next_ms, self.parked, self.refused)

    def _look(self, releases_until_ms: int) -> Pool:
        return make_pool(self.store.accounts(now_ms=self.now_ms, releases_until_ms=releases_until_ms))


def dispatch_next(
    store: JobStore, atlas: Atlas, vault: Vault, desk: Desk, *, clock: Clock, chance: Callable[[], float]
) -> Dispatched:
    """Sends at most one measurement. What waits for room at an account keeps its place in the queue."""
    now_ms = clock.now_ms()
    items = store.next_to_send(now_ms=now_ms, users_max=USERS_MAX, each_max=EACH_MAX)
    if not items:
        return Dispatched("idle", None, "nothing is queued", store.next_send_ms())
    gates = _gates(store, items)
    if gates.paused is not None and gates.paused.until_ms > now_ms:
        return Dispatched("idle", None, gates.paused.reason, gates.paused.until_ms)
    run = _Pass(store, vault, desk, now_ms=now_ms)
    found = _find(run, _in_turn(run, _sift(run, items, gates)))
    if isinstance(found, Dispatched) and _may_be_behind(run, items):
        # None of the first fits, and smaller ones may stand behind them.
        items = store.next_to_send(now_ms=now_ms, users_max=USERS_MAX_WIDE, each_max=EACH_MAX_WIDE)
        gates = _gates(store, items)
        found = _find(run, _in_turn(run, _sift(run, items, gates)))
    if isinstance(found, Dispatched):
        return found
    done = _send(found, store, atlas, desk, gates, clock=clock, chance=chance)
    return done._replace(parked=run.parked, refused=run.refused)


def _gates(store: JobStore, items: Sequence[StoredMeasurement]) -> Gates:
    wanted = sorted(frozenset().union(*(targets_of(item.measurement) for item in items)))
    paused, full = store.gates(wanted)
    return Gates(paused, {one.target: one for one in full})


def _may_be_behind(run: _Pass, items: Sequence[StoredMeasurement]) -> bool:
    """Whether an account has room for something, and the look ended before the end of the queue."""
    counts = Counter(item.owner for item in items)
    whole = len(counts) < USERS_MAX and max(counts.values()) < EACH_MAX
    return not whole and not is_exhausted(run.pool, now_ms=run.now_ms)


def _sift(run: _Pass, items: Sequence[StoredMeasurement], gates: Gates) -> list[StoredMeasurement]:
    """Without those that waited too long, which fail, and those whose target is full, which step aside."""
    left, overdue = [], []
    waiting: dict[TargetFull, list[StoredMeasurement]] = {}
    for item in items:
        full = [gates.targets[one] for one in targets_of(item.measurement) if one in gates.targets]
        gate = max(full, key=lambda one: one.until_ms, default=None)
        if is_overdue(item.measurement, now_ms=run.now_ms):
            overdue.append(item)
        elif gate is not None and gate.until_ms > run.now_ms:
            waiting.setdefault(gate, []).append(item)
        else:
            left.append(item)
    run.refuse(overdue, reason=OVERDUE)
    for gate, those in waiting.items():
        run.park(those, next_ms=gate.until_ms, reason=cut(f"the target {gate.target} is full: {gate.words}"))
    return left


def _in_turn(run: _Pass, items: Sequence[StoredMeasurement]) -> list[StoredMeasurement]:
    """Users in the order of the line; of each the one first that keeps the accounts even (``core.pool.pick``).

    Before all of them one that was passed for too long; if it does not fit now, room is kept for it.
    """
    late = [item for item in items if was_passed_too_long(item.passed_ms, now_ms=run.now_ms)]
    ordered = [min(late, key=lambda item: (item.passed_ms, item.handle))] if late else []
    if ordered:
        run.keep_room(ordered[0])
    rest = [item for item in items if item.handle != run.reserved_for]
    for _, group in groupby(rest, key=lambda item: item.owner):
        those = list(group)
        ordered.append(those.pop(pick([item.cost for item in those], run.pool, now_ms=run.now_ms)))
        ordered += those
    return ordered


def _find(run: _Pass, items: Sequence[StoredMeasurement]) -> _Post | Dispatched:
    """The first that an account has room for, its intent written. Those before it are noted as passed."""
    waits: list[_Waiting] = []
    for item in items:
        if (behind := _behind(item, waits)) is not None:
            waits.append((item, behind))
            continue
        found = _begin(run, item)
        match found:
            case _Post():
                _note_passed(run, waits, found.item)
                return found
            case Busy():
                return run.idle("as many are being sent as may be at once", run.now_ms + BUSY_MS)
            case Refuse():
                run.refuse([item], reason=found.reason)
            case Wait():
                waits.append((item, found))
                if is_exhausted(run.pool, now_ms=run.now_ms):
                    break
            case _Passed():
                continue
            case _:
                assert_never(found)
    if not waits:
        return run.idle("others were faster", run.store.next_send_ms())
    until_ms = min(wait.until_ms for _, wait in waits)
    if not is_exhausted(run.pool, now_ms=run.now_ms):
        until_ms = min(until_ms, run.now_ms + ROOM_LEFT_MS)
    return run.idle(cut(waits[0][1].reason), until_ms)


def _begin(run: _Pass, item: StoredMeasurement) -> _Post | Busy | Wait | Refuse | _Passed:
    """The key is opened before the intent, so that one that does not open costs nothing."""
    for _ in range(CHOICES_MAX + sum(len(one.keys) for one in run.pool.ready)):
        reserved = run.reserved if item.handle != run.reserved_for else None
        types = kinds_of(item.measurement)
        chosen = choose(item.cost, run.pool, now_ms=run.now_ms, types=types, reserved=reserved)
        if not isinstance(chosen, Send):
            return chosen
        key = open_key(run.store, run.vault, chosen.account, chosen.key)
        if isinstance(key, NoKey):
            run.pool = _without_key(run.pool, chosen, key.reason)
            continue
        begun = run.store.begin_send(
            item, account=chosen.account, key=chosen.key, sending_max=run.desk.sending_max, now_ms=run.now_ms
        )
        match begun:
            case StoredMeasurement():
                return _Post(begun, key)
            case Short():
                # Another process was faster there: this account as it is now, and a new choice.
                account = run.store.account(chosen.account, now_ms=run.now_ms)
                assert account is not None
                run.pool = with_account(run.pool, account)
            case Busy():
                return begun
            case None:
                return _Passed()
            case _:
                assert_never(begun)
    return _Passed()


def _without_key(pool: Pool, chosen: Send, reason: str) -> Pool:
    account = next(one.account for one in pool.ready if one.id == chosen.account)
    keys = [Key(key.id, "quarantined", reason) if key.id == chosen.key else key for key in account.keys]
    return with_account(pool, msgspec.structs.replace(account, keys=tuple(keys)))


def _note_passed(run: _Pass, waits: Sequence[_Waiting], sent: StoredMeasurement) -> None:
    """Of each user the first that did not fit, once: since then others are sent before it."""
    first: dict[str, StoredMeasurement] = {}
    for item, _ in waits:
        first.setdefault(item.owner, item)
    passed = [item for item in first.values() if item.passed_ms is None and item.handle != sent.handle]
    if passed:
        run.store.note_passed(_fences(passed), now_ms=run.now_ms)


def _behind(item: StoredMeasurement, waits: Iterable[_Waiting]) -> Wait | None:
    """What takes at least as much of every meter as one that waits, and has its types, has to wait as well."""
    cost, types = item.cost, kinds_of(item.measurement)
    for other, wait in waits:
        least = other.cost
        if (
            cost.concurrent >= least.concurrent
            and cost.daily_results >= least.daily_results
            and cost.daily_credits >= least.daily_credits
            and types >= kinds_of(other.measurement)
        ):
            return wait
    return None


def _send(
    post: _Post,
    store: JobStore,
    atlas: Atlas,
    desk: Desk,
    gates: Gates,
    *,
    clock: Clock,
    chance: Callable[[], float],
) -> Dispatched:
    """One POST and its answer. What is raised on the way leaves the intent, which is looked up: never guessed."""
    item = post.item
    marker = Marker(desk.site, item.job, item.index, item.attempt)
    body = request_body(item.measurement, marker, client=client_id(item.owner, desk.secret), now_ms=clock.now_ms())
    assert item.intent_ms is not None
    if not may_send(item.intent_ms, now_ms=clock.now_ms()):
        held_up = NotSent("its sender was held up; it is sent anew")
        store.answer(item.handle, item.attempt, held_up, now_ms=clock.now_ms())
        return Dispatched("not_sent", item, held_up.reason, 0)
    answer = atlas.create(post.key.secret, item.measurement, body)
    now_ms = clock.now_ms()
    outcome, blame = judge_answer(item, answer, gates, settle_ms=desk.settle_ms, now_ms=now_ms, chance=chance())
    if not store.answer(item.handle, item.attempt, outcome, blame=blame, now_ms=now_ms):
        # It was given up meanwhile. What it may have created is looked up, or found as an orphan and stopped.
        return Dispatched("unknown", item, "its answer came after it had been given up", 0)
    return _report(item, answer, outcome, blame)


def _report(item: StoredMeasurement, answer: Answer, outcome: SendOutcome, blame: Blame | None) -> Dispatched:
    next_ms = blame.until_ms if isinstance(blame, Paused) else 0
    match outcome:
        case Sent():
            return Dispatched("sent", item, answer.warnings if isinstance(answer, Created) else "", next_ms)
        case Unsure():
            return Dispatched("unknown", item, outcome.reason, min(next_ms, outcome.look_ms))
        case NotSent():
            return Dispatched("not_sent", item, outcome.reason, next_ms)
        case Rejected():
            return Dispatched("rejected", item, outcome.reason, next_ms)
        case _:
            assert_never(outcome)


def _fences(items: Iterable[StoredMeasurement]) -> list[tuple[int, int]]:
    return [(item.handle, item.attempt) for item in items]
