"""Sends the next measurement: whose turn it is, with which account and key, and what follows from RIPE's answer.

The intent is written before the one POST, and it is the judge: the pool here is only a good guess at who has room.
Whatever stops the process after the intent leaves it there, and ``steps.lookup`` finds out what became of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Literal, NamedTuple, assert_never

import msgspec

from paceline.core.atlas import Answer, Created, Marker, client_id, request_body
from paceline.core.cost import Cost
from paceline.core.measurement import is_overdue, targets_of
from paceline.core.meters import Short
from paceline.core.pool import LOOK_AGAIN_MS, Key, Pool, Refuse, Send, Wait, choose, make_pool, pick, with_account
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
CHOICES_MAX = 32
"""How often others may be faster before one measurement is passed over; keys that do not open come on top."""
BUSY_MS = 250
INTENT_MS_MAX = 10_000
"""A sender that was held up for longer since its intent does not send: others may have given it up."""
NAMED_ACCOUNTS_MAX = 3
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
    """The pool as one pass sees it, and what it has put aside."""

    def __init__(self, store: JobStore, vault: Vault, desk: Desk, *, now_ms: int) -> None:
        self.store, self.vault, self.desk, self.now_ms = store, vault, desk, now_ms
        self.pool = make_pool(store.accounts(now_ms=now_ms, releases_until_ms=now_ms + LOOK_AGAIN_MS))
        self.parked = self.refused = 0

    def park(self, items: Sequence[StoredMeasurement], *, next_ms: int, reason: str) -> None:
        self.parked += sum(self.store.park(_fences(items), next_ms=next_ms, reason=reason)) if items else 0

    def refuse(self, items: Sequence[StoredMeasurement], *, reason: str) -> None:
        self.refused += sum(self.store.refuse(_fences(items), reason=reason, now_ms=self.now_ms)) if items else 0

    def idle(self, reason: str, next_ms: int | None) -> Dispatched:
        return Dispatched("idle", None, reason, next_ms, self.parked, self.refused)


def dispatch_next(
    store: JobStore, atlas: Atlas, vault: Vault, desk: Desk, *, clock: Clock, chance: Callable[[], float]
) -> Dispatched:
    """Sends at most one measurement, after putting aside what cannot go now before it."""
    now_ms = clock.now_ms()
    items = store.next_to_send(now_ms=now_ms, users_max=USERS_MAX, each_max=EACH_MAX)
    if not items:
        return Dispatched("idle", None, "nothing is queued", store.next_send_ms())
    wanted = sorted(frozenset().union(*(targets_of(item.measurement) for item in items)))
    paused, full = store.gates(wanted)
    gates = Gates(paused, {one.target: one for one in full})
    if paused is not None and paused.until_ms > now_ms:
        return Dispatched("idle", None, paused.reason, paused.until_ms)
    run = _Pass(store, vault, desk, now_ms=now_ms)
    found = _find(run, _in_turn(run.pool, _sift(run, items, gates), now_ms=now_ms))
    if isinstance(found, Dispatched):
        return found
    done = _send(found, store, atlas, desk, gates, clock=clock, chance=chance)
    return done._replace(parked=run.parked, refused=run.refused)


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


def _in_turn(pool: Pool, items: Sequence[StoredMeasurement], *, now_ms: int) -> list[StoredMeasurement]:
    """Users in the order of the line; of each the one first that keeps the accounts even (``core.pool.pick``)."""
    ordered: list[StoredMeasurement] = []
    for _, group in groupby(items, key=lambda item: item.owner):
        those = list(group)
        ordered.append(those.pop(pick([item.cost for item in those], pool, now_ms=now_ms)))
        ordered += those
    return ordered


def _find(run: _Pass, items: Sequence[StoredMeasurement]) -> _Post | Dispatched:
    """The first that an account has room for, its intent written; those before it have stepped aside."""
    waits: list[_Waiting] = []
    for place, item in enumerate(items):
        if (behind := _behind(item.cost, waits)) is not None:
            waits.append((item, behind))
            continue
        found = _begin(run, item)
        match found:
            case _Post():
                _park_waiting(run, waits)
                return found
            case Busy():
                _park_waiting(run, waits)
                return run.idle("as many are being sent as may be at once", run.now_ms + BUSY_MS)
            case Refuse():
                run.refuse([item], reason=found.reason)
            case Wait():
                waits.append((item, found))
                if _exhausted(run.pool, now_ms=run.now_ms):
                    return _wait_for_all(run, waits, items[place + 1 :])
            case _Passed():
                continue
            case _:
                assert_never(found)
    _park_waiting(run, waits)
    reason = _wait_reason(waits[0][1]) if waits else "others were faster"
    return run.idle(reason, run.store.next_send_ms())


def _begin(run: _Pass, item: StoredMeasurement) -> _Post | Busy | Wait | Refuse | _Passed:
    """The key is opened before the intent, so that one that does not open costs nothing."""
    for _ in range(CHOICES_MAX + sum(len(one.keys) for one in run.pool.ready)):
        chosen = choose(item.cost, run.pool, now_ms=run.now_ms)
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


def _exhausted(pool: Pool, *, now_ms: int) -> bool:
    """Whether not even the smallest measurement could go: then nobody else needs to be looked at."""
    return not any(
        one.slots > 0 and one.results > 0 and one.credits > 0 and one.closed_until_ms <= now_ms for one in pool.ready
    )


def _wait_for_all(run: _Pass, waits: list[_Waiting], others: Sequence[StoredMeasurement]) -> Dispatched:
    """Only the first of each user says why it waits; the rest stay queued, so a pass costs the same however many."""
    seen = {item.owner for item, _ in waits}
    for item in others:
        if item.owner in seen:
            continue
        seen.add(item.owner)
        chosen = choose(item.cost, run.pool, now_ms=run.now_ms)
        if isinstance(chosen, Refuse):
            run.refuse([item], reason=chosen.reason)
        elif isinstance(chosen, Wait):
            waits.append((item, chosen))
    _park_waiting(run, waits)
    return run.idle(_wait_reason(waits[0][1]), min(wait.until_ms for _, wait in waits))


def _behind(cost: Cost, waits: Iterable[_Waiting]) -> Wait | None:
    """What takes at least as much of every meter as one that waits has to wait as well."""
    for item, wait in waits:
        least = item.cost
        if (
            cost.concurrent >= least.concurrent
            and cost.daily_results >= least.daily_results
            and cost.daily_credits >= least.daily_credits
        ):
            return wait
    return None


def _park_waiting(run: _Pass, waits: Iterable[_Waiting]) -> None:
    groups: dict[tuple[int, str], list[StoredMeasurement]] = {}
    for item, wait in waits:
        groups.setdefault((wait.until_ms, _wait_reason(wait)), []).append(item)
    for (until_ms, reason), items in groups.items():
        run.park(items, next_ms=until_ms, reason=reason)


def _wait_reason(wait: Wait) -> str:
    """With what is in the way at some accounts."""
    named = [f"{account}: {reason}" for account, reason in wait.accounts[:NAMED_ACCOUNTS_MAX]]
    more = len(wait.accounts) - len(named)
    text = " | ".join(named) + (f" | and {more} more" if more else "")
    return cut(f"{wait.reason} ({text})" if text else wait.reason)


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
    if abs(clock.now_ms() - item.intent_ms) > INTENT_MS_MAX:
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
