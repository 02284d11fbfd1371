"""Finds out what became of sends whose answer was lost, before anything is sent again.

A send carries its marker as a tag, so RIPE can be asked for it, under the same account: its lists show nobody else's.
They lag, so what is absent once is looked for a second time, a settle delay later; only then is it sent again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple, assert_never

from paceline.core.atlas import Lost, Marker, Refused, marker_tag, parse_marker_prefix
from paceline.core.leases import given_up_before_ms
from paceline.core.pool import LOOK_AGAIN_MS, backoff_until_ms
from paceline.ports import (
    Atlas,
    Clock,
    JobStore,
    KeyRefused,
    Listed,
    NotSent,
    Paused,
    Rejected,
    SendOutcome,
    Sent,
    StoredMeasurement,
    Unanswered,
    Unsure,
    Vault,
)
from paceline.steps.atlas_answers import cut, pause_for
from paceline.steps.atlas_keys import NoKey, no_key_reason, open_keys
from paceline.steps.dispatch import Desk

ABSENT_ONCE = 1
PARTS_SEEN = 2
"""What ``lookups`` says: 0 nothing yet, 1 that it was absent, from 2 on that parts of it were seen, and how often."""
PART_LOOKS_MAX = 10
KEYS_MAX = 10


class _Found(NamedTuple):
    """All that RIPE lists with its tag."""

    listed: tuple[Listed, ...]


_Reply = _Found | Unanswered | NoKey


class LookedUp(NamedTuple):
    """How many were found and adopted, were absent for the first time, are sent again, and so on."""

    adopted: int = 0
    absent_once: int = 0
    sent_again: int = 0
    unanswered: int = 0
    partly: int = 0
    rejected: int = 0
    stale: int = 0
    """Somebody else was faster."""


def lose_stale_sends(store: JobStore, *, settle_ms: int, now_ms: int) -> int:
    """Those whose sender died before it had an answer become unknown, to be looked up."""
    return store.lose_sends(intent_before_ms=given_up_before_ms(now_ms), look_ms=now_ms + settle_ms)


def look_up(
    store: JobStore,
    atlas: Atlas,
    vault: Vault,
    desk: Desk,
    *,
    clock: Clock,
    chance: Callable[[], float],
    limit: int = 100,
) -> LookedUp:
    """Asks for each unknown one whose time has come. Once RIPE does not answer, the rest is put off unasked."""
    counts: Counter[str] = Counter()
    items = store.to_look_up(now_ms=clock.now_ms(), limit=limit)
    if not items:
        return LookedUp()
    paused, _ = store.gates(())
    off = paused if paused is not None and paused.until_ms > clock.now_ms() else None
    for item in items:
        if off is not None:
            outcome: SendOutcome = Unsure(off.reason, off.until_ms)
            won = store.answer(item.handle, item.attempt, outcome, now_ms=clock.now_ms())
            counts["unanswered" if won else "stale"] += 1
            continue
        found, key_refused = _ask(store, atlas, vault, desk, item)
        now_ms = clock.now_ms()
        outcome, pause = _judge(item, found, paused, desk, now_ms=now_ms, chance=chance())
        if not store.answer(item.handle, item.attempt, outcome, blame=pause or key_refused, now_ms=now_ms):
            counts["stale"] += 1
            continue
        counts[_word(outcome, found)] += 1
        off = pause or _put_off(found, outcome)
    return LookedUp(**counts)


def _ask(
    store: JobStore, atlas: Atlas, vault: Vault, desk: Desk, item: StoredMeasurement
) -> tuple[_Reply, KeyRefused | None]:
    """RIPE's answer; and whether it refuses the key that sent it, which is no answer while there is another key."""
    assert item.account is not None
    tag = marker_tag(Marker(desk.site, item.job, item.index))
    refused: Refused | None = None
    blame: KeyRefused | None = None
    for key in islice(open_keys(store, vault, item.account, prefer=item.key), KEYS_MAX):
        found = atlas.find_by_marker(key.secret, tag)
        if isinstance(found, Lost):
            return found, blame
        if not isinstance(found, Refused):
            return _Found(found), blame
        if found.scope != "key":
            return found, blame
        refused = found
        if key.id == item.key:
            blame = KeyRefused(found.reason)
    return refused or NoKey(no_key_reason(store, vault, item.account)), blame


def _judge(
    item: StoredMeasurement,
    found: _Reply,
    paused: Paused | None,
    desk: Desk,
    *,
    now_ms: int,
    chance: float,
) -> tuple[SendOutcome, Paused | None]:
    match found:
        case NoKey():
            return Unsure(cut(found.reason), now_ms + LOOK_AGAIN_MS), None
        case Lost():
            again_ms = now_ms + (LOOK_AGAIN_MS if found.retry_after_ms is None else found.retry_after_ms)
            return Unsure(cut(f"not looked up: {found.reason}"), again_ms), None
        case Refused():
            reason = cut(f"not looked up: {found.reason}")
            if found.scope != "global":
                return Unsure(reason, now_ms + LOOK_AGAIN_MS), None
            pause = pause_for(paused, found, now_ms=now_ms, chance=chance)
            return Unsure(reason, pause.until_ms), pause
        case _Found():
            return _judge_found(item, found.listed, desk, now_ms=now_ms, chance=chance), None
        case _:
            assert_never(found)


def _judge_found(
    item: StoredMeasurement, found: Sequence[Listed], desk: Desk, *, now_ms: int, chance: float
) -> SendOutcome:
    ids = _whole_set(item, found, desk.site)
    if ids:
        return Sent(ids)
    look_ms = now_ms + desk.settle_ms
    if found or item.lookups >= PARTS_SEEN:
        # RIPE creates all of a request or nothing, so the rest is to be expected in its lists.
        wanted = len(item.measurement.definitions)
        if item.lookups >= PARTS_SEEN + PART_LOOKS_MAX - 1:
            return Rejected(f"RIPE lists {len(found)} of its {wanted} definitions and never the rest; they are stopped")
        lookups = max(item.lookups + 1, PARTS_SEEN)
        return Unsure(f"RIPE lists {len(found)} of its {wanted} definitions", look_ms, lookups)
    if item.lookups < ABSENT_ONCE:
        return Unsure("RIPE does not list it; it is looked for once more", look_ms, ABSENT_ONCE)
    # The first time at once. One that is lost each time must not take turn after turn from the others.
    again_ms = None
    if item.attempt > 1:
        again_ms = backoff_until_ms(item.attempt, now_ms=now_ms, retry_after_ms=None, chance=chance)
    return NotSent("RIPE does not list it: sent again", again_ms)


def _whole_set(item: StoredMeasurement, found: Sequence[Listed], site: str) -> tuple[int, ...]:
    """The ids of all its definitions from one attempt, the earliest that is whole; empty if none is.

    Whatever else carries its tag belongs to nobody: it is found as an orphan and stopped.
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


def _put_off(found: _Reply, outcome: SendOutcome) -> Paused | None:
    """RIPE does not answer now: the others need not wait for as many deadlines to find that out."""
    if isinstance(found, Lost) and isinstance(outcome, Unsure):
        return Paused(outcome.look_ms, 0, outcome.reason)
    return None


def _word(outcome: SendOutcome, found: _Reply) -> str:
    match outcome:
        case Sent():
            return "adopted"
        case NotSent():
            return "sent_again"
        case Rejected():
            return "rejected"
        case Unsure():
            if not isinstance(found, _Found):
                return "unanswered"
            return "absent_once" if outcome.lookups == ABSENT_ONCE else "partly"
        case _:
            assert_never(outcome)
