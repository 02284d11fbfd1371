"""ETag, If-Match and If-None-Match: edits that state what they believe (RFC 9110)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from paceline.core.definition import Monitor
from paceline.errors import RevisionMismatch

_TAG = re.compile(r'\s*((?:W/)?"[^"]*")\s*(?:,|$)')


class Guard(NamedTuple):
    """What the writer believes about the monitor. Both None: nothing."""

    if_match: str | None = None
    if_none_match: str | None = None


NO_GUARD = Guard()


def etag_of(monitor: Monitor) -> str:
    return f'"{monitor.generation}-{monitor.revision}"'


def guard_of(headers: Mapping[bytes, bytes]) -> Guard:
    if_match, if_none_match = headers.get(b"if-match"), headers.get(b"if-none-match")
    if if_match is None and if_none_match is None:
        return NO_GUARD
    return Guard(
        None if if_match is None else if_match.decode("latin-1").strip(),
        None if if_none_match is None else if_none_match.decode("latin-1").strip(),
    )


def expected_revision(guard: Guard, monitor: Monitor | None, monitor_id: str) -> int | None:
    """The revision that the write must find (0: none at all; None: whatever is there), or RevisionMismatch."""
    if guard.if_none_match is not None and matches(guard.if_none_match, monitor, weak=True):
        raise RevisionMismatch(f"Monitor {monitor_id!r} exists already, and If-None-Match asked that it does not.")
    if guard.if_match is not None:
        if monitor is None:
            raise RevisionMismatch(f"There is no monitor {monitor_id!r} to match. Put it without If-Match.")
        if not matches(guard.if_match, monitor, weak=False):
            now = etag_of(monitor)
            raise RevisionMismatch(
                f"Monitor {monitor_id!r} is not as you have seen it: it is at {now}. Read it again and retry."
            )
    if monitor is not None and guard != NO_GUARD:
        return monitor.revision
    return 0 if guard.if_none_match == "*" else None


def matches(condition: str, monitor: Monitor | None, *, weak: bool) -> bool:
    """Whether the monitor is one that the condition names. A weak tag never matches strongly."""
    if monitor is None:
        return False
    if condition == "*":
        return True
    tags = _TAG.findall(condition)
    if weak:
        tags = [tag.removeprefix("W/") for tag in tags]
    return etag_of(monitor) in tags
