"""Decisions after a lookup at RIPE for a send whose reply was lost: adopt it, look again, or send it again.

RIPE's lists lag, so a measurement that is absent once is looked for a second time, a settle delay later. Only then is
it sent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, assert_never

from paceline.core.jobs.answers import cut, pause_for
from paceline.core.jobs.atlas import Lost, Refused, parse_marker_prefix
from paceline.core.jobs.atlas_replies import ListedMeasurement, Unanswered
from paceline.core.jobs.pool import LOOK_AGAIN_MS, backoff_until_ms
from paceline.core.jobs.values import NotSent, Paused, Rejected, SendOutcome, Sent, StoredMeasurement, Unsure

ABSENT_ONCE = 1
PARTS_SEEN = 2
"""Values of ``lookups``: 0 no lookup yet, 1 absent once; from 2 on some definitions were listed, and how often."""
PART_LOOKS_MAX = 10

LookupResult = Literal["adopted", "absent_once", "sent_again", "unanswered", "partly", "rejected"]


class NoKey(NamedTuple):
    """No key of the account could be used. ``reason`` says what an operator can do."""

    reason: str


class ListedWithTag(NamedTuple):
    """Everything that RIPE lists with the measurement's tag."""

    listed: tuple[ListedMeasurement, ...]


Reply = ListedWithTag | Unanswered | NoKey


def judge_lookup(
    item: StoredMeasurement,
    reply: Reply,
    paused: Paused | None,
    *,
    site: str,
    settle_ms: int,
    now_ms: int,
    chance: float,
) -> tuple[SendOutcome, Paused | None]:
    """Return the outcome of the send as far as the reply tells, and the pause that RIPE asks everybody for."""
    match reply:
        case NoKey():
            return Unsure(cut(reply.reason), now_ms + LOOK_AGAIN_MS), None
        case Lost():
            again_ms = now_ms + (LOOK_AGAIN_MS if reply.retry_after_ms is None else reply.retry_after_ms)
            return Unsure(cut(f"not looked up: {reply.reason}"), again_ms), None
        case Refused():
            reason = cut(f"not looked up: {reply.reason}")
            if reply.scope != "global":
                return Unsure(reason, now_ms + LOOK_AGAIN_MS), None
            pause = pause_for(paused, reply, now_ms=now_ms, chance=chance)
            return Unsure(reason, pause.until_ms), pause
        case ListedWithTag():
            look_ms = now_ms + settle_ms
            return _judge_found(item, reply.listed, site, look_ms=look_ms, now_ms=now_ms, chance=chance), None
        case _:
            assert_never(reply)


def put_off(reply: Reply, outcome: SendOutcome) -> Paused | None:
    """Return the pause of the other lookups if RIPE does not answer: each would take its whole deadline."""
    if isinstance(reply, Lost) and isinstance(outcome, Unsure):
        return Paused(outcome.look_ms, 0, outcome.reason)
    return None


def lookup_result(outcome: SendOutcome, reply: Reply) -> LookupResult:
    """Return the word under which the lookup is counted."""
    match outcome:
        case Sent():
            return "adopted"
        case NotSent():
            return "sent_again"
        case Rejected():
            return "rejected"
        case Unsure():
            if not isinstance(reply, ListedWithTag):
                return "unanswered"
            return "absent_once" if outcome.lookups == ABSENT_ONCE else "partly"
        case _:
            assert_never(outcome)


def _judge_found(
    item: StoredMeasurement, found: Sequence[ListedMeasurement], site: str, *, look_ms: int, now_ms: int, chance: float
) -> SendOutcome:
    if ids := _whole_set(item, found, site):
        return Sent(ids)
    if found or item.lookups >= PARTS_SEEN:
        # RIPE creates all of a request or nothing, so its lists should show the rest soon.
        wanted = len(item.measurement.definitions)
        if item.lookups >= PARTS_SEEN + PART_LOOKS_MAX - 1:
            return Rejected(f"RIPE lists {len(found)} of its {wanted} definitions and never the rest; they are stopped")
        lookups = max(item.lookups + 1, PARTS_SEEN)
        return Unsure(f"RIPE lists {len(found)} of its {wanted} definitions", look_ms, lookups)
    if item.lookups < ABSENT_ONCE:
        return Unsure("RIPE does not list it; it is looked for once more", look_ms, ABSENT_ONCE)
    # The first repetition is immediate. A measurement that is lost each time must not delay the others again and again.
    again_ms = None
    if item.attempt > 1:
        again_ms = backoff_until_ms(item.attempt, now_ms=now_ms, retry_after_ms=None, chance=chance)
    return NotSent("RIPE does not list it: sent again", again_ms)


def _whole_set(item: StoredMeasurement, found: Sequence[ListedMeasurement], site: str) -> tuple[int, ...]:
    """Return the ids of all definitions from the earliest complete attempt; empty if none is complete.

    Anything else with the tag belongs to nobody: reconciliation finds it as an orphan and stops it.
    """
    attempts: dict[int, list[int]] = {}
    for one in found:
        marker = parse_marker_prefix(one.description)
        if marker is None:
            # Somebody changed the description; the tag is still ours.
            attempts.setdefault(item.attempt, []).append(one.id)
        elif (marker.site, marker.job, marker.index) == (site, item.job, item.index):
            attempts.setdefault(marker.attempt, []).append(one.id)
    wanted = len(item.measurement.definitions)
    for attempt in sorted(attempts):
        if len(attempts[attempt]) >= wanted:
            return tuple(sorted(attempts[attempt])[:wanted])
    return ()
