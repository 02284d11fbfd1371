"""Checks that wait for a place in one process: whose turn it is, and which of them start next."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from paceline.core.monitors.places import OwnerDemand, Seats

ROUNDS_MAX = 32
"""Maximum number of rounds in one claim that offer the places owners cannot use, with full targets, to the others."""
OWNERS_MIN, OWNERS_MAX = 64, 1_024
"""Number of owners asked in one claim: at least the first, more while there are places, never more than the second."""
TARGETS_MAX = 64
"""Maximum number of an owner's full targets asked for a place in one claim; the next claim asks the others."""


Chosen = tuple[str, Any, str]
"""A run that waits or may start: its owner, the run as it was given, and its target."""
Rank = tuple[int, int]
"""Due time and generation of a run: an owner's runs start in this order, whether they are new or come back."""


class WaitingChecks:
    """Runs of checks by owner, each owner's by rank. The owner that has waited longest for a turn comes first.

    That is the one that was served longest ago; a new owner is behind all that wait. A run whose target is full steps
    aside, and those behind it go on. It comes first again when its target has a place.
    """

    def __init__(self) -> None:
        self._owners: dict[str, _Runs] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, runs: Iterable[tuple[Any, tuple[str, str]]]) -> None:
        """Add runs behind their owners' other runs. Each is given with its owner and target."""
        owners, count = self._owners, 0
        for run, (owner, target) in runs:
            if owner not in owners:
                owners[owner] = _Runs()
            owners[owner].line.append((owner, run, target))
            count += 1
        self._count += count

    def merge(self, runs: Sequence[tuple[Any, tuple[str, str]]], rank: Callable[[Any], Rank]) -> None:
        """Add runs among their owners' other runs, each at its rank. They are given as for ``add``."""
        for run, (owner, target) in runs:
            mine = self._owners.setdefault(owner, _Runs())
            line = mine.blocked.get(target, mine.line)
            if line and rank(line[-1][1]) > rank(run):
                line.insert(bisect_right(line, rank(run), key=lambda other: rank(other[1])), (owner, run, target))
            else:  # nearly always for new runs
                line.append((owner, run, target))
        self._count += len(runs)

    @property
    def owners(self) -> list[str]:
        """Return the owners whose runs wait, in the order of their turns."""
        return list(self._owners)

    def choose(self, seats: Seats) -> list[Chosen]:
        """Remove and return the runs that start now. Each has a place, taken from ``seats``."""
        if seats.is_ample(self._count):
            return self._choose_all(seats)
        return self._choose_by_turns(seats)

    def _choose_all(self, seats: Seats) -> list[Chosen]:
        """Remove and return all runs, as ``_choose_by_turns`` would if no ceiling were near."""
        chosen: list[Chosen] = []
        places: dict[tuple[str, str], int] = {}
        for runs in self._owners.values():
            for waiting in runs.blocked.values():
                chosen += waiting
            chosen += runs.line
        for owner, _, target in chosen:
            places[owner, target] = places.get((owner, target), 0) + 1
        for (owner, target), count in places.items():
            seats.take(owner, target, count)
        self._owners.clear()
        self._count = 0
        return chosen

    def _choose_by_turns(self, seats: Seats) -> list[Chosen]:
        chosen: list[Chosen] = []
        asked: list[str] = []
        for _ in range(ROUNDS_MAX):
            if seats.room <= 0 or not self._owners:
                break
            before = len(chosen)
            wishes = self._wishes(asked, seats) if before else self._asked(seats)
            asked = [wish.owner for wish in wishes]
            if self._divide_targets(asked, seats):
                wishes = [OwnerDemand(owner, self._owners[owner].wanted(owner, seats)) for owner in asked]
            shares = seats.shares(wishes)
            served: set[str] = set()
            for owner, share in zip(asked, shares, strict=True):
                if share and (taken := self._owners[owner].take(owner, share, seats)):
                    chosen += taken
                    served.add(owner)
            self._rotate(asked, served)
            if len(chosen) - before == sum(shares) and (chosen or len(asked) == len(self._owners)):
                break  # every share was used; if nobody wanted anything, the owners behind are asked
        self._count -= len(chosen)
        return chosen

    def reasons(self, seats: Seats, *, limit: int) -> dict[tuple[str, str], str]:
        """Return why runs wait for a place, by owner and target, for up to ``limit`` owners.

        An empty target stands for all others.
        """
        found: dict[tuple[str, str], str] = {}
        for owner, runs in islice(self._owners.items(), limit):
            targets = islice(runs.blocked, TARGETS_MAX)
            for target in ("", *targets) if runs.line else targets:
                if reason := seats.why_waits(owner, target):
                    found[owner, target] = reason
        return found

    def _asked(self, seats: Seats) -> list[OwnerDemand]:
        """Return owners in the order of their turns, and how many runs of each could start.

        Max-min shares go to those who have least. The first in turn mostly have nothing out: once there are as many of
        these as there is room, those behind them would get nothing.
        """
        asked: list[OwnerDemand] = []
        without = 0
        for owner, runs in islice(self._owners.items(), OWNERS_MAX):
            wanted = runs.wanted(owner, seats)
            asked.append(OwnerDemand(owner, wanted))
            without += wanted > 0 and not seats.held_by(owner)
            if without >= seats.room and len(asked) >= OWNERS_MIN:
                break
        return asked

    def _wishes(self, owners: Sequence[str], seats: Seats) -> list[OwnerDemand]:
        """Return what the asked owners still want."""
        left = ((owner, self._owners[owner].wanted(owner, seats)) for owner in owners if owner in self._owners)
        return [OwnerDemand(owner, wanted) for owner, wanted in left if wanted]

    def _divide_targets(self, owners: Sequence[str], seats: Seats) -> bool:
        """Divide the places of the targets at which several of these owners wait. Return whether there are any."""
        waiting: dict[str, list[OwnerDemand]] = {}
        for owner in owners:
            for target, runs in islice(self._owners[owner].blocked.items(), TARGETS_MAX):
                waiting.setdefault(target, []).append(OwnerDemand(owner, len(runs)))
        shared = {target: wishes for target, wishes in waiting.items() if len(wishes) > 1}
        for target, wishes in shared.items():
            seats.divide(target, wishes)
        return bool(shared)

    def _rotate(self, asked: Sequence[str], served: set[str]) -> None:
        """Put the owners that were asked behind those that were not, and those that were served behind all."""
        owners = self._owners
        left_out = len(asked) < len(owners)
        for owner in asked:
            if not owners[owner]:
                del owners[owner]
            elif left_out and owner not in served:
                owners[owner] = owners.pop(owner)
        for owner in asked:
            if owner in served and owner in owners:
                owners[owner] = owners.pop(owner)


