"""``--watch``: shows a job until it is finished, with bars on a terminal, else with a line for each change."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from paceline.shells.cli.call import CliCall
from paceline.shells.cli.jobs.sources import JobSource
from paceline.shells.cli.output import EXIT_FAILED, EXIT_OK, emit, print_note, print_text
from paceline.shells.cli.text.form import printable
from paceline.steps.views.job_report import JobView, WaitingView

if TYPE_CHECKING:  # rich is slow to import, and `--json` does not need it
    from rich.console import RenderableType

LOOK_S = 0.5
QUIET_S = 10.0
"""After this long without a change, look whether a daemon runs at all."""
FAILURES_SHOWN = 5
BAR_CHARS = 40

Show = Callable[[JobView], None]


class Bar(NamedTuple):
    name: str
    amount: int
    total: int
    style: str


def watch_job(call: CliCall, jobs: JobSource, job_id: str) -> int:
    """Shows the job until it is finished. Returns 0 if all of it succeeded. Ctrl-C ends the watching, not the job."""
    try:
        with _screen(call) as show:
            view = _follow(jobs, job_id, show, call)
    except KeyboardInterrupt:
        print_note(f"\n{job_id} goes on. See it again: paceline job show {job_id} --watch")
        return EXIT_FAILED
    if not call.as_json:
        _print_end(jobs, view)
    return EXIT_OK if view.success else EXIT_FAILED


def bars(view: JobView) -> list[Bar]:
    """Returns the bars of a job: its measurements by state, then its credits."""
    counts, cost = view.counts, view.cost
    states = {
        "queued": (counts.queued + counts.parked, "cyan"),
        "sent": (counts.sending + counts.unknown, "blue"),
        "ongoing": (counts.ongoing, "yellow"),
        "done": (counts.done, "green"),
        "failed": (counts.failed, "red"),
        "cancelled": (counts.cancelled, "magenta"),
    }
    total = sum(count for count, _ in states.values())
    found = [Bar(name, count, total, style) for name, (count, style) in states.items() if count or name != "cancelled"]
    still = cost.reserved - cost.settled - cost.refunded
    credits_ = {"reserved": (still, "cyan"), "settled": (cost.settled, "green"), "refunded": (cost.refunded, "blue")}
    return [*found, *(Bar(name, count, cost.reserved, style) for name, (count, style) in credits_.items())]


def progress_line(view: JobView) -> str:
    """Returns the progress in one line, for logs."""
    parts = [f"{bar.amount} {bar.name}" for bar in bars(view)]
    states, credits_ = parts[:-3], parts[-3:]
    waits = f"; {waiting_text(view.waiting)}" if view.waiting else ""
    return f"{view.job} {view.state}: {', '.join(states)}; credits: {', '.join(credits_)}{waits}"


def waiting_text(waiting: WaitingView) -> str:
    """Returns why the job waits, and until when if that is known."""
    room = f"; room expected at {waiting.expected_room_at}" if waiting.expected_room_at else ""
    again = f"; next try at {waiting.next_try}" if waiting.next_try else ""
    return f"waits: {waiting.reason}{again}{room}"


def _follow(jobs: JobSource, job_id: str, show: Show, call: CliCall) -> JobView:
    seen, since_s, asked = "", time.monotonic(), False
    while True:
        view = jobs.progress(job_id)
        show(view)
        if view.finished:
            return view
        if (now := _moving(view)) != seen:
            seen, since_s = now, time.monotonic()
        elif not asked and time.monotonic() - since_s > QUIET_S:
            asked = True
            _ask_for_daemon(jobs, call)
        time.sleep(LOOK_S)


def _moving(view: JobView) -> str:
    """Returns a text that changes when a daemon makes progress.

    Times of waiting change by themselves, so they are left out.
    """
    return repr((view.state, view.counts, view.cost))


def _ask_for_daemon(jobs: JobSource, call: CliCall) -> None:
    if not jobs.is_worked_on():
        store = f" --store {call.store}" if call.store else ""
        print_note(
            f"Nothing has changed for {QUIET_S:.0f} s, and no daemon runs on this store."
            f" Start one: paceline{store} up (or: paceline{store} worker)"
        )


@contextmanager
def _screen(call: CliCall) -> Iterator[Show]:
    if call.as_json or not sys.stdout.isatty():
        yield _Lines(call)
        return
    from rich.console import Console
    from rich.live import Live

    # Notes appear above the bars: rich catches both streams while it draws.
    with Live(console=Console(highlight=False), refresh_per_second=4) as live:
        yield lambda view: live.update(_drawn(view))


class _Lines:
    """Prints a line when something has changed."""

    def __init__(self, call: CliCall) -> None:
        self._call = call
        self._last = ""

    def __call__(self, view: JobView) -> None:
        now = _moving(view) + (view.waiting.reason if view.waiting else "")
        if now != self._last:
            self._last = now
            emit(self._call, view, progress_line(view))


def _drawn(view: JobView) -> RenderableType:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1))
    for _ in range(3):
        table.add_column(no_wrap=True)
    for bar in bars(view):
        if bar.name == "reserved":
            table.add_row(Text("credits", style="bold"), Text(f"{view.cost.reserved} reserved at first"))
        drawn = ProgressBar(total=max(bar.total, 1), completed=bar.amount, width=BAR_CHARS, complete_style=bar.style)
        drawn.finished_style = bar.style
        table.add_row(Text(bar.name), drawn, Text(f"{bar.amount}/{bar.total}"))
    title = f"{view.job} {view.state}" + (f": {view.title}" if view.title else "")
    parts: list[RenderableType] = [Text(printable(title), style="bold"), table]
    if view.waiting:
        parts.append(Text(printable(waiting_text(view.waiting)), style="yellow"))
    return Group(*parts)


def _print_end(jobs: JobSource, view: JobView) -> None:
    if view.success:
        print_text(f"{view.job} finished: all measurements are done. Results: paceline job results {view.job}")
        return
    print_text(f"{view.job} finished without success: {view.counts.failed} failed, {view.counts.cancelled} cancelled.")
    for index, reason in islice(jobs.failures(view.job), FAILURES_SHOWN):
        print_text(f"  {view.job}/{index}: {reason}")
    if (left := view.counts.failed - FAILURES_SHOWN) > 0:
        print_text(f"  and {left} more: paceline job show {view.job}")
