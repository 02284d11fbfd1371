"""Choice of the account and key that a measurement is sent with, or until when it waits and why.

Quotas belong to accounts, so accounts are balanced; the keys of one account take turns. The account that used the
smallest share of its own day goes first, so use is even where limits are equal and in proportion where they are not.
Accounts are kept in that order: most decisions look at the first one only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from paceline.core.backoff import pause_ms
from paceline.core.jobs.cost import Cost
from paceline.core.jobs.meters import NEVER_MS, CreditBalance, Meter, room_at, room_ms, used

LOOK_AGAIN_MS = 30_100
"""Longest time until full accounts are looked at again, if nothing wakes the dispatcher."""
PASSED_MS_MAX = 600_000
"""Time for which smaller measurements may pass one that does not fit: as long as a one-off holds its slot at RIPE.

After that, room is kept free for the one that was passed.
"""
TYPE_BARRED_MS = 86_400_000
"""Time for which an account is not asked for a type of measurement that RIPE did not let it make."""
REASONS_MAX = 3
KEPT_FREE = "its room is kept for a larger measurement that has waited longer"
LOOK_AGAIN_MS_MIN = 1_000
"""Shortest time until accounts are looked at again: a slot that is overdue may be free any moment, or RIPE lags."""
TARGET_PAUSE_MS = 60_000
TARGET_PAUSE_MS_MAX = 1_800_000
BACKOFF_MS = 5_000
BACKOFF_MS_MAX = 600_000

Rank = tuple[float, float, int]
KeyState = Literal["ready", "disabled", "quarantined"]


class Key(msgspec.Struct, frozen=True, gc=False):
    id: str
    state: KeyState = "ready"
    reason: str = ""


class Barred(NamedTuple):
    """Type of measurement that RIPE does not let the account make; after a time RIPE is asked again."""

    type: str
    until_ms: int
    reason: str


class Account(msgspec.Struct, frozen=True):
    """An account's settings and current state. ``sends`` counts its sends, by which its keys take turns."""

    id: str
    concurrent: Meter
    results: Meter
    credits: Meter
    keys: tuple[Key, ...]
    enabled: bool = True
    closed_until_ms: int = 0
    """Time until which it is not used, because of ``reason``."""
    reason: str = ""
    sends: int = 0
    balance: CreditBalance | None = None
    """Credit balance at RIPE; None: RIPE has not told it yet."""
    barred: tuple[Barred, ...] = ()


class AccountStanding(msgspec.Struct, frozen=True, gc=False):
    """An account, reduced to what a decision needs.

    ``rank`` orders the pool: the used share of its day, then of its slots, then its number of sends.
    """

    rank: Rank
    id: str
    slots: int
    results: int
    credits: int
    """Room left on each of its meters; of credits, on the smaller of the day and the balance."""
    keys: tuple[str, ...]
    """Keys that can be used."""
    turn: int
    closed_until_ms: int
    account: Account


class Pool(msgspec.Struct, frozen=True):
    """All accounts: ``ready`` in order of rank; ``unusable`` are those that cannot be used, each with its reason."""

    ready: tuple[AccountStanding, ...]
    unusable: tuple[tuple[Account, str], ...] = ()


class Gate(NamedTuple):
    """Time before which the measurement is not sent: its target is full, or RIPE asked for a pause."""

    until_ms: int
    reason: str


class Send(NamedTuple):
    account: str
    key: str


class Wait(NamedTuple):
    """Decision to wait.

    ``until_ms``: when to look again. ``room_ms``: when there is room as far as is known, which may be later.
    """

    until_ms: int
    reason: str
    room_ms: int = NEVER_MS
    accounts: tuple[tuple[str, str], ...] = ()
    """Accounts, each with what prevents a send there."""


class Refuse(NamedTuple):
    """Decision that it can never be sent: no account's limits are large enough, or no account may make its type."""

    reason: str


class Reservation(NamedTuple):
    """Room at one account that others must leave for a measurement that was passed for too long."""

    account: str
    cost: Cost
    at_ms: int
    """Time at which the account has room for it, as far as is known."""