class _Runs:
    """Runs of one owner: in line, and blocked because their target is full."""

    def __init__(self) -> None:
        self.line: deque[Chosen] = deque()
        self.blocked: dict[str, deque[Chosen]] = {}
        """Runs of full targets, by target."""

    def __bool__(self) -> bool:
        return bool(self.line or self.blocked)

    def wanted(self, owner: str, seats: Seats) -> int:
        """Return how many could start, as far as is visible now: those in line for a full target are met later."""
        line, blocked = self.line, self.blocked
        while line:
            target = line[0][2]
            if target not in blocked:
                if seats.room_at(owner, target) > 0:
                    break
                blocked[target] = deque()
            blocked[target].append(line.popleft())
        wanted = len(line)
        if blocked:
            for target in islice(blocked, TARGETS_MAX):
                wanted += min(seats.room_at(owner, target), len(blocked[target]))
        return wanted

    def take(self, owner: str, share: int, seats: Seats) -> list[Chosen]:
        """Remove and return up to ``share`` runs: blocked ones that have a place now, then those in line."""
        line, blocked = self.line, self.blocked
        if share == 1 and not blocked and seats.room_at(owner, line[0][2]) > 0:  # usual if there are many owners
            run = line.popleft()
            seats.take(owner, run[2])
            return [run]
        taken = self._take_blocked(owner, share, seats) if blocked else []
        room: dict[str, int] = {}
        left: dict[str, int] = {}
        while line and len(taken) < share:
            run = line.popleft()
            target = run[2]
            free = left.get(target)
            if free is None:
                # Runs of one target start in order: behind the blocked ones of this target, if there are any.
                free = room[target] = 0 if target in blocked else seats.room_at(owner, target)
            if free > 0:
                taken.append(run)
                left[target] = free - 1
            else:
                left[target] = 0
                blocked.setdefault(target, deque()).append(run)
        for target, free in room.items():
            if free > left[target]:
                seats.take(owner, target, free - left[target])
        return taken

    def _take_blocked(self, owner: str, share: int, seats: Seats) -> list[Chosen]:
        taken: list[Chosen] = []
        for target in list(islice(self.blocked, TARGETS_MAX)):
            free = min(seats.room_at(owner, target), share - len(taken))
            if free <= 0:
                continue
            runs = self.blocked.pop(target)
            free = min(free, len(runs))
            taken += [runs.popleft() for _ in range(free)]
            seats.take(owner, target, free)
            if runs:
                self.blocked[target] = runs  # behind the others: they are asked in turn
        return taken
