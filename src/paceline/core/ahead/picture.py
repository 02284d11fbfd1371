"""Load of the next hours: starts by kind in windows against capacity, and the worst minutes by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from paceline.core.ahead.minutes import Span

Kind = Literal["monitors", "batches", "jobs"]
KINDS: tuple[Kind, ...] = ("monitors", "batches", "jobs")
WORST = 3
APART = 24
ASKS = 3


class LoadPart(NamedTuple):
    """Starts of one cadence, provider or account in each minute.

    ``limit``: the name of the limit that applies to it.
    """

    kind: Kind
    name: str
    limit: str
    starts: Sequence[int]


class Limit(NamedTuple):
    """Number of starts of a kind that the places, a provider or an account allow in each minute."""

    kind: Kind
    name: str
    capacity: Sequence[int]


class Slice(NamedTuple):
    """Starts by kind, and how many all limits together allow, from the minute ``first`` on."""

    first: int
    monitors: int
    batches: int
    jobs: int
    capacity: int

    @property
    def starts(self) -> int:
        return self.monitors + self.batches + self.jobs


class WindowLoad(NamedTuple):
    """A window of several minutes, and the busiest minute in it."""

    whole: Slice
    busiest: Slice


class Ask(NamedTuple):
    name: str
    starts: int


class Worst(NamedTuple):
    """Minute in which a limit is asked for most. ``asks``: the parts that ask for most starts, largest first."""

    minute: int
    limit: Limit
    starts: int
    capacity: int
    asks: list[Ask]


def windows(parts: Sequence[LoadPart], limits: Sequence[Limit], span: Span, *, width: int) -> list[WindowLoad]:
    """Return windows of ``width`` minutes with their sums, and the minute of each window with the most starts."""
    totals = {kind: _sums((part.starts for part in parts if part.kind == kind), span.minutes) for kind in KINDS}
    capacity = _sums((limit.capacity for limit in limits), span.minutes)
    minutes = [Slice(span.first + at, *found) for at, found in enumerate(zip(*totals.values(), capacity, strict=True))]
    found = []
    for begin in range(0, span.minutes, width):
        mine = minutes[begin : begin + width]
        sums = [sum(values) for values in list(zip(*mine, strict=True))[1:]]
        found.append(WindowLoad(Slice(mine[0].first, *sums), max(mine, key=lambda one: one.starts)))
    return found


def worst_minutes(
    parts: Sequence[LoadPart], limits: Sequence[Limit], span: Span, *, from_minute: int, width: int
) -> list[Worst]:
    """Return the minutes in which the largest share of a limit is asked for, at most ``WORST``.

    Two of them are at least a 24th of the span apart. A limit that allows nothing, such as a paused provider, comes
    before all others; of equal shares the earlier comes first.
    """
    ranked: list[tuple[float, int, int, int]] = []
    for index, limit in enumerate(limits):
        asked = _asked(parts, limit, span.minutes)
        for begin in range(0, span.minutes, width):
            mine = range(max(begin, from_minute), min(begin + width, span.minutes))
            shares = [(-_share(asked[at], limit.capacity[at]), at, index, asked[at]) for at in mine if asked[at]]
            ranked += [min(shares)] if shares else []
    found: list[Worst] = []
    for _, at, index, starts in sorted(ranked):
        if len(found) == WORST:
            break
        minute, limit = span.first + at, limits[index]
        if all(abs(minute - one.minute) * APART >= span.minutes for one in found):
            found.append(Worst(minute, limit, starts, limit.capacity[at], _asks(parts, limit, at)))
    return found


def _asked(parts: Sequence[LoadPart], limit: Limit, minutes: int) -> list[int]:
    return _sums((part.starts for part in parts if _holds(limit, part)), minutes)


def _asks(parts: Sequence[LoadPart], limit: Limit, at: int) -> list[Ask]:
    asks = [Ask(part.name, part.starts[at]) for part in parts if part.starts[at] and _holds(limit, part)]
    return sorted(asks, key=lambda ask: (-ask.starts, ask.name))[:ASKS]


def _holds(limit: Limit, part: LoadPart) -> bool:
    return (part.kind, part.limit) == (limit.kind, limit.name)


def _share(starts: int, capacity: int) -> float:
    return starts / capacity if capacity > 0 else float("inf")


def _sums(rows: Iterable[Sequence[int]], minutes: int) -> list[int]:
    found = list(rows)
    return [sum(values) for values in zip(*found, strict=True)] if found else [0] * minutes
