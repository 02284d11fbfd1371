"""Dispatch of the next measurement: whose turn it is, with which account and key, and what follows from RIPE's answer.

The intent is written before the one POST, and its write decides who has room: the pool here is only a good guess. If
the process stops after the intent, the intent stays, and ``steps.jobs.lookup`` finds out whether it was sent.

The answer is written by the thread that sent, before it looks for the next measurement. A slow write holds up nothing
else: a dispatcher has one intent at a time, and the part of the queue that it has read is not leased. If the write
takes longer than the send's own lease, another process marks the send as unknown, and the late answer is still taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple, assert_never

import msgspec

from paceline.core.jobs import pool as pools
from paceline.core.jobs import send_order, values
from paceline.core.jobs.answers import Gates, cut, judge_answer
from paceline.core.jobs.atlas import Answer, Created, Marker, client_id, request_body
from paceline.core.jobs.lookups import NoKey
from paceline.core.jobs.measurement import kinds_of
from paceline.core.jobs.meters import DAY_MS, MINUTE_MS, Short
from paceline.core.leases import may_send
from paceline.ports import Atlas, Clock, JobStore, Vault
from paceline.steps.jobs.atlas_keys import OpenKey, open_key
from paceline.steps.jobs.gates import read_gates

USERS_MAX = 32
EACH_MAX = 8
USERS_MAX_WIDE = 128
EACH_MAX_WIDE = 32
"""Width of a second look if none of the first fits although there is room."""
CHOICES_MAX = 32
"""Number of lost races after which a measurement is passed over; keys that cannot be opened come on top."""
BUSY_MS = 250

Outcome = Literal["sent", "unknown", "not_sent", "rejected", "idle"]


class DispatchSettings(NamedTuple):
    """``site`` tells this installation from others at RIPE, ``secret`` hides users' names from RIPE.

    ``sending_max``: of all processes together. ``settle_ms``: how long RIPE's lists may lag.
    """

    site: str
    secret: bytes
    sending_max: int
    settle_ms: int


class Dispatched(NamedTuple):
    """Report of one pass. ``next_ms``: when the next is due at the latest; 0: at once; None: at the next submission.

    ``reason``: why nothing was sent; after a send, RIPE's warnings.
    """

    outcome: Outcome
    item: values.StoredMeasurement | None = None
    reason: str = ""
    next_ms: int | None = None
    parked: int = 0
    refused: int = 0


class _Post(NamedTuple):
    """A measurement whose intent is written, and the key it is sent with."""

    item: values.StoredMeasurement
    key: OpenKey


class _Passed(NamedTuple):
    """The measurement is skipped: it has changed, or other processes took the room each time."""


class _Pass:
    """State of one pass: the pool, how many were parked or refused, and room kept for one that waited too long."""

    def __init__(self, store: JobStore, vault: Vault, settings: DispatchSettings, *, now_ms: int) -> None:
        self.store, self.vault, self.settings, self.now_ms = store, vault, settings, now_ms
        self.pool = self._look(now_ms + pools.LOOK_AGAIN_MS)
        self.reserved: pools.Reservation | None = None
        self.reserved_for: int | None = None
        self.parked = self.refused = 0

    def keep_room(self, item: values.StoredMeasurement) -> None:
        """Keep room for this measurement if it does not fit now. All releases are read: room may be a day away."""
        self.reserved_for = item.handle
        self.pool = self._look(self.now_ms + DAY_MS + MINUTE_MS)
        types = kinds_of(item.measurement)
        if isinstance(pools.choose(item.cost, self.pool, now_ms=self.now_ms, types=types), pools.Wait):
            self.reserved = pools.reserve(item.cost, self.pool, now_ms=self.now_ms, types=types)

    def park(self, items: Sequence[values.StoredMeasurement], *, next_ms: int, reason: str) -> None:
        self.parked += sum(self.store.park(_fences(items), next_ms=next_ms, reason=reason)) if items else 0

    def refuse(self, items: Sequence[values.StoredMeasurement], *, reason: str) -> None:
        self.refused += sum(self.store.refuse(_fences(items), reason=reason, now_ms=self.now_ms)) if items else 0

    def idle(self, reason: str, next_ms: int | None) -> Dispatched:
        return Dispatched("idle", None, reason, next_ms, self.parked, self.refused)

    def _look(self, releases_until_ms: int) -> pools.Pool:
        return pools.make_pool(self.store.accounts(now_ms=self.now_ms, releases_until_ms=releases_until_ms))


def dispatch_next(
    store: JobStore,
    atlas: Atlas,
    vault: Vault,
    settings: DispatchSettings,
    *,
    clock: Clock,
    chance: Callable[[], float],
) -> Dispatched:
    """Send at most one measurement. Those that wait for room at an account keep their places in the queue."""
    now_ms = clock.now_ms()
    items = store.next_to_send(now_ms=now_ms, users_max=USERS_MAX, each_max=EACH_MAX)
    if not items:
        return Dispatched("idle", None, "nothing is queued", store.next_send_ms())
    gates = read_gates(store, items)
    if gates.paused is not None and gates.paused.until_ms > now_ms:
        return Dispatched("idle", None, gates.paused.reason, gates.paused.until_ms)
    run = _Pass(store, vault, settings, now_ms=now_ms)
    found = _find(run, _candidates(run, items, gates))
    if isinstance(found, Dispatched) and send_order.may_fit_behind(
        items, run.pool, users_max=USERS_MAX, each_max=EACH_MAX, now_ms=now_ms
    ):
        # None of the first fits, and smaller ones may be behind them.
        items = store.next_to_send(now_ms=now_ms, users_max=USERS_MAX_WIDE, each_max=EACH_MAX_WIDE)
        gates = read_gates(store, items)
        found = _find(run, _candidates(run, items, gates))
    if isinstance(found, Dispatched):
        return found
    done = _send(found, store, atlas, settings, gates, clock=clock, chance=chance)
    return done._replace(parked=run.parked, refused=run.refused)


def _candidates(run: _Pass, items: Sequence[values.StoredMeasurement], gates: Gates) -> list[values.StoredMeasurement]:
    """Return the measurements that may go now, in the order in which they are tried; the others are refused or parked.

    Room is kept for a measurement that was passed for too long, if it does not fit now.
    """
    found = send_order.sort_queued(items, gates, now_ms=run.now_ms)
    run.refuse(found.overdue, reason=send_order.OVERDUE)
    for gate, those in found.gated.items():
        run.park(those, next_ms=gate.until_ms, reason=gate.reason)
    first = send_order.most_passed(found.may_go, now_ms=run.now_ms)
    if first is not None:
        run.keep_room(first)
    return send_order.in_turn(found.may_go, run.pool, first, now_ms=run.now_ms)


def _find(run: _Pass, items: Sequence[values.StoredMeasurement]) -> _Post | Dispatched:
    """Return the first that an account has room for, its intent written. Those before it are noted as passed."""
    waits: list[send_order.Waiting] = []
    for item in items:
        if (behind := send_order.waits_behind(item, waits)) is not None:
            waits.append((item, behind))
            continue
        found = _begin(run, item)
        match found:
            case _Post():
                if passed := send_order.passed_by(found.item, waits):
                    run.store.note_passed(_fences(passed), now_ms=run.now_ms)
                return found
            case values.Busy():
                return run.idle("as many are being sent as may be at once", run.now_ms + BUSY_MS)
            case pools.Refuse():
                run.refuse([item], reason=found.reason)
            case pools.Wait():
                waits.append((item, found))
                if pools.is_exhausted(run.pool, now_ms=run.now_ms):
                    break
            case _Passed():
                continue
            case _:
                assert_never(found)
    if not waits:
        return run.idle("others were faster", run.store.next_send_ms())
    reason, until_ms = send_order.next_look(waits, run.pool, now_ms=run.now_ms)
    return run.idle(cut(reason), until_ms)


def _begin(run: _Pass, item: values.StoredMeasurement) -> _Post | values.Busy | pools.Wait | pools.Refuse | _Passed:
    """Write the intent. The key is opened before, so that a key that cannot be opened costs nothing."""
    for _ in range(CHOICES_MAX + sum(len(one.keys) for one in run.pool.ready)):
        reserved = run.reserved if item.handle != run.reserved_for else None
        types = kinds_of(item.measurement)
        chosen = pools.choose(item.cost, run.pool, now_ms=run.now_ms, types=types, reserved=reserved)
        if not isinstance(chosen, pools.Send):
            return chosen
        key = open_key(run.store, run.vault, chosen.account, chosen.key)
        if isinstance(key, NoKey):
            run.pool = _without_key(run.pool, chosen, key.reason)
            continue
        begun = run.store.begin_send(
            item, account=chosen.account, key=chosen.key, sending_max=run.settings.sending_max, now_ms=run.now_ms
        )
        match begun:
            case values.StoredMeasurement():
                return _Post(begun, key)
            case Short():
                # Another process was faster: read this account again, and choose again.
                account = run.store.account(chosen.account, now_ms=run.now_ms)
                assert account is not None
                run.pool = pools.with_account(run.pool, account)
            case values.Busy():
                return begun
            case None:
                return _Passed()
            case _:
                assert_never(begun)
    return _Passed()


def _without_key(pool: pools.Pool, chosen: pools.Send, reason: str) -> pools.Pool:
    account = next(one.account for one in pool.ready if one.id == chosen.account)
    keys = [pools.Key(key.id, "quarantined", reason) if key.id == chosen.key else key for key in account.keys]
    return pools.with_account(pool, msgspec.structs.replace(account, keys=tuple(keys)))


def _send(
    post: _Post,
    store: JobStore,
    atlas: Atlas,
    settings: DispatchSettings,
    gates: Gates,
    *,
    clock: Clock,
    chance: Callable[[], float],
) -> Dispatched:
    """Make the one POST and write its answer. An exception leaves the intent, which is looked up later."""
    item = post.item
    marker = Marker(settings.site, item.job, item.index, item.attempt)
    body = request_body(item.measurement, marker, client=client_id(item.owner, settings.secret), now_ms=clock.now_ms())
    assert item.intent_ms is not None
    if not may_send(item.intent_ms, now_ms=clock.now_ms()):
        held_up = values.NotSent("its sender was held up; it is sent again")
        store.answer(item.handle, item.attempt, held_up, now_ms=clock.now_ms())
        return Dispatched("not_sent", item, held_up.reason, 0)
    answer = atlas.create(post.key.secret, item.measurement, body)
    now_ms = clock.now_ms()
    outcome, effect = judge_answer(item, answer, gates, settle_ms=settings.settle_ms, now_ms=now_ms, chance=chance())
    if not store.answer(item.handle, item.attempt, outcome, effect=effect, now_ms=now_ms):
        # It was given up meanwhile. A measurement that it may have created is looked up, or found as an orphan and
        # stopped.
        return Dispatched("unknown", item, "its answer came after it had been given up", 0)
    return _report(item, answer, outcome, effect)


def _report(
    item: values.StoredMeasurement, answer: Answer, outcome: values.SendOutcome, effect: values.RefusalEffect | None
) -> Dispatched:
    next_ms = effect.until_ms if isinstance(effect, values.Paused) else 0
    match outcome:
        case values.Sent():
            return Dispatched("sent", item, answer.warnings if isinstance(answer, Created) else "", next_ms)
        case values.Unsure():
            return Dispatched("unknown", item, outcome.reason, min(next_ms, outcome.look_ms))
        case values.NotSent():
            return Dispatched("not_sent", item, outcome.reason, next_ms)
        case values.Rejected():
            return Dispatched("rejected", item, outcome.reason, next_ms)
        case _:
            assert_never(outcome)


def _fences(items: Iterable[values.StoredMeasurement]) -> list[tuple[int, int]]:
    return [(item.handle, item.attempt) for item in items]
