"""Leases of runs that users' own checkers and workers hold, and the errors for leases that are not valid."""

from __future__ import annotations

import re

from paceline.core.batches.values import CallRun
from paceline.core.instants import to_text
from paceline.core.monitors.values import Run
from paceline.errors import NotClaimable, NotFound, StaleLease

HANDLE_MAX = (1 << 63) - 1
_LEASE = re.compile(r"([0-9a-f]{1,16})\.([0-9]{1,9})")


def make_lease(handle: int, attempt: int) -> str:
    """Return a lease, opaque to its holder, and valid for this attempt alone."""
    return f"{handle:x}.{attempt}"


def parse_lease(lease: str, *, handle_max: int = HANDLE_MAX) -> tuple[int, int] | None:
    """Return handle and attempt; None for a text that is no lease."""
    found = _LEASE.fullmatch(lease)
    handle = int(found[1], 16) if found else 0
    return (handle, int(found[2])) if found and handle <= handle_max else None


def why_not_claimable(run: Run | CallRun, attempt: int | None, *, now_ms: int) -> str | None:
    """Return why the run cannot be claimed, as far as the run itself says so; None: nothing prevents it."""
    if run.ended_ms is not None:
        return f"it has ended as {run.state!r}"
    if run.state in ("held", "aside"):
        return run.reason
    if run.state == "out" and run.until_ms is not None and run.until_ms > now_ms:
        return f"it is out until {to_text(run.until_ms)}, and comes again if its lease runs out"
    if attempt not in (None, run.attempt + 1):
        return f"its next attempt is {run.attempt + 1}, not {attempt}"
    return None


def not_claimable(run: str, why: str) -> NotClaimable:
    return NotClaimable(f"Run {run[:300]!r} cannot be claimed: {why}. Delete the message that named it.")


def no_lease(run: str) -> NotFound:
    return NotFound(f"No run {run[:300]!r} with this lease. Use run and lease just as the claim gave them.")


def stale(run: str) -> StaleLease:
    return StaleLease(f"The lease of run {run[:300]!r} has ended or the run is settled. Drop the work and claim again.")
