"""The screen of ``paceline top``: lines that fit the terminal, with trouble first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from paceline.core.instants import to_text
from paceline.shells.cli.output import Columns, table
from paceline.shells.cli.text import fit
from paceline.shells.cli.text.columns import ident, when, word, words
from paceline.shells.cli.text.form import Form, Piece, draw_table, printable
from paceline.shells.cli.top.facts import TopFacts
from paceline.shells.cli.upkeep import is_running
from paceline.steps.views.account_report import AccountView
from paceline.steps.views.job_report import JobSummary
from paceline.steps.views.report import ProviderView
from paceline.steps.views.running_days import RunningDay
from paceline.steps.views.service_report import ServiceStatus

STYLES = {"failing": "red", "late": "yellow", "closed": "red", "paused": "yellow", "full": "yellow", "failed": "red"}
BAR = 12
ROWS_LEAST = 2
"""Least rows of a section on a small terminal, besides its headings; with less room it is left out."""
LATE_S = 10.0
Line = list[Piece]


class Section(NamedTuple):
    title: str
    columns: Columns
    views: Sequence[Any]
    more: bool = False
    """True if there are more rows than were read."""


def draw(facts: TopFacts, form: Form, *, height: int | None, trouble: str = "") -> list[Line]:
    """Returns the lines of the screen.

    With a height, sections are shortened until all fit, the least important first.
    """
    width = form.width
    head = [_line(text, style, width) for text, style in _head(facts, form, trouble)]
    drawn = [(one, draw_table(form, *table(one.columns, one.views), STYLES).lines) for one in _sections(facts)]
    if height is None:
        return [*head, *(line for one, lines in drawn for line in _section(one, lines, len(lines), width))]
    left = max(height - len(head), 0)
    wanted = _rooms([len(lines) for _, lines in drawn], left)
    parts = [
        line for (one, lines), room in zip(drawn, wanted, strict=True) for line in _section(one, lines, room, width)
    ]
    return [*head, *parts][:height]


def _rooms(sizes: Sequence[int], left: int) -> list[int]:
    """Shares lines between sections: a few for each in order of importance, then the rest in the same order."""
    beside = 2  # an empty line and the title
    rooms = [0] * len(sizes)
    for n, size in enumerate(sizes):
        least = min(size, ROWS_LEAST + 1)
        if left >= least + beside:
            rooms[n], left = least, left - least - beside
    for n, size in enumerate(sizes):
        more = min(size - rooms[n], left) if rooms[n] else 0
        rooms[n], left = rooms[n] + more, left - more
    return rooms


def _section(section: Section, lines: Sequence[Line], room: int, width: int | None) -> Iterator[Line]:
    if not room or not lines:
        return
    hidden = len(lines) - room
    more = f" (first {room - 1} of {len(section.views)}{'+' if section.more else ''})" if hidden > 0 else ""
    yield []
    yield _line(section.title + (more or (" (and more)" if section.more else "")), "bold underline", width)
    yield from lines[:room]


def _line(text: str, style: str, width: int | None) -> Line:
    shown = printable(text)
    return [Piece(shown if width is None else fit.cut(shown, width), style)]


def _head(facts: TopFacts, form: Form, trouble: str) -> Iterator[tuple[str, str]]:
    status = facts.status
    yield f"Paceline  {to_text(form.now_ms)[11:19]} UTC  {status.store if status else ''}".rstrip(), "bold"
    if trouble:
        yield trouble, "red"
    if status is not None:
        yield from _daemons(status)
    yield _sentence(facts), "red" if facts.wrong else "green"
    if status is not None:
        yield from ((text, "") for text in _figures(status))
    due = facts.next_hour
    yield f"next hour: {due.checks} checks ({due.checks / 60:.0f} a minute), {due.calls} calls, {due.sends} sends", ""


def _daemons(status: ServiceStatus) -> Iterator[tuple[str, str]]:
    running = [one for one in status.daemons if is_running(one)]
    gone = len(status.daemons) - len(running)
    if not running:
        yield "No daemon runs on this store: nothing fires and nothing is sent. Start one: paceline up", "red"
        return
    where = ", ".join(one.url or f"worker {one.pid} on {one.host}" for one in running[:3])
    more = f" and {len(running) - 3} more" if len(running) > 3 else ""
    yield f"{_count(len(running), 'daemon')}: {where}{more}" + (f"; {gone} gone" if gone else ""), ""


def _sentence(facts: TopFacts) -> str:
    """Returns a sentence that says what is wrong, or that nothing is."""
    found = {health: sum(one.monitor.health == health for one in facts.wrong) for health in ("failing", "late")}
    some = "+" if facts.more_wrong else ""
    parts = [
        f"{count}{some} {'monitor' if count == 1 else 'monitors'} {health}" for health, count in found.items() if count
    ]
    parts += (
        [f"{_count(closed, 'provider')} closed"] if (closed := sum(_is_closed(one) for one in facts.providers)) else []
    )
    return ", ".join(parts) if parts else "Everything is on time."


def _figures(status: ServiceStatus) -> Iterator[str]:
    whose = f"{_count(status.monitors, 'monitor')} of {_count(status.users, 'user')}"
    yield f"checks: {status.runs_waiting} waiting, {status.runs_out} out, late by {status.late_s:.1f} s; {whose}"
    states = ", ".join(f"{count} {state}" for state, count in status.measurements.items() if count)
    calls = f"batches: {status.calls_waiting} waiting, {_count(status.dead_letters, 'dead letter')}"
    yield f"{calls}; jobs: {status.jobs_open} open{f', measurements: {states}' if states else ''}"
    if late := ", ".join(f"{kind} {late_s:.0f} s" for kind, late_s in status.start_late_s.items() if late_s >= LATE_S):
        yield f"starts are late: {late}"
    if status.alerts_failed:
        yield f"{_count(status.alerts_failed, 'alert')} could not be delivered: paceline alert list"


def _sections(facts: TopFacts) -> list[Section]:
    """Returns the sections that have something to show, the most important first."""
    busy = [one for one in facts.providers if one.standing.waiting or one.standing.in_flight or _is_closed(one)]
    busy.sort(key=lambda one: (not _is_closed(one), -one.standing.in_flight, -one.standing.waiting, one.id))
    found = [
        Section("Failing and late monitors", WRONG_COLUMNS, facts.wrong, facts.more_wrong),
        Section("Providers at work", PROVIDER_COLUMNS, busy, facts.more_providers),
        Section("Batches today", DAY_COLUMNS, facts.days),
        Section("Jobs", JOB_COLUMNS, [one for one in facts.jobs if not one.finished]),
        Section("RIPE Atlas accounts", ACCOUNT_COLUMNS, facts.accounts),
    ]
    return [one for one in found if one.views]


def _progress_of_day(day: RunningDay) -> str:
    ended = day.runs - sum(day.totals[state] for state in ("waiting", "out", "retry", "aside"))
    return f"{bar(ended, day.runs)} {ended}/{day.runs}"


def _progress_of_job(job: JobSummary) -> str:
    ended = job.measurements - job.open
    return f"{bar(ended, job.measurements)} {ended}/{job.measurements}"


def _credits(account: AccountView) -> str:
    usage = account.usage.daily_credits
    return f"{bar(usage.limit - usage.left, usage.limit)} {usage.left} left"


def bar(amount: int, total: int) -> str:
    """Returns a bar of BAR characters. It is full only when everything is done."""
    done = min(max(amount * BAR // total, 0), BAR) if total else 0
    return "█" * done + "░" * (BAR - done)


def _is_closed(provider: ProviderView) -> bool:
    return provider.standing.state == "closed"


def _count(amount: int, one: str) -> str:
    return f"{amount} {one}" if amount == 1 else f"{amount} {one}s"


WRONG_COLUMNS: Columns = {
    "HEALTH": word("monitor.health"),
    "USER": ident("monitor.user", 2),
    "MONITOR": ident("monitor.id"),
    "SINCE": when("monitor.failing_since", 3),
    "REASON": words("reason", 1),
}
PROVIDER_COLUMNS: Columns = {
    "PROVIDER": ident("id"),
    "STATE": word("standing.state"),
    "IN FLIGHT": word(lambda one: f"{one.standing.in_flight} of {one.max_in_flight}"),
    "WAITING": word("standing.waiting", 1),
    "NEXT DUE": when("standing.next_due", 2),
    "REASON": words("standing.reason", 3),
}
DAY_COLUMNS: Columns = {
    "BATCH": ident("batch"),
    "DATE": word("date", 3),
    "PROGRESS": word(_progress_of_day),
    "BEHIND": word("behind", 1),
    "FAILED": word(lambda day: day.totals["failed"], 2),
    "ENDS": when(lambda day: "paused" if day.paused else day.eta.to if day.eta else "ended", 1),
}
JOB_COLUMNS: Columns = {
    "JOB": ident("job"),
    "USER": ident("user", 2),
    "STATE": word("state"),
    "PROGRESS": word(_progress_of_job),
    "FAILED": word("failed", 1),
    "TITLE": words("title", 3),
}
ACCOUNT_COLUMNS: Columns = {
    "ACCOUNT": ident("id"),
    "STATE": word("state"),
    "CREDITS OF THE DAY": word(_credits),
    "AT ONCE": word(lambda one: f"{one.usage.concurrent.held} of {one.usage.concurrent.limit}", 1),
    "REASON": words("reason", 2),
}
