"""Places for checks: who gets the free places of a process, and how many one owner or one target may have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, assert_never
from urllib.parse import urlsplit

import msgspec

from paceline.core.monitors.checks import Check, DnsCheck, HttpCheck, OutgoingCheck, TcpCheck, TlsCheck
from paceline.core.shares import Claimant, fair_shares

SPARE = 4
"""Ratio of an owner's places to those that stay free.

One owner alone thus gets four fifths of the places, and a newcomer always finds one: a check that hangs cannot be asked
to give its place back.
"""
PLAIN_PORTS = {"http": 80, "https": 443}
TURNS_MAX = 10_000
KEPT_FREE = "waiting for a place: the free places are kept for users who have fewer checks out"
ALL_TAKEN = "waiting for a place: all are taken"


def ceiling_of(places: int) -> int:
    """Return how many places one owner or one target may have, unless a setting says otherwise: four fifths."""
    return max(1, places * SPARE // (SPARE + 1))


def target_of(check: Check | None) -> str:
    """Return host and port that the check connects to. Empty: none that is known, as with the system's DNS resolver."""
    match check:
        case HttpCheck(url=url):
            return _url_target(url)
        case TcpCheck(host=host, port=port) | TlsCheck(host=host, port=port):
            return _target(host, port)
        case DnsCheck(server=server, port=port):
            return _target(server, port) if server else ""
        case OutgoingCheck() | None:
            return ""
        case never:
            assert_never(never)


@lru_cache(maxsize=8_192)
def _url_target(url: str) -> str:
    """Return the target of a URL. Memoised: each claim of a monitor asks for the same."""
    parts = urlsplit(url)
    return _target(parts.hostname or "", parts.port or PLAIN_PORTS.get(parts.scheme, 0))


def _target(host: str, port: int) -> str:
    name = host.strip("[]").lower().removesuffix(".")
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


class Places(msgspec.Struct, frozen=True):
    """Places of one process: how many an owner and a target may have, and which checks are out."""

    owner_max: int
    target_max: int
    held: Mapping[tuple[str, str], int] = {}
    """Number of checks that are out, by owner and target."""


class OwnerDemand(NamedTuple):
    """Number of runs of an owner that could start."""

    owner: str
    wanted: int


