"""Metrics for Prometheus. They name no user, no monitor and no target, so they may be read without a token.

Accounts are named: their ids are chosen by the operator, who must watch how full each is.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from paceline.core.alerts.record import AlertCounts
from paceline.core.jobs.meters import Meter
from paceline.core.jobs.pool import Account
from paceline.core.jobs.values import SendCounts
from paceline.core.store_status import StoreStatus
from paceline.steps.views.report import start_lateness_s

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LATENESS_MS = (5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000)
REFRESH_MS = 1_000
REQUEST_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class _Late:
    """Values of one histogram."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._below = [0] * len(LATENESS_MS)
        self._count = 0
        self._sum_ms = 0

    def observe_many_ms(self, late_ms: Sequence[int]) -> None:
        ordered = sorted(late_ms)
        below = [bisect_right(ordered, bound) for bound in LATENESS_MS]
        total = sum(ordered)
        with self._lock:
            self._below = [old + new for old, new in zip(self._below, below, strict=True)]
            self._count += len(ordered)
            self._sum_ms += total

    def read(self) -> tuple[list[tuple[str, float]], float]:
        """Returns the buckets, and the sum in seconds."""
        with self._lock:
            below, count, total = list(self._below), self._count, self._sum_ms
        buckets = [(str(bound / 1_000), float(n)) for bound, n in zip(LATENESS_MS, below, strict=True)]
        return [*buckets, ("+Inf", float(count))], total / 1_000


class _Lateness(Collector):
    """A histogram that takes thousands of values at once: one sort and a search for each bound."""

    def __init__(self, name: str, text: str, *labels: str) -> None:
        self._name = name
        self._text = text
        self._labels = labels
        self._lock = threading.Lock()
        self._late: dict[tuple[str, ...], _Late] = {} if labels else {(): _Late()}

    def observe_many_ms(self, late_ms: Sequence[int], *labels: str) -> None:
        with self._lock:
            late = self._late.setdefault(labels, _Late())
        late.observe_many_ms(late_ms)

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        with self._lock:
            late = sorted(self._late.items())
        for labels, one in late:
            buckets, sum_s = one.read()
            family.add_metric(labels, buckets, sum_s)
        yield family


