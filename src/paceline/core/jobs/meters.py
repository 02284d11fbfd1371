"""Meters, holds and the ledger between them: plain arithmetic on values, so that a store can make each act atomic.

            hold              settle
    free ─────────► held ─────────────► spent
      ▲   refund     │                    │
      ├──────────────┘       expire       │
      └───────────────────────────────────┘

Every posting moves an amount from one of a meter's three pots to another, so nothing appears or disappears. ``held``
and ``spent`` are the sums of the postings into the pot less those out of it (``add_up``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

import msgspec

DAY_MS = 86_400_000
MINUTE_MS = 60_000
NEVER_MS = 1 << 60
FORECAST_MS_MAX = 3_650 * DAY_MS

Window = Literal["day", "sliding", "until_released"]
"""``day``: a calendar day in UTC, with a new meter each day. ``sliding``: spent amounts count for 24 hours.

``until_released``: nothing is ever spent; holds only come and go.
"""
Kind = Literal["hold", "settle", "refund", "expire"]
Pot = Literal["free", "held", "spent"]
MeterId = TypeVar("MeterId", str, int)
MOVES: dict[Kind, tuple[Pot, Pot]] = {
    "hold": ("free", "held"),
    "settle": ("held", "spent"),
    "refund": ("held", "free"),
    "expire": ("spent", "free"),
}


class MeterRelease(NamedTuple):
    """Amount that comes free at a time.

    For a sliding meter it is certain; for slots it is when they are expected back.
    """

    at_ms: int
    amount: int


class Meter(msgspec.Struct, frozen=True):
    """A counted limit. ``foreign``: use by others than us that the provider saw, as of its newest reading."""

    name: str
    limit: int
    window: Window
    spent: int = 0
    held: int = 0
    releases: tuple[MeterRelease, ...] = ()
    """Releases in order of time. For a sliding meter their amounts add up to ``spent``."""
    foreign: int = 0
    read_ms: int = 0


class Posting(NamedTuple):
    """One move between pots. ``meter``, ``hold`` and ``kind`` name it: made twice, it counts once.

    An expiry belongs to no hold; it is made when its release is taken off the meter, in the same act.
    """

    meter: str
    hold: str
    kind: Kind
    amount: int
    at_ms: int


class Hold(msgspec.Struct, frozen=True):
    """Reservation for one send, or for one measurement of a user: an amount on each of several meters.

    Closed lines are removed from ``lines``; a hold without lines is over.
    """

    id: str
    lines: dict[str, int]
    taken_ms: int


class Taken(NamedTuple):
    hold: Hold
    meters: dict[str, Meter]
    postings: tuple[Posting, ...]


class Short(NamedTuple):
    """Nothing was taken: this meter has too little room. ``room_ms``: when it will have enough, as far as is known."""

    meter: str
    need: int
    room: int
    limit: int
    room_ms: int


class Closed(NamedTuple):
    """Closed lines of a hold.

    ``overrun``: by meter, the use beyond what was held. It is not charged, but should be reported.
    """

    hold: Hold
    meters: dict[str, Meter]
    postings: tuple[Posting, ...]
    overrun: dict[str, int]


class Reading(NamedTuple):
    """Provider's figure of a meter. ``visible`` is how much of it is ours, fixed when the question was asked."""

    asked_ms: int
    figure: int
    visible: int


def used(meter: Meter) -> int:
    return meter.spent + meter.held + meter.foreign


def room(meter: Meter) -> int:
    """Return the room, never negative: a limit lowered below the use stops new holds and takes nothing back."""
    return max(0, meter.limit - used(meter))


def take(hold_id: str, amounts: Mapping[str, int], meters: Mapping[str, Meter], *, now_ms: int) -> Taken | Short:
    """Take all of the amounts, or nothing. The sliding meters must be up to date: see ``expire``."""
    for name, amount in amounts.items():
        assert amount >= 0
        meter = meters[name]
        if amount > room(meter):
            until_ms = room_ms(meter, amount, now_ms=now_ms)
            return Short(name, amount, room(meter), meter.limit, until_ms)
    after = {name: msgspec.structs.replace(meters[name], held=meters[name].held + n) for name, n in amounts.items()}
    postings = tuple(Posting(name, hold_id, "hold", amount, now_ms) for name, amount in amounts.items())
    return Taken(Hold(hold_id, dict(amounts), now_ms), after, postings)


