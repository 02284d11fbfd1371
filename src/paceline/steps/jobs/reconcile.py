"""Reconciliation: measurements at RIPE under this installation's marker that no job follows are stopped and reported.

The opposite case, a measurement that is followed here and that RIPE no longer has, is noticed by ``follow``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from paceline.core.jobs.atlas import Lost, Marker, Refused, parse_marker_prefix, parse_marker_tag, site_tag
from paceline.core.jobs.atlas_replies import ListedMeasurement, Unanswered
from paceline.core.jobs.pool import Account
from paceline.core.jobs.values import StoredMeasurement
from paceline.core.verify.facts import StrayFact
from paceline.ports import Atlas, Clock, JobStore, Store, Vault
from paceline.steps.history.notes import note_stray
from paceline.steps.jobs.account_queries import Quarantined, Trouble, ask_as_owner
from paceline.steps.jobs.account_walk import walk_accounts

Why = Literal["its job is not in the store", "it is not the one that its measurement became", "its measurement ended"]


class Orphan(msgspec.Struct, frozen=True):
    """A measurement that no job follows.

    ``stopped`` is False if RIPE did not take the order; the next pass gives it again.
    """

    account: str
    atlas_id: int
    job: str
    index: int
    why: Why
    stopped: bool


class Reconciled(NamedTuple):
    asked: int = 0
    """Number of accounts that RIPE was asked about."""
    left: int = 0
    """Number of measurements that are not known yet, and left to a lookup."""
    orphans: tuple[Orphan, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    paused_until_ms: int | None = None


def reconcile(store: Store, atlas: Atlas, vault: Vault, *, site: str, settle_ms: int, clock: Clock) -> Reconciled:
    """Look once at every account, also at disabled ones, which may still have measurements running."""

    def visit(report: Reconciled, account: Account) -> tuple[Reconciled, Unanswered | None]:
        # Read before the question: a process that is held up afterwards has an old list, and must not take it for new.
        young_ms = clock.now_ms() - settle_ms
        asked = ask_as_owner(store, vault, account.id, lambda key: atlas.running_by_marker(key, site_tag(site)))
        report = report._replace(quarantined=report.quarantined + asked.quarantined)
        if isinstance(asked.answer, Refused | Lost):
            trouble = Trouble(account.id, asked.answer.reason)
            return report._replace(troubles=(*report.troubles, trouble)), asked.answer
        strays, left = _strays(store, asked.answer, site=site, young_ms=young_ms)
        report = report._replace(asked=report.asked + 1, left=report.left + left)
        for listed, marker, why in strays:
            if why == "it is not the one that its measurement became":
                seen_ms = clock.now_ms()
                note_stray(store, StrayFact(account.id, listed.id, marker.job, marker.index, seen_ms))
            report, failed = _stop(atlas, asked.key.secret, account.id, listed, marker, why, report)
            if failed is not None:
                return report, failed
        return report, None

    report, paused_until_ms = walk_accounts(store, Reconciled(), visit, clock=clock)
    return report._replace(paused_until_ms=paused_until_ms)


def _strays(
    store: JobStore, running: Sequence[ListedMeasurement], *, site: str, young_ms: int
) -> tuple[list[tuple[ListedMeasurement, Marker, Why]], int]:
    """Return measurements that nobody follows, and how many are left to a lookup. The store is read after RIPE's list.

    So everything in the list is in the store at least as an intent; only its ids may still be on their way.
    """
    found: list[tuple[ListedMeasurement, Marker, Why]] = []
    left = 0
    for listed in running:
        marker = _marker_of(listed, site)
        if marker is None:
            continue
        item = _item_of(store, marker)
        if item is None:
            found.append((listed, marker, "its job is not in the store"))
        elif listed.id not in {one.atlas_id for one in item.atlas}:
            if item.state in ("sending", "unknown") or (item.intent_ms or 0) > young_ms:
                left += 1
            else:
                found.append((listed, marker, "it is not the one that its measurement became"))
        elif item.ended_ms is not None and item.ended_ms <= young_ms and not item.running:
            found.append((listed, marker, "its measurement ended"))  # else ``follow`` handles it
    return found, left


def _marker_of(listed: ListedMeasurement, site: str) -> Marker | None:
    """Return the marker from the description; if somebody changed that, from the last tag, which is ours, too.

    A user's own text comes before or after those, and may look like the marker of another measurement.
    """
    tags = (parse_marker_tag(tag) for tag in reversed(listed.tags))
    marker = parse_marker_prefix(listed.description) or next((one for one in tags if one is not None), None)
    return marker if marker is not None and marker.site == site else None


def _item_of(store: JobStore, marker: Marker) -> StoredMeasurement | None:
    job = store.job(marker.job)
    page = [] if job is None else store.measurements(job.number, after=marker.index - 1, limit=1)
    return page[0] if page and page[0].index == marker.index else None


def _stop(
    atlas: Atlas, key: str, account: str, listed: ListedMeasurement, marker: Marker, why: Why, report: Reconciled
) -> tuple[Reconciled, Unanswered | None]:
    answer = atlas.stop(key, listed.id)
    failed = answer if isinstance(answer, Refused | Lost) else None
    # Refused because of the id: RIPE has no such measurement any more, so there is nothing left to stop.
    gone = isinstance(failed, Refused) and failed.scope == "request"
    orphan = Orphan(account, listed.id, marker.job, marker.index, why, stopped=failed is None or gone)
    report = report._replace(orphans=(*report.orphans, orphan))
    if failed is None or gone:
        return report, None
    return report._replace(troubles=(*report.troubles, Trouble(account, failed.reason))), failed