def make_pool(accounts: Iterable[Account]) -> Pool:
    ready, unusable = [], []
    for account in accounts:
        if reason := unusable_reason(account):
            unusable.append((account, reason))
        else:
            ready.append(standing_of(account))
    return Pool(tuple(sorted(ready, key=_rank)), tuple(unusable))


def unusable_reason(account: Account) -> str:
    """Return why the account cannot be used until somebody changes something; empty if it can."""
    if not account.enabled:
        return "disabled"
    if any(key.state == "ready" for key in account.keys):
        return ""
    if not account.keys:
        return "it has no key"
    quarantined = [key for key in account.keys if key.state == "quarantined"]
    if not quarantined:
        return "all its keys are disabled"
    return f"its keys are quarantined: {quarantined[0].reason}"


def standing_of(account: Account) -> AccountStanding:
    slots, results, spend = account.concurrent, account.results, account.credits
    slots_used, results_used, spend_used = used(slots), used(results), used(spend)
    # The sum and not the larger share, so that credits and results are both even, whichever a measurement needs more
    # of.
    day = results_used / max(results.limit, 1) + spend_used / max(spend.limit, 1)
    return AccountStanding(
        rank=(day, slots_used / max(slots.limit, 1), account.sends),
        id=account.id,
        slots=slots.limit - slots_used,
        results=results.limit - results_used,
        credits=min(spend.limit - spend_used, account.balance.free if account.balance else NEVER_MS),
        keys=tuple([key.id for key in account.keys if key.state == "ready"]),
        turn=account.sends,
        closed_until_ms=account.closed_until_ms,
        account=account,
    )


def with_account(pool: Pool, account: Account) -> Pool:
    """Return the pool after one account changed, in order again."""
    ready = [one for one in pool.ready if one.id != account.id]
    unusable = pool.unusable
    if unusable:
        unusable = tuple(pair for pair in unusable if pair[0].id != account.id)
    if reason := unusable_reason(account):
        return Pool(tuple(ready), (*unusable, (account, reason)))
    standing = standing_of(account)
    ready.insert(_place(ready, standing.rank), standing)
    return Pool(tuple(ready), unusable)


def choose(
    cost: Cost,
    pool: Pool,
    *,
    now_ms: int,
    types: frozenset[str] = frozenset(),
    gates: Sequence[Gate] = (),
    reserved: Reservation | None = None,
) -> Send | Wait | Refuse:
    """Return the account and key to send with, or why not. A closed gate comes first: it is closed for all accounts.

    ``types`` are those of the measurement: an account that may not make one of them is left out.
    """
    if (gate := closed_gate(gates, now_ms=now_ms)) is not None:
        return Wait(gate.until_ms, gate.reason, gate.until_ms)
    slots, results, spend = cost.concurrent, cost.daily_results, cost.daily_credits
    for one in pool.ready:
        if slots <= one.slots and results <= one.results and spend <= one.credits and one.closed_until_ms <= now_ms:
            if reserved is not None and not _leaves_room(cost, one, reserved):
                continue
            if one.account.barred and bar_of(one.account, types, now_ms=now_ms) is not None:
                continue
            return Send(one.id, one.keys[one.turn % len(one.keys)])
    return _explain(cost, pool, types, now_ms, reserved)


def closed_gate(gates: Iterable[Gate], *, now_ms: int) -> Gate | None:
    """Return the first of the gates that is still closed."""
    return next((gate for gate in gates if gate.until_ms > now_ms), None)


def bar_of(account: Account, types: frozenset[str], *, now_ms: int) -> Barred | None:
    """Return the bar on one of the types, if there is one. A bar that ends too late was written by a wrong clock."""
    for one in account.barred:
        if one.type in types and 0 < one.until_ms - now_ms <= TYPE_BARRED_MS:
            return one
    return None


