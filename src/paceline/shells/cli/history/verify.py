"""Judges history from the ledger, promise by promise, and prints the result."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from paceline.core.durations import DURATION_RULE, parse_duration_ms
from paceline.core.instants import parse_instant_ms, to_text
from paceline.core.monitors.definition import duration_ms
from paceline.core.verify.facts import Fact
from paceline.core.verify.rules import Rules
from paceline.core.verify.verdict import Verdict
from paceline.errors import FieldProblem, InvalidInput
from paceline.shells.cli import output
from paceline.shells.cli.call import CliCall
from paceline.shells.cli.files import open_input
from paceline.shells.cli.history.receipts import read_lines
from paceline.steps.history.selection import only_batch, only_job
from paceline.steps.history.verify import Select, VerifyReport, export_facts, judge
from paceline.steps.history.verify import verify as verify_step
from paceline.steps.move.stream import Head, read_line

_SPANS = frozenset({"every_ms", "jitter_ms", "lead_ms", "latency_ms", "keep_ms", "expire_ms"})
"""Fields that are lengths of time; all others that end in ``_ms`` are instants."""


def judge_history(
    call: CliCall, file: Path | None, *, since: str | None, batch: str | None, date: str | None, job: str | None
) -> int:
    """Judges the store, or an export, and prints the result. Returns the exit code."""
    select = _selection(batch, date, job)
    settings = call.settings()
    rules = Rules(
        0,
        keep_ms=duration_ms(settings.runs_keep),
        expire_ms=duration_ms(settings.runs_expire),
        lease_ms=duration_ms(settings.check_lease),
    )
    with output.progress_bar("Judging", of_bytes=False) as bar:
        if file is not None:
            report = _judge_export(file, rules, since, select, bar)
        else:
            with call.system(settings) as system:
                rules = _at(rules, since, system.clock.now_ms())
                report = verify_step(system.store, rules, progress=bar, select=select)
    return emit_report(call, report)


def _judge_export(
    file: Path, rules: Rules, since: str | None, select: Select, bar: output.ProgressCallback
) -> VerifyReport:
    """Judges an export as of the time in its first line: nothing in the file is later."""
    with open_input(file) as stream:
        lines = read_lines(stream)
        first = next(lines, b"")
        head = read_line(first, number=1)
        if not isinstance(head, Head):
            raise InvalidInput(f"{file} is no export. For results and their receipt: paceline verify FILE RECEIPT")
        return judge(select(export_facts(chain((first,), lines))), _at(rules, since, head.exported_ms), progress=bar)


def _at(rules: Rules, since: str | None, now_ms: int) -> Rules:
    return rules._replace(now_ms=now_ms, since_ms=_since_ms(since, now_ms=now_ms))


def _selection(batch: str | None, date: str | None, job: str | None) -> Select:
    if date is not None and batch is None:
        raise InvalidInput("--date goes with --batch.")
    if batch is not None and job is not None:
        raise InvalidInput("Give either --batch or --job.")
    if batch is not None:
        return lambda facts: only_batch(facts, batch, date)
    if job is not None:
        return lambda facts: only_job(facts, job)
    return iter


def emit_report(call: CliCall, report: VerifyReport) -> int:
    """Prints the results of the judges, and returns the exit code."""
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
    """Returns a line of the ledger with readable times."""
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
