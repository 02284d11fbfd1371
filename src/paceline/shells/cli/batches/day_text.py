"""A batch's day, and the preview of a day, as text: figures, a chart, and a table of providers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from paceline.core.batches.calls import CallState
from paceline.shells.cli.output import Columns, TextFields, TextNote, TextTable, table
from paceline.shells.cli.text.columns import ident, word
from paceline.steps.views.days import CALL_STATES, DayReport, EvennessView, ProviderDay, WindowView

if TYPE_CHECKING:
    from paceline.steps.batches.preview import Preview

ROW_WINDOWS = 24
BARS = " ▁▂▃▄▅▆▇█"
PROVIDERS_SHOWN = 50


def day_text(report: DayReport) -> Iterator[TextFields | TextTable | TextNote | str]:
    totals = [f"{count} {state}" for state, count in report.totals.items() if count]
    yield TextFields(
        [
            ("batch", report.batch),
            ("date", f"{report.date} ({report.state})"),
            ("window", f"{report.start} to {report.end}"),
            ("runs", report.runs),
            ("totals", totals),
            *_evenness_fields(report.evenness),
        ]
    )
    yield from _chart(report.histogram)
    shown = report.providers[:PROVIDERS_SHOWN]
    states = [state for state in CALL_STATES if any(one.totals[state] for one in shown)]
    columns: Columns = {
        "PROVIDER": ident("provider"),
        "RUNS": word("runs"),
        **{state.upper(): word(_runs_in(state), 1) for state in states},
        "IDEAL GAP": word(lambda one: _gap_text(one.evenness.ideal_gap_ms), 3),
        "MAX GAP": word(lambda one: _gap_text(one.evenness.max_gap_ms), 2),
    }
    yield table(columns, shown)
    if len(report.providers) > len(shown) or report.next_cursor is not None:
        yield TextNote("There are more providers: paceline batch runs --provider PROVIDER shows one")
    if report.outside:
        yield TextNote(f"{report.outside} runs are due outside the window.")


def preview_text(shown: Preview) -> Iterator[TextFields | TextTable | TextNote | str]:
    yield TextFields(
        [
            ("batch", shown.batch),
            ("date", f"{shown.date} (not planned by this)"),
            ("window", f"{shown.start} to {shown.end}"),
            ("records", shown.records),
            ("already planned", shown.already),
            *_evenness_fields(shown.evenness),
        ]
    )
    yield from _chart(shown.histogram)
    yield table(_PREVIEW_COLUMNS, shown.providers[:PROVIDERS_SHOWN])
    if (left := len(shown.providers) - PROVIDERS_SHOWN) > 0:
        yield TextNote(f"and {left} more providers; --json shows them")
    for warning in shown.warnings[:PROVIDERS_SHOWN]:
        yield TextNote(f"warning: {warning.provider}: {warning.detail}")


def _evenness_fields(figures: EvennessView) -> list[tuple[str, Any]]:
    largest, ideal = _gap_text(figures.max_gap_ms), _gap_text(figures.ideal_gap_ms)
    gaps = f"{largest} at most, {ideal} ideal, ratio {figures.ratio:.2f}"
    return [("gap", gaps), ("worst minute", f"{figures.worst_minute_runs} runs")]


def _runs_in(state: CallState) -> Callable[[ProviderDay], int]:
    return lambda day: day.totals[state]


def _chart(histogram: list[WindowView]) -> Iterator[str]:
    """Yields rows of marks between empty lines. Each mark is a window; each row says when it begins."""
    most = max((window.runs for window in histogram), default=0)
    whole = all(window.start[17:19] == "00" for window in histogram)
    yield ""
    for first in range(0, len(histogram), ROW_WINDOWS):
        row = histogram[first : first + ROW_WINDOWS]
        bars = "".join(BARS[-(-window.runs * (len(BARS) - 1) // most) if most else 0] for window in row)
        yield f"{row[0].start[11 : 16 if whole else 19]}Z |{bars:<{ROW_WINDOWS}}| {sum(window.runs for window in row)}"
    yield ""


def _gap_text(ms: float) -> str:
    """Returns the time between two runs, in a suitable unit."""
    if ms < 1_000:
        return f"{ms:.0f} ms"
    seconds = ms / 1_000
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


_PREVIEW_COLUMNS: Columns = {
    "PROVIDER": ident("provider"),
    "RECORDS": word("records"),
    "IDEAL GAP": word(lambda one: _gap_text(one.gap_ms), 1),
    "MAX GAP": word(lambda one: _gap_text(one.max_gap_ms), 2),
    "AT ONCE": word("max_in_flight", 5),
    "RATE": word("rate", 3),
    "LATENCY": word(lambda one: None if one.latency_ms is None else _gap_text(one.latency_ms), 4),
}
