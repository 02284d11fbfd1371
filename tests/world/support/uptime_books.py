"""The uptime of a monitor as the ledger's books have it, beside what the store says."""

from __future__ import annotations

from collections import Counter

from paceline.core.monitors.outcome import Done
from paceline.core.monitors.uptime.rollup import EndedRun, days_until
from paceline.ports import Store
from tests.support.uptime_oracle import naive_days, naive_incidents
from tests.world.support.ledger import Life, demand


def judge_uptime(store: Store, life: Life, *, now_ms: int) -> None:
    """Every outcome that the store ever took is in the uptime, once, also if its run was purged since."""
    ended = _ended(life)
    [rollup] = store.uptimes([life.monitor], now_ms=now_ms)
    days = {
        number: (day.good_ms, day.known_ms, day.ok, day.failed, day.incidents, Counter(day.latencies))
        for number, day in days_until(rollup, now_ms).items()
    }
    books = naive_days(ended, now_ms)
    demand(10, days == books, f"{life.name}: the uptime has {days}, the books {books}")
    incidents = [(one.began_ms, one.ended_ms, one.reason) for one in rollup.incidents]
    told = naive_incidents(ended)[-100:]
    demand(10, incidents == told, f"{life.name}: the uptime has the incidents {incidents}, the books {told}")


def _ended(life: Life) -> list[EndedRun]:
    return [
        EndedRun(run.counter, run.due_ms, "ok" if done.ok else "failed", run.ended_ms, done.latency_ms, done.reason)
        for run in sorted(life.runs.values(), key=lambda run: run.counter)
        if isinstance(done := run.outcome, Done)
    ]