def was_passed_too_long(passed_ms: int | None, *, now_ms: int) -> bool:
    """Return whether others have been sent before a measurement for too long, since ``passed_ms``.

    If the clock was set back since, it counts as too long.
    """
    return passed_ms is not None and not 0 <= now_ms - passed_ms < PASSED_MS_MAX


def reserve(cost: Cost, pool: Pool, *, now_ms: int, types: frozenset[str] = frozenset()) -> Reservation | None:
    """Return room at the account that will have enough of it first; None if it is not known when.

    The pool must have its releases.
    """
    found = [
        (_full_reason(cost, one.account, now_ms)[1], number)
        for number, one in enumerate(pool.ready)
        if bar_of(one.account, types, now_ms=now_ms) is None
    ]
    at_ms, number = min(found, default=(NEVER_MS, 0))
    return Reservation(pool.ready[number].id, cost, at_ms) if at_ms < NEVER_MS else None


def is_exhausted(pool: Pool, *, now_ms: int) -> bool:
    """Return whether not even the smallest measurement could be sent: then no other measurement is looked at."""
    return not any(
        one.slots > 0 and one.results > 0 and one.credits > 0 and one.closed_until_ms <= now_ms for one in pool.ready
    )


def pick(costs: Sequence[Cost], pool: Pool, *, now_ms: int) -> int:
    """Return the position of the next of a user's first waiting measurements, so that accounts are used evenly.

    When slots are scarce, the account is the one that gets a slot back, but the measurement can be chosen: a large one
    if the account is behind the others, a small one if it is ahead. Every second send of an account takes the first
    measurement, so that none waits for long.
    """
    first = next((one for one in pool.ready if one.slots > 0 and one.closed_until_ms <= now_ms), None)
    if first is None or first.turn % 2 == 0 or len(costs) < 2:
        return 0
    behind = sum(one.rank[0] for one in pool.ready) / len(pool.ready) - first.rank[0]
    results, spend = max(first.account.results.limit, 1), max(first.account.credits.limit, 1)
    apart = [abs(cost.daily_results / results + cost.daily_credits / spend - behind) for cost in costs]
    return apart.index(min(apart))


def target_gate(target: str, *, refusals: int, now_ms: int, words: str, chance: float) -> Gate:
    """Return the gate of a full target, closed longer after each refusal.

    RIPE counts all accounts together, so no account is closed.
    """
    wait_ms = pause_ms(refusals, base_ms=TARGET_PAUSE_MS, cap_ms=TARGET_PAUSE_MS_MAX, jitter="half", chance=chance)
    return Gate(now_ms + wait_ms, f"the target {target} is full: {words}")


def backoff_until_ms(refusals: int, *, now_ms: int, retry_after_ms: int | None, chance: float) -> int:
    """Return when to ask RIPE again after it said "too many requests" for the nth time in a row."""
    if retry_after_ms is not None:
        return now_ms + retry_after_ms
    return now_ms + pause_ms(refusals, base_ms=BACKOFF_MS, cap_ms=BACKOFF_MS_MAX, jitter="half", chance=chance)


def _place(ready: Sequence[AccountStanding], rank: Rank) -> int:
    low, high = 0, len(ready)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if ready[middle].rank < rank else (low, middle)
    return low


def _rank(standing: AccountStanding) -> Rank:
    return standing.rank


def _leaves_room(cost: Cost, one: AccountStanding, reserved: Reservation) -> bool:
    """Return whether the account has room for both at the reserved time, if amounts taken now are not back by then."""
    if one.id != reserved.account:
        return True
    balance = one.account.balance
    if balance is not None and cost.daily_credits + reserved.cost.daily_credits > balance.free:
        return False
    pairs = zip(_needs(cost, one.account), _needs(reserved.cost, one.account), strict=True)
    return all(need + kept <= room_at(meter, reserved.at_ms) for (need, meter), (kept, _) in pairs)


