"""``paceline verify``: judges history from the ledger, promise by promise."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from paceline.core.durations import DURATION_RULE, parse_duration_ms
from paceline.core.instants import parse_instant_ms, to_text
from paceline.core.monitors.definition import duration_ms
from paceline.core.verify.facts import Fact
from paceline.core.verify.rules import Rules
from paceline.core.verify.verdict import Verdict
from paceline.errors import FieldProblem, InvalidInput
from paceline.shells.cli import output
from paceline.shells.cli.call import Call, command
from paceline.steps.history.verify import Report
from paceline.steps.history.verify import verify as verify_step

SinceOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="Judge runs due since then: 2026-11-18, 2026-11-18T09:00:00Z, or 24h for the last day."
    ),
]
_SPANS = frozenset({"every_ms", "jitter_ms", "lead_ms", "latency_ms", "keep_ms", "expire_ms"})
"""Lengths of time; what else ends in ``_ms`` is an instant."""


def register(app: typer.Typer) -> None:
    command(app, "verify")(verify)


def verify(call: Call, *, since: SinceOption = None) -> int:
    """Judge history from the ledger: once, in order, on the grid, nothing lost. Exits with 1 if a promise was broken.

    It adds up, orders and compares the stored rows anew. For a backup, give its file with --store.
    """
    settings = call.settings()
    with call.system(settings) as system:
        now_ms = system.clock.now_ms()
        rules = Rules(
            now_ms,
            since_ms=_since_ms(since, now_ms=now_ms),
            keep_ms=duration_ms(settings.runs_keep),
            expire_ms=duration_ms(settings.runs_expire),
        )
        with output.progress_bar("Judging", of_bytes=False) as bar:
            report = verify_step(system.store, rules, progress=bar)
    return emit_report(call, report)


def emit_report(call: Call, report: Report) -> int:
    """Prints what the judges say, and returns the exit code."""
    document = {
        "ok": report.passed,
        "runs": report.runs,
        "promises": [_document(verdict) for verdict in report.verdicts],
    }
    output.emit(call, document, *(line for verdict in report.verdicts for line in _text(verdict)))
    return output.EXIT_OK if report.passed else output.EXIT_FAILED


def _document(verdict: Verdict) -> dict[str, Any]:
    found = verdict.smallest
    example = None if found is None else {"says": found.says, "lines": msgspec.to_builtins(found.lines)}
    return {
        "promise": verdict.promise,
        "judged": verdict.judged,
        "broken": verdict.broken,
        "passed": verdict.passed,
        "counterexample": example,
    }


def _text(verdict: Verdict) -> list[str]:
    result = "PASS" if verdict.passed else f"BROKEN {verdict.broken:,} times"
    lines = [f"{verdict.promise:<13} {verdict.judged:>13,} facts  {result if verdict.judged else 'nothing to judge'}"]
    if verdict.smallest is not None:
        lines.append(f"  {verdict.smallest.says}:")
        lines += [f"    {line_text(fact)}" for fact in verdict.smallest.lines]
    return lines


def line_text(fact: Fact) -> str:
    """Returns a line of the ledger for people, its times readable."""
    document = msgspec.to_builtins(fact)
    kind = document.pop("kind")
    return " ".join([kind, *(f"{_name(name)}={_value(name, value)}" for name, value in document.items())])


def _name(name: str) -> str:
    return name if name in _SPANS else name.removesuffix("_ms")


def _value(name: str, value: Any) -> Any:
    is_instant = name.endswith("_ms") and name not in _SPANS and isinstance(value, int)
    return to_text(value) if is_instant else value


def _since_ms(text: str | None, *, now_ms: int) -> int:
    if text is None:
        return 0
    if (span_ms := parse_duration_ms(text)) is not None:
        return now_ms - span_ms
    instant_ms = parse_instant_ms(text if "T" in text else f"{text}T00:00:00Z")
    if instant_ms is None:
        rule = f"write a day (2026-11-18), a time in UTC (2026-11-18T09:00:00Z), or {DURATION_RULE}"
        raise InvalidInput.of(FieldProblem("--since", rule))
    return instant_ms
