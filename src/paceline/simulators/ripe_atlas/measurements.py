"""One measurement: its order, its status at an instant, and its results so far."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from paceline.simulators.ripe_atlas.messages import AtlasRequest
from paceline.simulators.ripe_atlas.model import DAY_MS

SPECIFIED, SCHEDULED, ONGOING, STOPPED, FORCED, NO_PROBES, FAILED, ARCHIVED = 0, 1, 2, 4, 5, 6, 7, 8
STATUS_NAMES = {
    SPECIFIED: "Specified",
    SCHEDULED: "Scheduled",
    ONGOING: "Ongoing",
    STOPPED: "Stopped",
    FORCED: "Forced to stop",
    NO_PROBES: "No suitable probes",
    FAILED: "Failed",
    ARCHIVED: "Archived",
}
RUNNING = (SPECIFIED, SCHEDULED, ONGOING)
API = "/api/v2"


class StatusSince(NamedTuple):
    id: int
    since_ms: int


class ProbeDelivery(NamedTuple):
    """Delay from the start to the first result of a probe."""

    after_ms: int
    probe: int


@dataclass(slots=True)
class SimulatedMeasurement:
    """A measurement.

    ``post`` is the number of the request that created it. A result costs ``price``; ``unit`` is the price without the
    factor 2 of one-offs.
    """

    id: int
    post: int
    account: str
    payer: str
    key: str
    definition: dict[str, Any]
    specs: list[dict[str, Any]]
    is_oneoff: bool
    interval_s: int
    created_ms: int
    scheduled_ms: int
    start_ms: int
    stop_ms: int | None
    requested: int
    probes: tuple[int, ...]
    deliveries: tuple[ProbeDelivery, ...]
    unit: int
    price: int
    group_id: int | None = None
    tags: list[str] = field(default_factory=list)
    ended: StatusSince | None = None
    charged_results: int = 0
    _offsets: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.take_deliveries(self.deliveries)

    def take_deliveries(self, deliveries: tuple[ProbeDelivery, ...]) -> None:
        """Set the deliveries, which must be sorted by the moment at which they come."""
        self.deliveries = deliveries
        self._offsets = [one.after_ms for one in deliveries]
        assert self._offsets == sorted(self._offsets)

    @property
    def type(self) -> str:
        return str(self.definition["type"])

    @property
    def target(self) -> str:
        return str(self.definition.get("target") or "")

    @property
    def description(self) -> str:
        return str(self.definition["description"])

    @property
    def is_public(self) -> bool:
        return bool(self.definition.get("is_public", True))

    @property
    def finish_ms(self) -> int | None:
        """Latest moment of a result: the planned end, or an earlier one."""
        if self.ended is None:
            return self.stop_ms
        return self.ended.since_ms if self.stop_ms is None else min(self.ended.since_ms, self.stop_ms)

    @property
    def results_per_day(self) -> int:
        """The usage that RIPE counts, as if every probe answered: all of a one-off, or one day of a periodic one."""
        if self.is_oneoff:
            return self.requested
        length_ms = DAY_MS if self.stop_ms is None else min(DAY_MS, self.stop_ms - self.start_ms)
        return self.requested * -(-length_ms // (self.interval_s * 1_000))

    def status_at(self, now_ms: int) -> StatusSince:
        if self.ended is not None and now_ms >= self.ended.since_ms:
            return self.ended
        if self.stop_ms is not None and now_ms >= self.stop_ms:
            return StatusSince(STOPPED if self.deliveries else FAILED, self.stop_ms)
        if now_ms >= self.start_ms:
            return StatusSince(ONGOING if self.probes else NO_PROBES, self.start_ms)
        if now_ms >= self.scheduled_ms:
            return StatusSince(SCHEDULED, self.scheduled_ms)
        return StatusSince(SPECIFIED, self.created_ms)

    def is_running(self, now_ms: int) -> bool:
        return self.status_at(now_ms).id in RUNNING

    def results_until(self, now_ms: int) -> int:
        """Return how many results have arrived."""
        finish_ms = self.finish_ms
        passed_ms = (now_ms if finish_ms is None else min(now_ms, finish_ms)) - self.start_ms
        if passed_ms < 0:
            return 0
        if self.is_oneoff:
            return bisect_right(self._offsets, passed_ms)
        step_ms = self.interval_s * 1_000
        return sum((passed_ms - offset) // step_ms + 1 for offset in self._offsets if offset <= passed_ms)

    def results_between(self, after_ms: int, until_ms: int) -> int:
        return self.results_until(until_ms) - (self.results_until(after_ms) if after_ms >= self.start_ms else 0)

    def end(self, status: int, now_ms: int) -> bool:
        """End the measurement now and return True; False if it had ended already."""
        if self.status_at(now_ms).id not in (*RUNNING, NO_PROBES):
            return False
        self.ended = StatusSince(status, now_ms)
        return True


def document_of(
    measurement: SimulatedMeasurement, *, at_ms: int, request: AtlasRequest, shown_price: int
) -> dict[str, Any]:
    """Return the measurement as RIPE shows it."""
    m, status = measurement, measurement.status_at(at_ms)
    finish_ms = m.finish_ms if m.ended is not None and at_ms >= m.ended.since_ms else m.stop_ms
    url = request.url(f"{API}/measurements/{m.id}/")
    started = at_ms >= m.start_ms
    own = {name: value for name, value in m.definition.items() if name not in ("tags", "target", "interval")}
    return own | {
        "id": m.id,
        "type": m.type,
        "description": m.description,
        "af": m.definition["af"],
        "target": m.target or None,
        "target_ip": address_of(m) or None,
        "target_asn": None,
        "target_prefix": None,
        "resolved_ips": [address_of(m)] if m.target else None,
        "tags": list(m.tags),
        "is_oneoff": m.is_oneoff,
        "is_public": m.is_public,
        "interval": None if m.is_oneoff else m.interval_s,
        "spread": m.definition.get("spread"),
        "status": {"id": status.id, "name": STATUS_NAMES[status.id], "when": _stamp(status.since_ms)},
        "creation_time": m.created_ms // 1_000,
        "start_time": m.start_ms // 1_000,
        "stop_time": None if finish_ms is None else finish_ms // 1_000,
        "probes_requested": m.requested,
        "probes_scheduled": len(m.probes) if started else 0,
        "participant_count": len(m.probes) if started else None,
        "is_all_scheduled": started and len(m.probes) >= m.requested,
        "credits_per_result": shown_price,
        "estimated_results_per_day": m.results_per_day,
        "group": request.url(f"{API}/measurements/groups/{m.group_id}/") if m.group_id else None,
        "group_id": m.group_id,
        "result": f"{url}results/",
    }


def address_of(measurement: SimulatedMeasurement) -> str:
    """Return the address of the target: always the same made-up one for a name; an address stays as it is."""
    target = measurement.target
    if not target or ":" in target or target.replace(".", "").isdigit():
        return target
    last = sum(target.encode()) % 254 + 1
    return f"198.51.100.{last}" if measurement.definition["af"] == 4 else f"2001:db8:feed::{last:x}"


def _stamp(ms: int) -> str:
    return datetime.fromtimestamp(ms // 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