def _explain(cost: Cost, pool: Pool, types: frozenset[str], now_ms: int, reserved: Reservation | None) -> Wait | Refuse:
    accounts = [one.account for one in pool.ready] + [account for account, _ in pool.unusable]
    if not accounts:
        return Wait(now_ms + LOOK_AGAIN_MS, "there is no account yet")
    if reason := _too_large(cost, accounts):
        return Refuse(reason)
    if reason := _all_barred(accounts, types, now_ms):
        return Refuse(reason)
    reasons = [(account.id, reason) for account, reason in pool.unusable]
    earliest_ms = NEVER_MS
    for one in pool.ready:
        reason, until_ms = _full_reason(cost, one.account, now_ms)
        if (bar := bar_of(one.account, types, now_ms=now_ms)) is not None:
            reason, until_ms = f"it may not make {bar.type} measurements: {bar.reason}", bar.until_ms
        if not reason and reserved is not None:
            reason, until_ms = KEPT_FREE, reserved.at_ms
        reasons.append((one.id, reason))
        earliest_ms = min(earliest_ms, until_ms)
    until_ms = min(max(earliest_ms, now_ms + LOOK_AGAIN_MS_MIN), now_ms + LOOK_AGAIN_MS)
    text = "every account is full" if pool.ready else "no account can be used"
    return Wait(until_ms, f"{text}: {_summary(reasons)}", earliest_ms, tuple(sorted(reasons)))


def _summary(reasons: Sequence[tuple[str, str]]) -> str:
    """Return the reasons without the accounts' names, because ordinary users are shown them, too."""
    counts = Counter(reason for _, reason in reasons).most_common()
    texts = [f"{reason} ({count} accounts)" if count > 1 else reason for reason, count in counts[:REASONS_MAX]]
    more = len(counts) - len(texts)
    return " | ".join(texts) + (f" | and {more} more reasons" if more else "")


def _all_barred(accounts: Sequence[Account], types: frozenset[str], now_ms: int) -> str:
    """Return why no account may make a measurement of these types; empty if an enabled account may."""
    bars = [bar_of(account, types, now_ms=now_ms) for account in accounts if account.enabled]
    found = [bar for bar in bars if bar is not None]
    if not found or len(found) < len(bars):
        return ""
    return f"no account may make {found[0].type} measurements: {found[0].reason}"


def _too_large(cost: Cost, accounts: Sequence[Account]) -> str:
    """Return why no account could ever take it, even if nothing were in use; empty if one could."""
    if any(all(need <= meter.limit for need, meter in _needs(cost, account)) for account in accounts):
        return ""
    largest = max(accounts, key=lambda account: account.credits.limit)
    need, meter, word = next(
        (need, meter, word)
        for (need, meter), word in zip(_needs(cost, largest), _WORDS, strict=True)
        if need > meter.limit
    )
    return f"no account allows it: it takes {need} {word}, and the largest limit is {meter.limit}"


def _full_reason(cost: Cost, account: Account, now_ms: int) -> tuple[str, int]:
    """Return why the account has no room, and when it will have, as far as is known."""
    reasons, until_ms = [], now_ms
    if account.closed_until_ms > now_ms:
        reasons.append(account.reason or "backing off")
        until_ms = account.closed_until_ms
    for (need, meter), word in zip(_needs(cost, account), _WORDS, strict=True):
        if used(meter) + need > meter.limit:
            reasons.append(f"{word}: {used(meter)} of {meter.limit} in use, {need} needed")
            until_ms = max(until_ms, NEVER_MS if need > meter.limit else room_ms(meter, need, now_ms=now_ms))
    if account.balance is not None and cost.daily_credits > account.balance.free:
        left = max(0, account.balance.free)
        reasons.append(f"credit balance at RIPE: {left} left, {cost.daily_credits} needed")
        until_ms = NEVER_MS
    return "; ".join(reasons), until_ms


_WORDS = ("concurrent measurements", "results a day", "credits a day")


def _needs(cost: Cost, account: Account) -> tuple[tuple[int, Meter], ...]:
    return (
        (cost.concurrent, account.concurrent),
        (cost.daily_results, account.results),
        (cost.daily_credits, account.credits),
    )