def close(hold: Hold, actual: Mapping[str, int], meters: Mapping[str, Meter], *, now_ms: int) -> Closed:
    """Settle the lines named in ``actual`` on the real use, and refund the rest of them.

    Lines that are not open any more are passed over, so closing twice closes once. Lines that are not named stay open:
    credits can be settled when the results are in, while the slot is still taken.
    """
    after: dict[str, Meter] = {}
    postings: list[Posting] = []
    overrun: dict[str, int] = {}
    for name, amount in actual.items():
        if name not in hold.lines:
            continue
        assert amount >= 0
        held, meter = hold.lines[name], meters[name]
        spent = 0 if meter.window == "until_released" else min(amount, held)
        if amount > held:
            overrun[name] = amount - held
        after[name] = _spend(meter, spent, held, now_ms)
        postings.append(Posting(name, hold.id, "settle", spent, now_ms))
        postings.append(Posting(name, hold.id, "refund", held - spent, now_ms))
    lines = {name: amount for name, amount in hold.lines.items() if name not in after}
    return Closed(Hold(hold.id, lines, hold.taken_ms), after, tuple(postings), overrun)


def refund(hold: Hold, meters: Mapping[str, Meter], *, now_ms: int) -> Closed:
    """Refund all open lines in full: the send did not happen."""
    return close(hold, dict.fromkeys(hold.lines, 0), meters, now_ms=now_ms)


def expire(meter: Meter, *, now_ms: int) -> tuple[Meter, tuple[Posting, ...]]:
    """Free the amounts that have left the window of a sliding meter."""
    if meter.window != "sliding" or not meter.releases or meter.releases[0].at_ms > now_ms:
        return meter, ()
    gone = [release for release in meter.releases if release.at_ms <= now_ms]
    amount = sum(release.amount for release in gone)
    after = msgspec.structs.replace(meter, spent=meter.spent - amount, releases=meter.releases[len(gone) :])
    return after, (Posting(meter.name, "", "expire", amount, now_ms),)


def room_ms(meter: Meter, amount: int, *, now_ms: int) -> int:
    """Return when there will be room for the amount: now, at a known release, or never as far as is known."""
    if amount <= room(meter):
        return now_ms
    # This is more than the amount less the room if the use is above the limit: that excess has to come free first.
    missing = used(meter) + amount - meter.limit
    for release in meter.releases:
        missing -= release.amount
        if missing <= 0:
            return max(release.at_ms, now_ms)
    return NEVER_MS


def room_at(meter: Meter, at_ms: int) -> int:
    """Return how much room there will be at that time if nothing more is taken; negative if the limit is exceeded."""
    return meter.limit - used(meter) + sum(release.amount for release in meter.releases if release.at_ms <= at_ms)


def sync(meter: Meter, reading: Reading) -> Meter:
    """Return the meter with the provider's newest reading.

    A reading does not include what the provider cannot see yet, so it never replaces ``spent`` or ``held``. It can only
    show that there is more use than ours: ``foreign`` is its figure less the part of ours that it may have counted.
    That is ``max(local, remote)`` at the moment of asking; later holds are added on top of it. ``visible`` was fixed
    when the question was asked, so it does not matter how many holds come and go before the answer is applied; and of
    several readings the one asked last counts, in whatever order they arrive.
    """
    if reading.asked_ms < meter.read_ms:
        return meter
    foreign = max(0, reading.figure - reading.visible)
    if reading.asked_ms == meter.read_ms:
        foreign = max(foreign, meter.foreign)
    return msgspec.structs.replace(meter, foreign=foreign, read_ms=reading.asked_ms)


def lagging_visible(meter: Meter) -> int:
    """Return how much of our credits or results of a day the provider may have counted: at most all of it.

    RIPE books in batches, hours late. To subtract only what it has surely booked would count our own use twice for
    those hours and stop a healthy account, so use by others is noticed once it is more than what RIPE lags behind.
    """
    return meter.spent + meter.held


def refused(meter: Meter, need: int, *, now_ms: int) -> Meter:
    """Return the meter after the provider refused ``need`` because of it, and the hold for it was refunded.

    There is less room than that, whatever we counted, until a reading that is asked later says otherwise.
    """
    foreign = max(meter.foreign, meter.limit - meter.spent - meter.held - need + 1)
    return msgspec.structs.replace(meter, foreign=foreign, read_ms=max(meter.read_ms, now_ms))


class CreditBalance(NamedTuple):
    """Credits that an account has left at RIPE, which no new day restores.

    ``free``: less our use that is not booked yet. ``reported``: RIPE's newest figure; None if RIPE only said that it is
    too little.
    """

    free: int
    reported: int | None
    read_ms: int


