"""The memory of a process between its claims, and the reasons why checks of an owner wait for a place.

Only the process that claims knows its places. It writes the reasons: one small item for each owner whose checks lack
places, written when a reason changes and once a minute while it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import DynamoKey, Item, update
from paceline.adapters.aws.client.tables import RUNS
from paceline.core.monitors.places import Turns
from paceline.core.monitors.waiting_checks import WaitingChecks
from paceline.errors import StoreUnavailable

REMEMBERED_MAX = 100_000
WAITED_MAX = 10_000
NOTE_MS = 60_000
FRESH_MS = 150_000
"""An older note was written by a process that has ended."""
KEPT_S = 86_400
TARGETS_MAX = 32
"""Targets of one owner with their own reason; the others have the owner's."""

OWNERS_MAX = 64
"""Owners whose reasons one claim writes; the next claim goes on."""
REASONS_MAX = 1_000
"""Owners for whom one claim computes reasons."""

Reasons = Mapping[str, str]
"""Reasons by target. The empty target stands for all others."""


class ClaimMemory:
    """The memory of a process between claims: whose turn it is, and the owner and target of each monitor.

    Owners and targets are hints; the runs themselves are read before they are leased.
    """

    def __init__(self) -> None:
        self.turns = Turns()
        """Turns of the owners of outgoing runs, by user number."""
        self.probed: dict[str, str] = {}
        """The owner that was read last for outgoing runs, if there were more than one claim reads."""
        self.reasons = NotedReasons()
        self._waited: list[str] = []
        """Owners whose checks waited after the last claim, in the order of their turns."""
        self._owners: dict[int, str] = {}
        self._targets: dict[int, str] = {}

    def owner(self, generation: int) -> str | None:
        return self._owners.get(generation)

    def note(self, runs: Iterable[Item]) -> None:
        if len(self._owners) > REMEMBERED_MAX:
            self._owners.clear()
            self._targets.clear()
        self._owners.update((run["generation"], run["owner"]) for run in runs)

    def note_target(self, generation: int, target: str) -> None:
        self._targets[generation] = target

    def line_up(self, generations: Iterable[int]) -> WaitingChecks:
        """Return waiting checks, given in order of due time, with their owners in the order of their turns."""
        owners: dict[str, list[tuple[int, tuple[str, str]]]] = {owner: [] for owner in self._waited}
        for generation in generations:
            owner, target = self._owners[generation], self._targets.get(generation, "")
            owners.setdefault(owner, []).append((generation, (owner, target)))
        waiting = WaitingChecks()
        for runs in owners.values():
            waiting.add(runs)
        return waiting

    def note_turns(self, waiting: WaitingChecks, *, whole: bool) -> None:
        """Remember who still waits after a claim. ``whole``: it saw all that wait; else others may wait as before."""
        still = waiting.owners
        before = [] if whole else [owner for owner in self._waited if owner not in still]
        self._waited = (before + still)[-WAITED_MAX:]


class NotedReasons:
    """The reasons that this process has written, by owner, and when."""

    def __init__(self) -> None:
        self._noted: dict[str, tuple[dict[str, str], int]] = {}

    def note(self, db: DynamoDatabase, reasons: Mapping[tuple[str, str], str], *, now_ms: int) -> None:
        """Write why checks still wait after a claim, given by owner and target."""
        found: dict[str, dict[str, str]] = {}
        for (owner, target), reason in reasons.items():
            of_owner = found.setdefault(owner, {})
            if len(of_owner) <= TARGETS_MAX:
                of_owner[target] = reason
        changes: list[tuple[str, dict[str, str]]] = [(owner, {}) for owner in self._noted if owner not in found]
        changes += [one for one in found.items() if not self._is_noted(*one, now_ms)]
        changes = changes[:OWNERS_MAX]
        try:
            db.threads.fan_out(lambda change: _write(db, *change, now_ms=now_ms), changes)
        except StoreUnavailable:
            return  # claimed runs must still be started; the next claim writes the reasons
        for owner, of_owner in changes:
            if of_owner:
                self._noted[owner] = (of_owner, now_ms)
            else:
                del self._noted[owner]

    def _is_noted(self, owner: str, reasons: dict[str, str], now_ms: int) -> bool:
        before, noted_ms = self._noted.get(owner, ({}, 0))
        return before == reasons and abs(now_ms - noted_ms) < NOTE_MS


def read_reasons(db: DynamoDatabase, owner: str) -> Reasons:
    """Return the reasons last written for the owner's checks; empty if they only wait for their turn."""
    item = db.get(RUNS, _key(owner))
    if item is None:
        return {}
    noted_ms, now_ms = int(item["noted_ms"]), db.write_ms(0)
    if now_ms and abs(now_ms - noted_ms) > FRESH_MS:
        return {}
    return msgspec.json.decode(item["reasons"], type=dict[str, str])


def _write(db: DynamoDatabase, owner: str, reasons: Reasons, *, now_ms: int) -> None:
    """Write an owner's reasons. The function that claims may not delete items; DynamoDB removes expired ones."""
    change = "SET #reasons = :reasons, #noted_ms = :noted_ms, #expires_s = :expires_s"
    times = {"noted_ms": now_ms, "expires_s": now_ms // 1_000 + KEPT_S}
    text = msgspec.json.encode(reasons).decode()
    db.write(update(RUNS, _key(owner), change, when="", reasons=text, **times))


def _key(owner: str) -> DynamoKey:
    return DynamoKey(f"places#{owner}", "-")
