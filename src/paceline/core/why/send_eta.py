"""Send time of a waiting measurement: what is before it is played forward against the room of the accounts.

It is played once as if every send took no time and each slot came back as soon as it can, and once as if every send
took all the time that it has and each slot came back as late as it should. Both suppose that nothing new comes, that
nobody changes anything, that RIPE takes what it is sent, and that measurements at RIPE run their full time.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import NamedTuple

from paceline.core.jobs.atlas import ONEOFF_MS, STOP_DEADLINE_MS, expected_end_ms
from paceline.core.jobs.cost import Cost
from paceline.core.jobs.measurement import is_oneoff, span_s
from paceline.core.jobs.meters import DAY_MS, MINUTE_MS, NEVER_MS, Meter, MeterRelease, used
from paceline.core.jobs.pool import PASSED_MS_MAX, Account, bar_of
from paceline.core.jobs.values import StoredMeasurement
from paceline.core.leases import POST_MS_MAX, SEND_LEASE_MS
from paceline.core.why.chain import Eta
from paceline.core.why.send_line import LINE_EACH_MAX, SendLine, WaitingSend, in_order, place_of

EARLY_MS = 60_000
"""Time by which a slot may come back early: RIPE was seen to give back the slot of a one-off after 589 seconds."""
LATE_MS = 360_000
"""Time by which a slot may come back late: RIPE has needed 15 minutes instead of 10, plus a minute to see the end."""
OVERDUE_MS = STOP_DEADLINE_MS + 2 * MINUTE_MS
"""Longest time until an overdue slot is back: a measurement that does not end by itself is stopped at its deadline."""
LOST_MS = SEND_LEASE_MS + 10_000
"""Time after which a send without an answer is given up."""
SLOTS_PLAYED_MAX = 20_000
"""Maximum number of sends that are played forward to say when there can be a slot at the earliest."""
PLAYED_MAX = 2_000
"""Maximum number of sends that are played forward; those behind them are assumed to take as long."""


class _Load(NamedTuple):
    """Amounts that a send takes of an account, and the longest time for which its slots are taken."""

    cost: Cost
    holds_ms: int


class SendForecast:
    """Forecasts of sends. The parts played forward once serve all waiting measurements."""

    def __init__(self, line: SendLine, *, now_ms: int) -> None:
        self._line, self._now_ms = line, now_ms
        self._items = in_order(line, now_ms=now_ms)
        self._accounts = [one.account for one in line.pool.ready]
        self._late: dict[int, _LatePlay] = {}
        self._soon: dict[int, _SoonPlay] = {}

    def eta(self, one: WaitingSend) -> Eta | None:
        """Return when it is sent. None: nothing known would end its wait, or its stop time comes first."""
        found = self._eta(one)
        if found is None or one.stop_ms is None:
            return found
        last_ms = one.stop_ms - 1
        return Eta(found.from_ms, min(found.to_ms, last_ms)) if found.from_ms <= last_ms else None

    def _eta(self, one: WaitingSend) -> Eta | None:
        line, now_ms = self._line, self._now_ms
        paused_ms = line.paused.until_ms if line.paused is not None else 0
        start_ms = max(one.open_ms, paused_ms, now_ms)
        alone_ms = min((_soonest_ms(account, one, now_ms) for account in self._accounts), default=NEVER_MS)
        if alone_ms >= NEVER_MS or not any(_is_possible(account, one.cost) for account in self._accounts):
            return None
        soon_ms = max(start_ms, alone_ms)
        if self._is_ample(one):
            return Eta(soon_ms, max(soon_ms, self._in_turn_ms(one, start_ms)))
        equal = self._is_equal(one)
        count = self._most_before(one) if equal else line.queued + line.not_queued - 1
        late_ms = self._play(start_ms).at(count, one.cost)
        if late_ms is None:
            return None
        if equal:
            soon_ms = max(soon_ms, self._slot_ms(one))
        else:
            late_ms += self._packed_ms(one)
        return Eta(soon_ms, max(soon_ms, late_ms))

    def _in_turn_ms(self, one: WaitingSend, start_ms: int) -> int:
        """Return the latest send time if there is room for all: after the sends before it."""
        busy_ms = LOST_MS if self._line.sending else 0
        return start_ms + busy_ms + self._most_before(one) * POST_MS_MAX

    def _most_before(self, one: WaitingSend) -> int:
        """Return how many sends may come before it, if all have room.

        A measurement that comes back to the queue takes its old place, and may be of the same user. Of a user's
        measurements of different size the dispatcher may take a later one first, so that accounts are used evenly. One
        that was passed for too long goes before all.
        """
        line = self._line
        own = next((user for user in line.users if user.owner == one.owner), None)
        before, not_queued = one.before, line.not_queued - one.parked
        if own is not None and any(item.cost != one.cost for item in own.first):
            before = max(before, own.queued - (not one.parked))
        passed = sum(item.passed_ms is not None for item in self._items if item.owner != one.owner)
        hidden = line.unread if before + not_queued or own is None else 0
        return place_of(line, one.owner, before + not_queued) + not_queued + passed + hidden

    def _packed_ms(self, one: WaitingSend) -> int:
        """Return how much longer it may wait beside others of another size: until an account is free of them.

        Those may go to the account that it would fit into; after a while room is kept free for it.
        """
        longest_ms = max(load.holds_ms for load in [_Load(one.cost, ONEOFF_MS + LATE_MS), *self._loads()])
        results, spend = self._total(one)[1:]
        rooms = [room for room in self._line.pool.ready if _is_possible(room.account, one.cost)]
        ample = any(results <= room.results and spend <= room.credits and not room.account.barred for room in rooms)
        return longest_ms + PASSED_MS_MAX + (0 if ample else DAY_MS + MINUTE_MS)

    def _is_ample(self, one: WaitingSend) -> bool:
        """Return whether one account has room for everything that waits, so that nothing waits for an account."""
        line = self._line
        slots, results, spend = self._total(one)
        return any(
            slots <= room.slots and results <= room.results and spend <= room.credits
            for room in line.pool.ready
            if room.closed_until_ms <= self._now_ms and not room.account.barred
        )

    def _total(self, one: WaitingSend) -> tuple[int, int, int]:
        """Return how much all waiting measurements can take of an account: slots, results and credits."""
        costs = [item.cost for item in self._items]
        most = _most([*costs, one.cost])
        unknown = max(self._line.queued + self._line.not_queued + 1 - len(costs), 0)
        amounts = zip(_need(most), *(_need(cost) for cost in costs), strict=True)
        slots, results, spend = (unknown * each + sum(known) for each, *known in amounts)
        return slots, results, spend

    def _is_equal(self, one: WaitingSend) -> bool:
        """Return whether all measurements that were read take the same of an account: then none passes another."""
        barred = any(account.barred for account in self._accounts)
        need = _need(one.cost)
        return not barred and all(_need(item.cost) == need and item.passed_ms is None for item in self._items)

    def _slot_ms(self, one: WaitingSend) -> int:
        """Return when it and those before it can have a slot at the earliest, over the slots of all accounts.

        0 if it is not sure how many are sent before it, or how long these keep their slots.
        """
        line = self._line
        plain = all(_is_plain(item) for item in self._items)
        if line.gated or line.unread or one.parked or one.passed or not plain:
            return 0
        own = next((user for user in line.users if user.owner == one.owner), None)
        even = own is not None and all(item.cost == one.cost for item in own.first)
        before = place_of(line, one.owner, one.before if even else max(one.before - LINE_EACH_MAX + 1, 0))
        each = one.cost.concurrent
        if each not in self._soon:
            backs = [back for account in self._accounts for back in _slots_back(account.concurrent, self._now_ms)]
            self._soon[each] = _SoonPlay(backs, each)
        return self._soon[each].at(before)

    def _play(self, start_ms: int) -> _LatePlay:
        if start_ms not in self._late:
            busy_ms = LOST_MS if self._line.sending else 0
            self._late[start_ms] = _LatePlay(self._accounts, self._loads(), start_ms + busy_ms, self._now_ms)
        return self._late[start_ms]

    def _loads(self) -> list[_Load]:
        """Return the loads of measurements that take room. One that no account allows fails at its turn."""
        now_ms = self._now_ms
        return [
            _Load(item.cost, expected_end_ms(item.measurement, sent_ms=now_ms) - now_ms + LATE_MS)
            for item in self._items
            if any(_is_possible(account, item.cost) for account in self._accounts)
        ]


class _Room:
    """Free amounts on one account's meters, and of the credits that the account has left at RIPE."""

    def __init__(self, account: Account, now_ms: int) -> None:
        meters = (account.concurrent, account.results, account.credits)
        self._free = [meter.limit - used(meter) for meter in meters]
        self._most = [meter.limit - meter.foreign for meter in meters]
        self._balance = account.balance.free if account.balance is not None else NEVER_MS
        self.opens_ms = max(account.closed_until_ms, now_ms, *(bar.until_ms for bar in account.barred))

    def takes(self, cost: Cost) -> list[int]:
        """Return what a measurement of at most this cost can take of the account: no more than the account allows."""
        return [min(pair) for pair in zip(_need(cost), self._most, strict=True)]

    def fits(self, cost: Cost, at_ms: int) -> bool:
        if at_ms < self.opens_ms or cost.daily_credits > self._balance:
            return False
        return all(need <= free for need, free in zip(self.takes(cost), self._free, strict=True))

    def take(self, cost: Cost) -> list[int]:
        taken = self.takes(cost)
        self.move(*(-amount for amount in taken))
        self._balance -= cost.daily_credits
        return taken

    def move(self, *amounts: int) -> None:
        self._free = [free + amount for free, amount in zip(self._free, amounts, strict=True)]