def read_balance(known: CreditBalance | None, spend: Meter, reading: Reading) -> CreditBalance:
    """Return RIPE's figure, less what we hold and what we spent beyond ``visible``.

    ``visible`` is what RIPE has booked of the past day. RIPE books hours late, so unbooked use is still in its figure.
    ``spend`` is the account's meter of credits when the reading is applied: what was taken while RIPE answered is
    subtracted, too.
    """
    if known is not None and reading.asked_ms < known.read_ms:
        return known
    unbooked = spend.held + max(0, spend.spent - reading.visible)
    return CreditBalance(reading.figure - unbooked, reading.figure, reading.asked_ms)


def refuse_balance(known: CreditBalance | None, need: int, *, now_ms: int) -> CreditBalance:
    """Return the balance after RIPE refused ``need`` for lack of credits.

    It is below ``need``, until a reading that is asked later.
    """
    free = need - 1 if known is None else min(known.free, need - 1)
    return CreditBalance(free, None if known is None else known.reported, now_ms)


def balance_ends_ms(balance: CreditBalance, spend: Meter, *, now_ms: int) -> int | None:
    """Return when the balance is used up if the use of the last 24 hours goes on; None: nothing is used.

    Use by us and by others counts. ``spend`` is the account's sliding meter of credits. A time further ahead than
    FORECAST_MS_MAX is None, too.
    """
    used_a_day = spend.spent + spend.held + max(0, spend.foreign)
    if not used_a_day:
        return None
    left_ms = max(0, balance.free) * DAY_MS // used_a_day
    return now_ms + left_ms if left_ms <= FORECAST_MS_MAX else None


def day_name(name: str, *, now_ms: int) -> str:
    """Return the name of a calendar day's meter in UTC. A hold stays on the day it was taken, and is settled there."""
    return f"{name}@{now_ms // DAY_MS}"


def resets_ms(now_ms: int) -> int:
    """Return when the next day's meter begins."""
    return (now_ms // DAY_MS + 1) * DAY_MS


class Balance(NamedTuple):
    held: int = 0
    spent: int = 0


class PostingSums(NamedTuple):
    """Sums of the postings: each meter's balance, and each hold's lines that are not closed."""

    balances: dict[str, Balance]
    open_lines: dict[tuple[str, str], int]


def add_up(postings: Sequence[Posting]) -> PostingSums:
    """Return the books from the postings alone. Applying one posting twice counts it once."""
    lines: dict[tuple[str, str], int] = {}
    seen: set[tuple[str, str, Kind]] = set()
    counted: list[tuple[str, Kind, int]] = []
    for posting in postings:
        name = (posting.meter, posting.hold, posting.kind)
        if name in seen and posting.kind != "expire":
            continue
        seen.add(name)
        counted.append((posting.meter, posting.kind, posting.amount))
        if posting.kind != "expire":
            line = (posting.hold, posting.meter)
            lines[line] = lines.get(line, 0) + (posting.amount if posting.kind == "hold" else -posting.amount)
    return PostingSums(balances(counted), {line: amount for line, amount in lines.items() if amount})


def balances(amounts: Iterable[tuple[MeterId, Kind, int]]) -> dict[MeterId, Balance]:
    """Return the held and spent sums of each meter after these amounts, or sums of amounts, were posted to it."""
    found: dict[MeterId, Balance] = {}
    for meter, kind, amount in amounts:
        source, target = MOVES[kind]
        held, spent = found.get(meter, Balance())
        held += amount * ((target == "held") - (source == "held"))
        spent += amount * ((target == "spent") - (source == "spent"))
        found[meter] = Balance(held, spent)
    return found


def _spend(meter: Meter, spent: int, held: int, now_ms: int) -> Meter:
    releases = meter.releases
    if meter.window == "sliding" and spent:
        # By the minute, rounded up: a day has a bounded number of releases, and nothing is free too early.
        at_ms = (now_ms + DAY_MS + MINUTE_MS - 1) // MINUTE_MS * MINUTE_MS
        releases = _add_release(releases, MeterRelease(at_ms, spent))
    return msgspec.structs.replace(meter, spent=meter.spent + spent, held=meter.held - held, releases=releases)


def _add_release(releases: tuple[MeterRelease, ...], one: MeterRelease) -> tuple[MeterRelease, ...]:
    if releases and releases[-1].at_ms == one.at_ms:
        return (*releases[:-1], MeterRelease(one.at_ms, releases[-1].amount + one.amount))
    if not releases or releases[-1].at_ms < one.at_ms:
        return (*releases, one)
    return tuple(sorted((*releases, one)))