class Seats:
    """Places that one claim may give away. Without ``places`` there are no ceilings, only ``room``."""

    def __init__(self, room: int, places: Places | None = None) -> None:
        self.room = room
        self._places = places
        self._pairs: dict[tuple[str, str], int] = dict(places.held) if places else {}
        self._owners: dict[str, int] = {}
        self._targets: dict[str, int] = {}
        self._parts: dict[tuple[str, str], int] = {}
        """Places of a divided target that each owner may still take."""
        for (owner, target), held in self._pairs.items():
            self._owners[owner] = self._owners.get(owner, 0) + held
            self._targets[target] = self._targets.get(target, 0) + held

    def shares(self, wishes: Sequence[OwnerDemand]) -> list[int]:
        """Return how many runs may start for each owner, max-min fair; of equals the first get the odd places."""
        held = self._owners.get
        claimants = [Claimant(wanted, held(owner, 0)) for owner, wanted in wishes]
        if self._places is None:
            return fair_shares(self.room, claimants)
        return spared_shares(self.room, claimants, ceiling=self._places.owner_max)

    def divide(self, target: str, wishes: Sequence[OwnerDemand]) -> None:
        """Give each of these owners a max-min fair part of the target's free places; else the first would take most."""
        if self._places is None or not target:
            return
        free = self._places.target_max - self._targets.get(target, 0)
        claimants = [Claimant(wanted, self._pairs.get((owner, target), 0)) for owner, wanted in wishes]
        parts = spared_shares(free, claimants, ceiling=self._places.target_max)
        self._parts.update(((wish.owner, target), part) for wish, part in zip(wishes, parts, strict=True))

    def held_by(self, owner: str) -> int:
        """Return how many checks of the owner are out."""
        return self._owners.get(owner, 0)

    def refusal(self, owner: str, target: str) -> str:
        """Return why a run of the owner at the target has to wait for a place; empty: it may start."""
        if self._places is None:
            return ""
        if self.held_by(owner) >= self._places.owner_max:
            return owner_reason(self._places.owner_max)
        if not target:
            return ""
        left = self._places.target_max - self._targets.get(target, 0) - 1
        if left < 0 or self._pairs.get((owner, target), 0) >= max(1, SPARE * left):
            return target_reason(target)
        return ""

    def room_at(self, owner: str, target: str) -> int:
        """Return how many more checks of the owner may be out at the target: as many as ``refusal`` would let start.

        It is less if the target was divided and the owner's part is smaller.
        """
        if self._places is None:
            return self.room
        most = min(self.room, self._places.owner_max - self._owners.get(owner, 0))
        if target:
            free = self._places.target_max - self._targets.get(target, 0)
            if free <= 0:
                return 0
            held = self._pairs.get((owner, target), 0)
            most = min(most, max((SPARE * free - held) // (SPARE + 1), int(held == 0)))
            most = min(most, self._parts.get((owner, target), most))
        return max(0, most)

    def is_ample(self, runs: int) -> bool:
        """Return whether this many more runs may start, for any owner and any target: no ceiling is near."""
        if self._places is None:
            return runs <= self.room
        owner = max(self._owners.values(), default=0)
        target = max(self._targets.values(), default=0)
        pair = max(self._pairs.values(), default=0)
        return (
            runs <= self.room
            and owner + runs <= min(self._places.owner_max, SPARE * (self.room - runs))
            and runs <= (SPARE * (self._places.target_max - target) - pair) // (SPARE + 1)
        )

    def why_waits(self, owner: str, target: str) -> str:
        """Return why a run of the owner at the target still waits after a claim; empty: it only waits for its turn."""
        return self.refusal(owner, target) or self.wait_reason(owner)

    def wait_reason(self, owner: str) -> str:
        """Return why an owner's runs still wait after a claim, for any target; empty: they only wait for their turn."""
        if self._places is None:
            return ""
        if not self.held_by(owner):
            return "" if self.room > 0 else ALL_TAKEN
        if self.held_by(owner) >= self._places.owner_max:
            return owner_reason(self._places.owner_max)
        return KEPT_FREE

    def take(self, owner: str, target: str, runs: int = 1) -> None:
        owners, targets, pairs, pair = self._owners, self._targets, self._pairs, (owner, target)
        self.room -= runs
        owners[owner] = owners.get(owner, 0) + runs
        targets[target] = targets.get(target, 0) + runs
        pairs[pair] = pairs.get(pair, 0) + runs
        if pair in self._parts:
            self._parts[pair] -= runs


def noted_reason(reasons: Mapping[str, str], target: str) -> str:
    """Return the reason noted for this target, or else the one for all others, which is noted without a target."""
    return reasons.get(target) or reasons.get("", "")


def owner_reason(ceiling: int) -> str:
    return f"waiting for a place: its owner has as many checks out as one user may have ({ceiling} at most)"


def target_reason(target: str) -> str:
    return f"waiting for a place: {target} has as many checks out as one target may have"


def spared_shares(room: int, claimants: Sequence[Claimant], *, ceiling: int) -> list[int]:
    """Return ``fair_shares`` that keep places free.

    No total exceeds ``ceiling``, or SPARE times the places that are left. A total of one is always allowed while there
    is room.
    """
    pairs = [(one.held, max(0, min(one.wanted, ceiling - one.held))) for one in claimants]
    wanted = sum([wish for _, wish in pairs])
    if wanted <= room and all(not wish or held + wish <= max(1, SPARE * (room - wanted)) for held, wish in pairs):
        return [wish for _, wish in pairs]
    below, above = 0, 1 + max((held + wish for held, wish in pairs), default=0)
    used = 0
    while above - below > 1:
        level = (below + above) // 2
        needed = sum([min(wish, level - held) for held, wish in pairs if level > held])
        if level <= max(1, SPARE * (room - needed)) and needed <= room:
            below, used = level, needed
        else:
            above = level
    # Some may have one more than the level, if that still leaves enough.
    more = room - used if not below else min(room - used, room - used - -(-(below + 1) // SPARE))
    grants = [min(wish, max(0, below - held)) for held, wish in pairs]
    rising = [
        index for index, (held, wish) in enumerate(pairs) if grants[index] < wish and held + grants[index] == below
    ]
    for index in rising[: max(0, more)]:
        grants[index] += 1
    return grants


class Turns:
    """Record of when each owner was served last: the owner who has waited longest for a turn comes first."""

    def __init__(self) -> None:
        self._served: dict[str, int] = {}
        self._turn = 0

    def order(self, names: Sequence[str]) -> list[int]:
        """Return the positions of these names: those never served first, then the one served longest ago."""
        return sorted(range(len(names)), key=lambda position: self._served.get(names[position], 0))

    def serve(self, names: Sequence[str]) -> None:
        """Record that these had a turn, one after the other."""
        for name in names:
            self._turn += 1
            self._served.pop(name, None)
            self._served[name] = self._turn
        while len(self._served) > TURNS_MAX:
            del self._served[next(iter(self._served))]
