"""All that a store shows to people and programs, as functions of the store and the time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from paceline.adapters.vault import SecretVault
from paceline.core.batches.batch import Day
from paceline.core.batches.values import DeadChoice
from paceline.core.ids import call_run_id
from paceline.core.monitors.definition import Monitor
from paceline.ports import Store
from paceline.steps.batches.redrive import list_dead
from paceline.steps.move import move_out
from paceline.steps.move.stream import obstacles
from paceline.steps.views import account_report, job_report, report
from paceline.steps.views import days as day_views
from paceline.steps.views.uptime import uptime_view

LIMIT = 1_000
VAULT = SecretVault(b"v" * 32)


def exported(store: Store, now_ms: int) -> list[Any]:
    """The stream of lines that moves to another store, with its counts."""
    lines: list[Any] = []
    counts = move_out.export(store, VAULT, lambda line: lines.append(msgspec.json.decode(line)), now_ms=now_ms)
    return [*lines, counts]


def monitors(store: Store, now_ms: int) -> list[Any]:
    found = list(_monitors(store))
    return [*found, *report.monitor_views(store, found, now_ms=now_ms)]


def runs(store: Store, now_ms: int) -> list[Any]:
    return [report.monitor_runs(store, one, before=None, limit=LIMIT, now_ms=now_ms)[0] for one in _monitors(store)]


def uptimes(store: Store, now_ms: int) -> list[Any]:
    return [uptime_view(store, one, now_ms=now_ms) for one in _monitors(store)]


def schedulers(store: Store, now_ms: int) -> list[Any]:
    found = store.schedulers(after_generation=0, limit=LIMIT, now_ms=now_ms)
    return [report.scheduler_view(one) for one in found]


def status(store: Store, now_ms: int) -> Any:
    return report.status_view(store, now_ms=now_ms)


def under_way(store: Store, now_ms: int) -> list[Any]:
    """What is out, and what stands in the way of a move."""
    return [store.leases(now_ms=now_ms), obstacles(store, now_ms=now_ms)]


def providers(store: Store, now_ms: int) -> list[Any]:
    found = store.providers(after="", limit=LIMIT)
    return [report.provider_view(store, one, now_ms=now_ms) for one in found]


def batches(store: Store, now_ms: int) -> list[Any]:
    return [report.batch_view(one, now_ms=now_ms) for one in store.batches(after="", limit=LIMIT)]


def days(store: Store, now_ms: int) -> list[Any]:
    """Each day's report and its runs, each with why it waits."""
    shown: list[Any] = []
    for day in _days(store):
        found, following = store.day_runs(day, state=None, provider=None, after=0, limit=LIMIT)
        names = sorted(call_run_id(run.batch, run.record, run.date) for run in found)
        shown += [day_views.day_report(store, day), following]
        shown += [day_views.show_call_run(store, name, now_ms=now_ms) for name in names]
    return shown


def dead_letters(store: Store, now_ms: int) -> list[Any]:
    del now_ms
    found = list_dead(store, DeadChoice(), after=0, limit=LIMIT)
    return sorted((day_views.call_run_view(run) for run in found.runs), key=lambda view: view.run)


def accounts(store: Store, now_ms: int) -> list[Any]:
    """As they are shown, and with all that is known of their meters."""
    views = account_report.account_views(store, now_ms=now_ms)
    return [*views, *(store.account(view.id, now_ms=now_ms) for view in views)]


def jobs(store: Store, now_ms: int) -> list[Any]:
    found = store.jobs(None, before=None, limit=LIMIT)
    shown: list[Any] = [*found, store.send_counts(), store.gates(["192.0.2.1"])]
    summaries, _ = job_report.job_summaries(store, None, before=None, limit=LIMIT, now_ms=now_ms)
    shown += summaries
    for job in found:
        shown += [
            job_report.job_view(store, job, now_ms=now_ms),
            store.job_counts(job.number),
            list(job_report.job_measurements(store, job)),
        ]
    return shown


def budgets(store: Store, now_ms: int) -> list[Any]:
    """Of each user, with the measurements of all of the user's jobs."""
    shown: list[Any] = []
    for user in store.users(after="", limit=LIMIT):
        shown += [user, job_report.budget_view(store, user.id, now_ms=now_ms)]
        shown += [store.measurements_of(user.id, states=(), before=None, limit=LIMIT)]
        shown += [store.count_of(user.id, states=("queued", "parked", "ongoing"))]
    return shown


def _days(store: Store) -> Iterator[Day]:
    for batch in store.batches(after="", limit=LIMIT):
        yield from store.days(batch, before=None, limit=LIMIT)


def _monitors(store: Store) -> Iterator[Monitor]:
    for user in store.users(after="", limit=LIMIT):
        yield from store.monitors(user.id, after="", limit=LIMIT)


ALL: dict[str, Callable[[Store, int], Any]] = {
    "the export": exported,
    "the monitors": monitors,
    "the runs of monitors": runs,
    "the uptimes of monitors": uptimes,
    "the schedulers": schedulers,
    "the providers": providers,
    "the batches": batches,
    "the days of batches": days,
    "the dead letters": dead_letters,
    "the accounts": accounts,
    "the jobs": jobs,
    "the users and their budgets": budgets,
    "the status": status,
    "what is under way": under_way,
}
