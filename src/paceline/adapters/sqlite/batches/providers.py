"""Providers, and their policies in the form that a claim needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.monitors.entries import integers
from paceline.core.batches.pace import Pace
from paceline.core.batches.provider import (
    POLICIES_MAX,
    KnownPolicy,
    Policy,
    ProviderDefinition,
    ProviderSpec,
    known_policy,
    parse_stored_provider,
)
from paceline.core.batches.put import put_disposition
from paceline.core.batches.run_keys import NEVER_MS, due_ms_of, provider_bounds
from paceline.core.batches.values import WAITING_MAX, ProviderPut, ProviderStanding, PutProvider


class SqlitePolicyCache:
    """A cache of policies by provider number.

    The revision is read each time, so an edit by any process counts at once.
    """

    def __init__(self) -> None:
        self._known: dict[int, KnownPolicy] = {}
        self._shared: dict[Policy, Policy] = {}

    def of(self, db: Connection, numbers: Sequence[int]) -> dict[int, KnownPolicy]:
        """Return the policies of those providers that exist."""
        if len(numbers) == 1:
            rows = db.execute("SELECT id, revision FROM provider WHERE id = ? AND deleted = 0", (numbers[0],))
        else:
            rows = db.execute(
                "SELECT id, revision FROM provider WHERE id IN carray(?) AND deleted = 0", (integers(numbers),)
            )
        known = self._known
        found = {}
        for number, revision in rows.fetchall():
            kept = known.get(number)
            found[number] = kept if kept is not None and kept.revision == revision else self._read(db, number)
        return found

    def at(self, db: Connection, number: int, revision: int) -> KnownPolicy:
        """Return the policy of a provider whose revision was just read."""
        kept = self._known.get(number)
        return kept if kept is not None and kept.revision == revision else self._read(db, number)

    def policy(self, db: Connection, number: int) -> tuple[int, Policy]:
        """Return (revision, policy) of a provider that exists."""
        known = self.of(db, (number,))[number]
        return known.revision, known.policy

    def _read(self, db: Connection, number: int) -> KnownPolicy:
        name, revision, text = db.execute(
            "SELECT name, revision, spec FROM provider WHERE id = ?", (number,)
        ).fetchone()
        if len(self._known) >= POLICIES_MAX:
            self._known.clear()
            self._shared.clear()
        known = known_policy(name, revision, text)
        policy = self._shared.setdefault(known.policy, known.policy)  # most policies are equal and share one object
        known = known._replace(policy=policy)
        self._known[number] = known
        return known


def put(db: Connection, item: PutProvider, *, now_ms: int) -> ProviderPut:
    row = db.execute("SELECT id, revision, deleted, spec FROM provider WHERE name = ?", (item.id,)).fetchone()
    number, revision, deleted, stored = row or (None, None, 1, "")
    text = msgspec.json.encode(item.spec).decode()
    disposition = put_disposition(
        revision=None if deleted else revision, expected=item.expected_revision, same=stored == text
    )
    if disposition in ("revision_mismatch", "unchanged"):
        return ProviderPut(disposition, provider(db, item.id))
    if number is None:
        db.execute(
            "INSERT INTO provider (name, revision, spec, created_ms, updated_ms) VALUES (?, 1, ?, ?, ?)",
            (item.id, text, now_ms, now_ms),
        )
        db.execute("INSERT INTO pace (provider, revision) VALUES (?, 1)", (db.last_insert_rowid(),))
    else:
        _replace(db, number, text, created_ms=now_ms if deleted else None, now_ms=now_ms)
    # Workers claim the runs of an outgoing provider, and Paceline's own callers must not see it.
    db.execute(
        "UPDATE pace SET outgoing = ?2 WHERE provider = (SELECT id FROM provider WHERE name = ?1)",
        (item.id, item.spec.kind == "outgoing"),
    )
    return ProviderPut(disposition, provider(db, item.id))


def provider(db: Connection, key: str | int) -> ProviderDefinition | None:
    where = "id = ?" if isinstance(key, int) else "name = ? AND deleted = 0"
    row = db.execute(
        f"SELECT id, name, revision, spec, created_ms, updated_ms FROM provider WHERE {where}",  # noqa: S608  fixed texts
        (key,),
    ).fetchone()
    return _provider(row) if row else None


def providers(db: Connection, *, after: str, limit: int) -> list[ProviderDefinition]:
    rows = db.execute(
        """SELECT id, name, revision, spec, created_ms, updated_ms FROM provider
           WHERE name > ? AND deleted = 0 ORDER BY name LIMIT ?""",
        (after, limit),
    )
    return [_provider(row) for row in rows]


def remove(db: Connection, name: str) -> Literal["removed", "not_found", "in_use"]:
    now = provider(db, name)
    if now is None:
        return "not_found"
    if _in_use(db, now.number):
        return "in_use"
    text = msgspec.json.encode(msgspec.structs.replace(now.spec, headers={})).decode()
    db.execute("UPDATE provider SET deleted = 1, revision = revision + 1, spec = ? WHERE id = ?", (text, now.number))
    db.execute("UPDATE pace SET ready_ms = ?, revision = NULL WHERE provider = ?", (NEVER_MS, now.number))
    return "removed"


def standing(db: Connection, number: int, *, now_ms: int) -> ProviderStanding:
    """Return how a provider is doing.

    Runs that are out are among its first, so a bounded look at these finds them all.
    """
    row = db.execute(
        "SELECT rate_us, paced_ms, closed_until_ms, failures, ready_ms FROM pace WHERE provider = ?", (number,)
    ).fetchone()
    states = db.execute(
        "SELECT k, state, at_ms FROM queue WHERE k >= ? AND k < ? ORDER BY k LIMIT ?",
        (*provider_bounds(number), 2 * WAITING_MAX),
    ).fetchall()
    out = sum(1 for _, state, at_ms in states if state == "out" and at_ms > now_ms)
    rate_us, paced_ms, closed_until_ms, failures, ready_ms = row or (0, 0, 0, 0, NEVER_MS)
    return ProviderStanding(
        pace=Pace(rate_us=rate_us, paced_ms=paced_ms, closed_until_ms=closed_until_ms, failures=failures),
        in_flight=out,
        waiting=min(len(states) - out, WAITING_MAX),
        head_due_ms=due_ms_of(states[0][0]) if states else None,
        ready_ms=ready_ms if ready_ms < NEVER_MS else None,
    )


def latencies_ms(db: Connection, numbers: Sequence[int], *, runs_max: int) -> dict[int, float]:
    found = {}
    for number in numbers:
        mean = db.execute(
            """SELECT avg(latency_ms) FROM
               (SELECT latency_ms, state FROM result WHERE k >= ? AND k < ? ORDER BY k DESC LIMIT ?)
               WHERE state = 'done'""",
            (*provider_bounds(number), runs_max),
        ).get
        if mean is not None:
            found[number] = float(mean)
    return found


def _replace(db: Connection, number: int, text: str, *, created_ms: int | None, now_ms: int) -> None:
    db.execute(
        """UPDATE provider SET revision = revision + 1, deleted = 0, spec = ?, created_ms = coalesce(?, created_ms),
               updated_ms = ? WHERE id = ?""",
        (text, created_ms, now_ms, number),
    )
    # The new policy may allow a start earlier than the time that was stored.
    db.execute(
        "UPDATE pace SET ready_ms = 0, revision = (SELECT revision FROM provider WHERE id = ?1) WHERE provider = ?1",
        (number,),
    )


def _in_use(db: Connection, number: int) -> bool:
    first, beyond = provider_bounds(number)
    return bool(
        db.execute(
            """SELECT EXISTS (SELECT 1 FROM queue WHERE k >= ? AND k < ?)
                   OR EXISTS (SELECT 1 FROM aside WHERE k >= ? AND k < ?)
                   OR EXISTS (SELECT 1 FROM record WHERE provider = ? AND deleted = 0)""",
            (first, beyond, first, beyond, number),
        ).get
    )


def _provider(row: tuple[Any, ...]) -> ProviderDefinition:
    number, name, revision, text, created_ms, updated_ms = row
    spec: ProviderSpec = parse_stored_provider(text)
    return ProviderDefinition(name, number, revision, spec, created_ms=created_ms, updated_ms=updated_ms)
