"""ETAs of a job: when it begins, and when its last measurement ends, whether that runs or is still to be sent.

The assumptions are those of ``core.why.send_eta``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from paceline.core.jobs.atlas import deadline_ms, expected_end_ms
from paceline.core.jobs.measurement import is_oneoff
from paceline.core.jobs.meters import MINUTE_MS
from paceline.core.jobs.values import StoredMeasurement
from paceline.core.leases import POST_MS_MAX
from paceline.core.why.chain import Eta
from paceline.core.why.send_eta import EARLY_MS, LATE_MS, LOST_MS

KINDS_MAX = 10
"""Maximum number of kinds of waiting measurements; a job with more has no ETA."""


class KindOfSend(NamedTuple):
    """A waiting measurement of its kind, and how many of its job are queued before it."""

    item: StoredMeasurement
    own: int


class KindsOfSends(NamedTuple):
    """First and last of each kind of a job's waiting measurements."""

    first: list[KindOfSend]
    last: list[KindOfSend]


def kinds_of_sends(items: Sequence[StoredMeasurement]) -> KindsOfSends | None:
    """Return the kinds of waiting measurements; ``items`` are a job's in order. None: there are too many."""
    first: dict[object, KindOfSend] = {}
    last: dict[object, KindOfSend] = {}
    queued = 0
    for item in items:
        if item.state not in ("queued", "parked"):
            continue
        kind = (item.cost, item.measurement.stop_time, item.next_ms, item.passed_ms is None)
        last[kind] = KindOfSend(item, queued)
        first.setdefault(kind, last[kind])
        queued += item.state == "queued"
        if len(first) > KINDS_MAX:
            return None
    return KindsOfSends(list(first.values()), list(last.values()))


def begin_eta(sends: Iterable[Eta | None]) -> Eta | None:
    """Return when the first of these is sent; those with an unknown time may be sooner or later."""
    known = [eta for eta in sends if eta is not None]
    return Eta(min(eta.from_ms for eta in known), min(eta.to_ms for eta in known)) if known else None


def end_eta(items: Iterable[StoredMeasurement], sends: Iterable[Eta | None], *, now_ms: int) -> Eta | None:
    """Return when the last of these measurements and sends has ended; None: that is not known.

    ``items``: the open measurements of a job that do not wait. ``sends``: from ``sent_eta``.
    """
    ends = [*(_runs_until(item, now_ms) for item in items), *sends]
    known = [eta for eta in ends if eta is not None]
    if not known or len(known) < len(ends):
        return None
    return Eta(max(eta.from_ms for eta in known), max(eta.to_ms for eta in known))


def sent_eta(item: StoredMeasurement, send: Eta | None) -> Eta | None:
    """Return when a measurement that is sent then ends. All its results may be there at once."""
    if send is None:
        return None
    latest_ms = expected_end_ms(item.measurement, sent_ms=send.to_ms + POST_MS_MAX) + LATE_MS
    usual_ms = expected_end_ms(item.measurement, sent_ms=send.from_ms)
    soonest_ms = send.from_ms if _is_once(item) else max(usual_ms - EARLY_MS, send.from_ms)
    return Eta(soonest_ms, max(latest_ms, soonest_ms))


def _runs_until(item: StoredMeasurement, now_ms: int) -> Eta | None:
    """Return when a measurement that is on its way or runs has ended; None: nobody knows whether it was sent."""
    if item.state == "sending":
        return sent_eta(item, Eta(now_ms, now_ms + LOST_MS))
    if item.state != "ongoing" or item.answered_ms is None:
        return None
    usual_ms = expected_end_ms(item.measurement, sent_ms=item.intent_ms or item.answered_ms)
    latest_ms = usual_ms + LATE_MS
    if usual_ms <= now_ms:
        latest_ms = max(deadline_ms(item.measurement, sent_ms=item.answered_ms), now_ms) + 2 * MINUTE_MS
    soonest_ms = now_ms if _is_once(item) or item.stopping else max(usual_ms - EARLY_MS, now_ms)
    return Eta(soonest_ms, max(latest_ms, soonest_ms))


def _is_once(item: StoredMeasurement) -> bool:
    return all(is_oneoff(item.measurement, one) for one in item.measurement.definitions)