class Metrics:
    """All metrics of one process. Safe to use from any thread."""

    def __init__(self, *, version: str = "") -> None:
        self.registry = CollectorRegistry()
        self._lateness = _Lateness("paceline_lateness_seconds", "How far behind its due time each run was made.")
        self._call_lateness = _Lateness(
            "paceline_call_lateness_seconds", "How far behind its due time each run of a batch was first called."
        )
        self._start_lateness = _Lateness(
            "paceline_start_lateness_seconds",
            "How far behind its due time each run of a monitor first started.",
            "kind",
        )
        self.registry.register(self._start_lateness)
        self.registry.register(self._lateness)
        self.registry.register(self._call_lateness)
        self._runs = self._counter("runs", "Settled attempts of runs.", "kind", "outcome")
        self._ticks = self._counter("ticks", "Passes of the tick step that found something due.")
        self._advanced = self._counter("entries_advanced", "Entries that were moved to their next due time.")
        self._lost = self._counter("races_lost", "Advances that another process or an edit had overtaken.")
        self._skipped = self._counter("firings_skipped", "Firings of monitors that made no run.", "reason")
        self._in_flight = self._gauge("in_flight", "Checks and calls to providers that are in flight in this process.")
        self._calls_in_flight = self._gauge("calls_in_flight", "Calls to providers that are in flight in this process.")
        self._calls_waiting = self._gauge("calls_waiting", "Planned runs of batches that have not ended.")
        self._call_age = self._gauge("call_queue_age_seconds", "How long the oldest run of a batch has been due.")
        self._dead = self._gauge("dead_letters", "Runs of batches that wait for somebody to redrive or discard them.")
        self._planned = self._counter("calls_planned", "Runs of batches that were planned.")
        self._waiting = self._gauge("runs_waiting", "Runs that nobody has claimed yet.")
        self._queue_age = self._gauge("queue_age_seconds", "How long the oldest waiting run has been due.")
        self._start_wait = self._gauge("start_wait_seconds", "Longest wait of a run that could start.", "kind")
        self._measurements = self._gauge("measurements", "Measurements of jobs that have not ended.", "state")
        self._jobs_open = self._gauge("jobs_open", "Jobs that are not finished.")
        self._job_age = self._gauge(
            "job_queue_age_seconds", "How long ago the oldest job was submitted that still has something to send."
        )
        self._jobs = self._counter("jobs_finished", "Jobs that this process found to be finished.", "success")
        self._meters = self._gauge(
            "account_meter", "An account's meters: spent, held, limit.", "account", "meter", "figure"
        )
        self._atlas = self._counter("atlas_requests", "Requests to RIPE.", "request", "answer")
        self._webhooks = self._counter("webhook_tries", "Calls to the webhooks of finished jobs.", "outcome")
        self._alerts_open = self._gauge("alerts_open", "Alerts that wait to be told, or that a silence holds back.")
        self._alerts_failed = self._gauge("alerts_failed", "Alerts that a channel did not accept in all its tries.")
        self._alerts = self._counter("alert_tries", "Messages to the channels of users.", "outcome")
        self._store_up = self._gauge("store_up", "1 if a trial write to the store has just succeeded, else 0.")
        self._turns = self._counter("loop_turns", "Turns of each loop.", "loop")
        self._errors = self._counter("loop_errors", "Turns that ended in an error.", "loop")
        self._age = self._gauge("loop_age_seconds", "Time since each loop's last turn.", "loop")
        self._requests = self._counter("http_requests", "Requests answered.", "route", "method", "status")
        self._seconds = Histogram(
            "paceline_http_seconds",
            "Time to answer a request; a long poll counts with its waiting.",
            ["route"],
            buckets=REQUEST_S,
            registry=self.registry,
        )
        self._gauge("build_info", "Always 1; the label says which version runs.", "version").labels(version).set(1)
        self._lock = threading.Lock()
        self._refreshed_ms = 0
        self._out = {"checks": 0, "calls": 0}
        self._request_children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def count_runs(self, kind: str, outcome: str, count: int = 1) -> None:
        """Counts runs by kind and outcome.

        ``kind`` is the kind of the check, or batch or measurement. ``outcome`` is ok, failed, dead or unknown, or retry
        for an attempt that will be repeated. A batch's run is done, failed, unknown, skipped or retry. A measurement
        was sent, unknown, not_sent or rejected, and then ended done, failed or cancelled.
        """
        self._runs.labels(kind, outcome).inc(count)

    def observe_many_ms(self, late_ms: Sequence[int]) -> None:
        """Records how late runs were made."""
        if late_ms:
            self._lateness.observe_many_ms(late_ms)

    def count_tick(self, *, entries: int, lost: int, late_ms: Sequence[int], skipped_by: Mapping[str, int]) -> None:
        """Counts one pass of the tick step."""
        for reason, count in skipped_by.items():
            self._skipped.labels(reason).inc(count)
        self._ticks.inc()
        self._advanced.inc(entries)
        self._lost.inc(lost)
        self.observe_many_ms(late_ms)

    def observe_calls_ms(self, late_ms: Sequence[int]) -> None:
        """Records how late the first calls of batches' runs were."""
        if late_ms:
            self._call_lateness.observe_many_ms(late_ms)

    def observe_starts_ms(self, kind: str, late_ms: Sequence[int]) -> None:
        """Records how late runs of monitors were first claimed. ``kind`` is the kind of the check."""
        if late_ms:
            self._start_lateness.observe_many_ms(late_ms, kind)

    def count_planned(self, runs: int) -> None:
        self._planned.inc(runs)

    def set_in_flight(self, checks: int) -> None:
        self._out["checks"] = checks
        self._in_flight.set(sum(self._out.values()))

    def set_calls_in_flight(self, calls: int) -> None:
        self._out["calls"] = calls
        self._calls_in_flight.set(calls)
        self._in_flight.set(sum(self._out.values()))

    def set_queue(self, *, waiting: int, age_s: float) -> None:
        self._waiting.set(waiting)
        self._queue_age.set(age_s)

    def set_status(self, status: StoreStatus, *, now_ms: int) -> None:
        """Sets the gauges that are read from the store. The queue's age is that of the oldest run of any kind."""
        age_s, call_age_s = (
            0.0 if due_ms is None else max(0.0, (now_ms - due_ms) / 1_000)
            for due_ms in (status.oldest_waiting_due_ms, status.oldest_call_due_ms)
        )
        self.set_queue(waiting=status.runs_waiting, age_s=max(age_s, call_age_s))
        self._calls_waiting.set(status.calls_waiting)
        self._call_age.set(call_age_s)
        self._dead.set(status.dead_letters)
        for kind, late_s in start_lateness_s(status, now_ms=now_ms).items():
            self._start_wait.labels(kind).set(late_s)

    def set_sends(self, counts: SendCounts, *, now_ms: int) -> None:
        """Sets the gauges of jobs and measurements that wait or run."""
        for state in ("queued", "parked", "sending", "unknown", "ongoing"):
            self._measurements.labels(state).set(getattr(counts, state))
        self._jobs_open.set(counts.open_jobs)
        oldest_ms = counts.oldest_ms
        self._job_age.set(0.0 if oldest_ms is None else max(0.0, (now_ms - oldest_ms) / 1_000))

    def set_accounts(self, accounts: Sequence[Account]) -> None:
        """Sets the meters of all accounts, and forgets accounts that were removed."""
        with self._lock:
            self._meters.clear()
            for account in accounts:
                meters = {"concurrent": account.concurrent, "results": account.results, "credits": account.credits}
                for name, meter in meters.items():
                    self._set_meter(account.id, name, meter)

    def _set_meter(self, account: str, name: str, meter: Meter) -> None:
        for figure, value in (("spent", meter.spent), ("held", meter.held), ("limit", meter.limit)):
            self._meters.labels(account, name, figure).set(value)

    def count_job(self, *, success: bool) -> None:
        self._jobs.labels("true" if success else "false").inc()

    def count_atlas(self, request: str, answer: str) -> None:
        """Counts a request to RIPE. ``request`` is the port's method; ``answer`` is answered, refused or lost."""
        self._atlas.labels(request, answer).inc()

    def count_webhook(self, outcome: str) -> None:
        """Counts a try of a webhook. ``outcome`` is ok, retry or given_up."""
        self._webhooks.labels(outcome).inc()

    def count_alert(self, outcome: str) -> None:
        """Counts a try of an alert. ``outcome`` is ok, retry or given_up."""
        self._alerts.labels(outcome).inc()

    def set_alerts(self, counts: AlertCounts) -> None:
        """Sets how many alerts are open, and how many could not be told."""
        self._alerts_open.set(counts.open)
        self._alerts_failed.set(counts.failed)

    def take_refresh(self, now_ms: int, *, every_ms: int = REFRESH_MS) -> bool:
        """True for one caller in this time, who refreshes the gauges that cost a read of the store."""
        with self._lock:
            if 0 <= now_ms - self._refreshed_ms < every_ms:
                return False
            self._refreshed_ms = now_ms
            return True

    def set_store_up(self, up: int) -> None:
        """Sets the gauge to 1 or 0."""
        self._store_up.set(up)

    def count_turn(self, loop: str) -> None:
        self._turns.labels(loop).inc()

    def count_loop_error(self, loop: str) -> None:
        self._errors.labels(loop).inc()

    def set_loop_ages(self, ages_s: Iterable[tuple[str, float]]) -> None:
        for loop, age_s in ages_s:
            self._age.labels(loop).set(age_s)

    def count_request(self, *, route: str, method: str, status: int, seconds: float) -> None:
        """Counts a request. ``route`` is the template of the path, so that the number of series is bounded."""
        key = (route, method, status)
        children = self._request_children.get(key)
        if children is None:
            children = (self._requests.labels(route, method, str(status)), self._seconds.labels(route))
            self._request_children[key] = children
        children[0].inc()
        children[1].observe(seconds)

    def names(self) -> list[str]:
        """Returns the names of all metrics as they are exposed."""
        return sorted(
            f"{family.name}_total" if family.type == "counter" else family.name for family in self.registry.collect()
        )

    def render(self) -> bytes:
        """Returns the metrics in the text format, whose type is CONTENT_TYPE."""
        return generate_latest(self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"paceline_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"paceline_{name}", text, labels, registry=self.registry)
