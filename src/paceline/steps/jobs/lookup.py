"""Lookups of sends whose answer was lost, before anything is sent again.

A send carries its marker as a tag, so RIPE can be asked for it with a key of the same account. ``core.jobs.lookups``
decides what RIPE's reply means.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from paceline.core.jobs.atlas import Lost, Marker, Refused, marker_tag
from paceline.core.jobs.lookups import ListedWithTag, NoKey, Reply, judge_lookup, lookup_result, put_off
from paceline.core.jobs.values import KeyRefused, SendOutcome, StoredMeasurement, Unsure
from paceline.core.leases import given_up_before_ms
from paceline.ports import Atlas, Clock, JobStore, Vault
from paceline.steps.jobs.atlas_keys import no_key_reason, open_keys
from paceline.steps.jobs.dispatch import DispatchSettings

KEYS_MAX = 10


class LookedUp(NamedTuple):
    """Number of measurements that were found and adopted, were absent for the first time, are sent again, and so on."""

    adopted: int = 0
    absent_once: int = 0
    sent_again: int = 0
    unanswered: int = 0
    partly: int = 0
    rejected: int = 0
    stale: int = 0
    """Number of those that another process answered for first."""


def lose_stale_sends(store: JobStore, *, settle_ms: int, now_ms: int) -> int:
    """Mark sends as unknown whose sender died before it had an answer; they are looked up. Return how many."""
    return store.lose_sends(intent_before_ms=given_up_before_ms(now_ms), look_ms=now_ms + settle_ms)


def look_up(
    store: JobStore,
    atlas: Atlas,
    vault: Vault,
    settings: DispatchSettings,
    *,
    clock: Clock,
    chance: Callable[[], float],
    limit: int = 100,
) -> LookedUp:
    """Ask RIPE for each unknown measurement that is due. Once RIPE does not answer, the rest is put off unasked."""
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
        found, key_refused = _ask(store, atlas, vault, settings, item)
        now_ms = clock.now_ms()
        outcome, pause = judge_lookup(
            item, found, paused, site=settings.site, settle_ms=settings.settle_ms, now_ms=now_ms, chance=chance()
        )
        if not store.answer(item.handle, item.attempt, outcome, effect=pause or key_refused, now_ms=now_ms):
            counts["stale"] += 1
            continue
        counts[lookup_result(outcome, found)] += 1
        off = pause or put_off(found, outcome)
    return LookedUp(**counts)


def _ask(
    store: JobStore, atlas: Atlas, vault: Vault, settings: DispatchSettings, item: StoredMeasurement
) -> tuple[Reply, KeyRefused | None]:
    """Return RIPE's reply, and its refusal of the key that sent the measurement. Each key of the account is tried."""
    assert item.account is not None
    tag = marker_tag(Marker(settings.site, item.job, item.index))
    refused: Refused | None = None
    effect: KeyRefused | None = None
    for key in islice(open_keys(store, vault, item.account, prefer=item.key), KEYS_MAX):
        found = atlas.find_by_marker(key.secret, tag)
        if isinstance(found, Lost):
            return found, effect
        if not isinstance(found, Refused):
            return ListedWithTag(found), effect
        if found.scope != "key":
            return found, effect
        refused = found
        if key.id == item.key:
            effect = KeyRefused(found.reason)
    return refused or NoKey(no_key_reason(store, vault, item.account)), effect
