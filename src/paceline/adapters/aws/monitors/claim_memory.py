"""What a process remembers between its claims, and why checks of an owner wait for a place.

Only the process that claims knows its places. It writes the reasons: one small item for each owner whose checks lack
places, written when a reason changes and once a minute while it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from paceline.adapters.aws.client.database import Database
from paceline.adapters.aws.client.items import Item, Key, update
from paceline.adapters.aws.client.tables import RUNS
from paceline.core.monitors.places import Seats, Turns
from paceline.errors import StoreUnavailable

REMEMBERED_MAX = 100_000
NOTE_MS = 60_000
FRESH_MS = 150_000
"""An older note is of a process that is gone."""
KEPT_S = 86_400
TARGETS_MAX = 32
"""Targets of one owner that have a reason of their own; the others have the owner's."""

OWNERS_MAX = 64
"""One claim notes the reasons of so many owners; the next goes on."""

Reasons = Mapping[str, str]
"""By target; of the empty target: those of all others."""


class ClaimMemory:
    """What a process remembers between claims: whose turn it was, and whose each monitor is. Hints, but the turns."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.probed: dict[str, str] = {}
        """The owner that was asked last for outgoing runs, if there were more than one claim asks."""
        self._owners: dict[int, str] = {}
        self._targets: dict[int, str] = {}
        self.reasons = NotedReasons()

    def owner(self, generation: int) -> str | None:
        return self._owners.get(generation)

    def target(self, generation: int) -> str:
        return self._targets.get(generation, "")

    def note(self, runs: Iterable[Item]) -> None:
        if len(self._owners) > REMEMBERED_MAX:
            self._owners.clear()
            self._targets.clear()
        self._owners.update((run["generation"], run["owner"]) for run in runs)

    def note_target(self, generation: int, target: str) -> None:
        self._targets[generation] = target


class NotedReasons:
    """What this process has noted, by owner, and when."""

    def __init__(self) -> None:
        self._noted: dict[str, tuple[dict[str, str], int]] = {}

    def note(self, db: Database, seats: Seats, left: Iterable[tuple[str, str]], *, now_ms: int) -> None:
        """``left``: owner and target, as far as it is known, of checks that still wait after a claim."""
        found = _reasons(seats, left)
        changes: list[tuple[str, dict[str, str]]] = [(owner, {}) for owner in self._noted if owner not in found]
        changes += [one for one in found.items() if not self._is_noted(*one, now_ms)]
        changes = changes[:OWNERS_MAX]
        try:
            db.threads.fan_out(lambda change: _write(db, *change, now_ms=now_ms), changes)
        except StoreUnavailable:
            return  # what was claimed must still be started; the reasons are noted by the next claim
        for owner, reasons in changes:
            if reasons:
                self._noted[owner] = (reasons, now_ms)
            else:
                del self._noted[owner]

    def _is_noted(self, owner: str, reasons: dict[str, str], now_ms: int) -> bool:
        before, noted_ms = self._noted.get(owner, ({}, 0))
        return before == reasons and abs(now_ms - noted_ms) < NOTE_MS


def read_reasons(db: Database, owner: str) -> Reasons:
    """What was noted last of the owner's checks; empty: they only wait for their turn."""
    item = db.get(RUNS, _key(owner))
    if item is None:
        return {}
    noted_ms, now_ms = int(item["noted_ms"]), db.write_ms(0)
    if now_ms and abs(now_ms - noted_ms) > FRESH_MS:
        return {}
    return msgspec.json.decode(item["reasons"], type=dict[str, str])


def _write(db: Database, owner: str, reasons: Reasons, *, now_ms: int) -> None:
    """Who claims checks may not delete; DynamoDB removes what has expired."""
    change = "SET #reasons = :reasons, #noted_ms = :noted_ms, #expires_s = :expires_s"
    times = {"noted_ms": now_ms, "expires_s": now_ms // 1_000 + KEPT_S}
    text = msgspec.json.encode(reasons).decode()
    db.write(update(RUNS, _key(owner), change, when="", reasons=text, **times))


def _reasons(seats: Seats, left: Iterable[tuple[str, str]]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for owner, target in dict.fromkeys(left):
        reasons = found.setdefault(owner, {"": seats.why_waits(owner, "")})
        if target and len(reasons) <= TARGETS_MAX:
            reasons[target] = seats.why_waits(owner, target)
    return {
        owner: {target: reason for target, reason in reasons.items() if reason}
        for owner, reasons in found.items()
        if any(reasons.values())
    }


def _key(owner: str) -> Key:
    return Key(f"places#{owner}", "-")
