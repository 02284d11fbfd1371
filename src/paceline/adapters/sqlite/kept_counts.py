"""Counts that writers of rows keep up to date, so that reading a count scans no table."""

from __future__ import annotations

from paceline.adapters.sqlite.database import Connection

# The texts are what `paceline check` prints; each query returns a stored count that differs from the true one.
INVARIANTS = tuple(
    (
        f"the number of {what} is wrong (it says {{}})",
        f"SELECT value FROM tally WHERE name = '{name}' AND value <> (SELECT count(*) FROM {where})",  # noqa: S608
    )
    for name, what, where in (
        ("entries", "entries", "entry"),
        ("calls_waiting", "waiting runs of batches", "queue"),
        ("calls_aside", "runs that stand aside", "aside"),
        ("dead_letters", "dead letters", "result WHERE dead = 1"),
        ("measurements_queued", "queued measurements", "measurement WHERE state = 'queued'"),
        ("measurements_parked", "parked measurements", "measurement WHERE state = 'parked'"),
        ("jobs_open", "unfinished jobs", "job WHERE finished_ms IS NULL"),
    )
)


def tally(db: Connection, name: str) -> int:
    return int(db.execute("SELECT value FROM tally WHERE name = ?", (name,)).get)


def add(db: Connection, name: str, change: int) -> None:
    """Add to a count, in the transaction that writes the rows."""
    if change:
        db.execute("UPDATE tally SET value = value + ? WHERE name = ?", (change, name))