class _SoonPlay:
    """Sends that take ``each`` slots and return them as soon as possible, over the slots of all accounts."""

    def __init__(self, free: list[tuple[int, int]], each: int) -> None:
        self._free, self._each = free, each
        heapify(self._free)
        self._times: list[int] = []

    def at(self, number: int) -> int:
        """Return when the send of this number has its slots at the earliest, as far as it is played."""
        wanted = min(number, SLOTS_PLAYED_MAX - 1)
        while len(self._times) <= wanted and self._send():
            pass
        return self._times[min(wanted, len(self._times) - 1)] if self._times else 0

    def _send(self) -> bool:
        at_ms, missing = 0, self._each
        while missing > 0:
            if not self._free:
                return False
            at_ms, amount = heappop(self._free)
            if amount > missing:
                heappush(self._free, (at_ms, amount - missing))
            missing -= max(amount, 0)
        heappush(self._free, (at_ms + ONEOFF_MS - EARLY_MS, self._each))
        self._times.append(at_ms)
        return True


class _LatePlay:
    """Sends in order, with every send as slow and every slot as late as possible."""

    def __init__(self, accounts: list[Account], loads: list[_Load], start_ms: int, now_ms: int) -> None:
        self._loads, self._start_ms, self._clock_ms = loads, start_ms, start_ms
        self._rooms = [_Room(account, now_ms) for account in accounts]
        self._backs = [back for at, one in enumerate(accounts) for back in _late_backs(at, one, now_ms)]
        heapify(self._backs)
        self._times: list[int] = []
        self._stuck = False

    def at(self, number: int, last: Cost) -> int | None:
        """Return when the send of this number begins; ``last`` is the most that the largest unread one may take."""
        most = _Load(_most([last, *(load.cost for load in self._loads)]), self._longest_ms())
        while len(self._times) <= min(number, PLAYED_MAX) and not self._stuck:
            at = len(self._times)
            self._send(self._loads[at] if at < len(self._loads) else most)
        if self._stuck:
            return None
        if number < len(self._times):
            return self._times[number]
        played = len(self._times)
        return self._start_ms + -(-(self._times[-1] - self._start_ms) * (number + 1) // played) + most.holds_ms

    def _longest_ms(self) -> int:
        return max((load.holds_ms for load in self._loads), default=ONEOFF_MS + LATE_MS)

    def _send(self, load: _Load) -> None:
        while (room := self._first_room(load.cost)) is None:
            if not self._go_on():
                self._stuck = True
                return
        self._times.append(self._clock_ms)
        self._clock_ms += POST_MS_MAX
        slots, results, spend = self._rooms[room].take(load.cost)
        ends_ms = self._clock_ms + load.holds_ms
        heappush(self._backs, (ends_ms, room, slots, 0, 0))
        heappush(self._backs, (ends_ms + DAY_MS + MINUTE_MS, room, 0, results, spend))

    def _first_room(self, cost: Cost) -> int | None:
        while self._backs and self._backs[0][0] <= self._clock_ms:
            _, number, *amounts = heappop(self._backs)
            self._rooms[number].move(*amounts)
        return next((at for at, room in enumerate(self._rooms) if room.fits(cost, self._clock_ms)), None)

    def _go_on(self) -> bool:
        nexts = [room.opens_ms for room in self._rooms if room.opens_ms > self._clock_ms]
        if self._backs:
            nexts.append(self._backs[0][0])
        if not nexts:
            return False
        self._clock_ms = max(min(nexts), self._clock_ms)
        return True


def _is_possible(account: Account, cost: Cost) -> bool:
    """Return whether the account could take it if it had no use by us."""
    meters = (account.concurrent, account.results, account.credits)
    return all(need <= meter.limit - meter.foreign for need, meter in zip(_need(cost), meters, strict=True))


def _need(cost: Cost) -> tuple[int, int, int]:
    return cost.concurrent, cost.daily_results, cost.daily_credits


def _most(costs: list[Cost]) -> Cost:
    """Return a cost that none of these exceeds on any meter."""
    return Cost(
        credits=max(cost.credits for cost in costs),
        results=max(cost.results for cost in costs),
        concurrent=max(cost.concurrent for cost in costs),
        daily_credits=max(cost.daily_credits for cost in costs),
        daily_results=max(cost.daily_results for cost in costs),
    )


def _is_plain(item: StoredMeasurement) -> bool:
    """Return whether it is sent in any case, and then keeps its slots as long as a one-off does."""
    spans = [span_s(item.measurement, one) for one in item.measurement.definitions]
    once = all(is_oneoff(item.measurement, one) for one in item.measurement.definitions)
    return once and all(stop is None for _, stop in spans)


def _soonest_ms(account: Account, one: WaitingSend, now_ms: int) -> int:
    """Return when the account may have room for it at the earliest; NEVER_MS: not as far as is known.

    Holds of a day may be refunded at any time, and use by others is known only as of the last reading.
    """
    cost = one.cost
    if account.balance is not None and cost.daily_credits > account.balance.free:
        return NEVER_MS
    bar = bar_of(account, one.types, now_ms=now_ms)
    found = [account.closed_until_ms, now_ms, bar.until_ms if bar is not None else 0]
    slots = account.concurrent
    found.append(_room_ms(slots.limit, cost.concurrent, _slots_back(slots, now_ms)))
    for meter, need in ((account.results, cost.daily_results), (account.credits, cost.daily_credits)):
        found.append(_room_ms(meter.limit, need, [(now_ms, meter.limit - meter.spent), *meter.releases]))
    return max(found)


def _room_ms(limit: int, need: int, backs: list[tuple[int, int]] | list[tuple[int, int] | MeterRelease]) -> int:
    """Return when ``need`` is free, if ``backs`` are the amounts that come free and when, in order."""
    if need > limit:
        return NEVER_MS
    free = 0
    for at_ms, amount in backs:
        free += amount
        if free >= need:
            return at_ms
    return NEVER_MS


def _slots_back(slots: Meter, now_ms: int) -> list[tuple[int, int]]:
    """Return which slots are free at the earliest, and when. A send on its way may be over now."""
    known = sum(release.amount for release in slots.releases)
    free = [(now_ms, slots.limit - slots.held + max(slots.held - known, 0))]
    return [*free, *((max(release.at_ms - EARLY_MS, now_ms), release.amount) for release in slots.releases)]


def _late_backs(number: int, account: Account, now_ms: int) -> list[tuple[int, int, int, int, int]]:
    """Return the amounts that come free on the account, and when at the latest: slots, results and credits."""
    slots, results, spend = account.concurrent, account.results, account.credits
    found = []
    last_ms = now_ms + OVERDUE_MS
    for release in slots.releases:
        back_ms = release.at_ms + LATE_MS if release.at_ms > now_ms else now_ms + OVERDUE_MS
        found.append((back_ms, number, release.amount, 0, 0))
        last_ms = max(last_ms, back_ms)
    known = sum(release.amount for release in slots.releases)
    found.append((now_ms + OVERDUE_MS, number, max(slots.held - known, 0), 0, 0))
    found += [(release.at_ms, number, 0, release.amount, 0) for release in results.releases]
    found += [(release.at_ms, number, 0, 0, release.amount) for release in spend.releases]
    found.append((last_ms + DAY_MS + MINUTE_MS, number, 0, results.held, spend.held))
    return found
