"""Order in which records get their provider's slots: the times stay, the order decides which record gets which.

``spread``     by a hash of the name: records that come and go shift the others least
``imported``   as they were put for the first time
``priority``   the higher number first; those of one priority as ``spread`` has them

A record that comes ``after`` another gets a later slot, as far as there is one, whichever providers the two have.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush

from paceline.core.batches.provider import Order
from paceline.core.batches.values import PlanOrder

CHAIN_MAX = 100


def slot_positions(order: PlanOrder, slots: Sequence[int]) -> array[int] | None:
    """Return the position of each record's slot, by the record's position; None: each record has its own slot.

    ``slots`` are those of each provider, rising, provider by provider as the records are.
    """
    if not order.orders and not order.after:
        return None
    wanted: list[int] = []
    first = 0
    for provider, count in order.providers:
        wanted += _in_order(order, range(first, first + count), order.orders.get(provider, "spread"))
        first += count
    if order.after:
        wanted = _with_predecessors(order, wanted, slots)
    positions = array("I", bytes(4 * len(wanted)))
    for slot, record in enumerate(wanted):
        positions[record] = slot
    return positions


def _in_order(order: PlanOrder, mine: range, by: Order) -> list[int]:
    """Return a provider's positions in its order. They come by place, and sorting keeps that among equals."""
    records, priorities = order.records, order.priorities
    if by == "imported":
        return sorted(mine, key=records.__getitem__)
    if by == "priority":
        return sorted(mine, key=lambda position: -priorities.get(records[position], 0))
    return list(mine)


def _with_predecessors(order: PlanOrder, wanted: list[int], slots: Sequence[int]) -> list[int]:
    """Return the positions in the order of the slots, with each record after its predecessor where possible.

    Goes through the slots in time: each takes the first waiting record whose predecessor has a slot. If all that are
    left wait for records with later slots, the first of them takes the slot; its run then waits when it is due.
    """
    followers = _followers(order)
    providers = array("I", [index for index, (_, count) in enumerate(order.providers) for _ in range(count)])
    ranks = array("I", bytes(4 * len(wanted)))
    for rank, position in enumerate(wanted):
        ranks[position] = rank
    waiting = {position for behind in followers.values() for position in behind}
    ready: list[list[int]] = [[] for _ in order.providers]
    for rank, position in enumerate(wanted):
        if position not in waiting:
            ready[providers[position]].append(rank)
    for heap in ready:
        heapify(heap)
    forced = [_unplaced(ranks_of, waiting, wanted) for ranks_of in _ranges(order)]
    placed = list(wanted)
    for index in sorted(range(len(slots)), key=slots.__getitem__):
        mine = providers[index]
        position = wanted[heappop(ready[mine])] if ready[mine] else next(forced[mine])
        waiting.discard(position)
        placed[index] = position
        for behind in followers.get(position, ()):
            if behind in waiting:
                waiting.discard(behind)
                heappush(ready[providers[behind]], ranks[behind])
    return placed


def _followers(order: PlanOrder) -> dict[int, list[int]]:
    """Return, by position, the records that come directly after a record.

    Predecessors that are not planned are left out.
    """
    numbers = {*order.after, *(number for number in order.after.values() if number is not None)}
    at = {record: position for position, record in enumerate(order.records) if record in numbers}
    found: defaultdict[int, list[int]] = defaultdict(list)
    for record, before in order.after.items():
        if record in at and before in at and before != record:
            found[at[before]].append(at[record])
    return found


def _ranges(order: PlanOrder) -> Iterator[range]:
    first = 0
    for _, count in order.providers:
        yield range(first, first + count)
        first += count


def _unplaced(ranks: range, waiting: set[int], wanted: Sequence[int]) -> Iterator[int]:
    """Yield the provider's positions that still wait, in its order, as of the time each is asked for."""
    return (wanted[rank] for rank in ranks if wanted[rank] in waiting)


def chain_problem(record: str, after: str, known: Mapping[str, str | None]) -> str | None:
    """Return why a record cannot come after another, or None. ``known``: by existing record, what it comes after."""
    if after not in known:
        return f"there is no record {after!r} in the batch; put it first, or earlier in the same import"
    chain = [record]
    before: str | None = after
    while before is not None:
        chain.append(before)
        if before == record:
            return f"these would wait for each other: {' after '.join(chain)}"
        if len(chain) > CHAIN_MAX:
            return f"at most {CHAIN_MAX} records in a row, each after the other"
        before = known.get(before)
    return None
