"""Writes docs/benchmarks.md: the measured figures, with machine, versions and date, and two plots."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.harness import HERE, Result
from bench.phases import plot as plot_phases
from bench.spread import plot as plot_spread

DOCS = HERE.parent / "docs"
PAGE = DOCS / "benchmarks.md"
FOLDER = DOCS / "benchmarks"
RECORD = FOLDER / "results.json"
TITLES = {
    "tick": "Tick: due entries to committed entries and runs",
    "edit": "Edit: put, replace, delete",
    "lists": "Lists: a page of monitors, filtered and sorted",
    "ahead": "Ahead: the next hours of everybody's monitors",
    "lateness": "Lateness of the real daemon",
    "scale": "Claimed and never settled",
    "checks": "HTTP checks per CPU-second",
    "fairness": "Fairness: one user's checks and requests beside another's",
    "rest": "REST writes",
    "client": "The Python client",
    "uptime": "Uptime: outcomes folded into roll-ups",
    "verify": "Verify: history judged from the ledger",
    "plan": "Plan: a day of a million records, and their import",
    "dispatch": "Dispatch: a batch's runs from claim to result",
    "day": "A whole day on a virtual clock",
    "spread": "Spread: how even a batch's day and monitors of one interval are",
    "submit": "Submit: a job of a thousand measurements",
    "pool": "The pool of accounts",
    "aws": "Requests to DynamoDB and SQS",
    "peers": "Beside its peers",
}
NOTES = {
    "tick": """\
Batches of 1,000, `synchronous=FULL`. The floor inserts the same run rows and moves as many neighbouring rows with
one statement, in one transaction a batch. The runs stand in the queues of 100 owners; in the row without a target one
in five is outgoing.""",
    "edit": """\
Through the step that the API calls. The floor writes exactly the rows that the work leaves behind, by rowid, with
one commit.""",
    "lists": """\
The first page of 100 of each list, in CPU time, at a million monitors and at a thousand; half of them are one user's.
The ratio counts a page of less than 1 ms as one of 1 ms. A page that finds few or none has looked at as many monitors
as a page may, and has a cursor to go on with. The first rows: how fast the keeper brings new monitors into the
indexes.""",
    "ahead": """\
The whole answer for an admin, in CPU time, at a million monitors and at a thousand: intervals from 10 s to a day, 72
cron times with their zones, and delays of their own. Found are firings.""",
    "lateness": """\
`paceline up` on a file, monitors of kind `outgoing` with random phases, and a checker that claims every run over
REST while it is measured.""",
    "scale": """\
`paceline up` on a file with monitors of kind `outgoing`; two checkers claim 1,000 runs at a time over REST and settle
none, until each monitor has a run out. Lateness is read from the daemon's histogram, so it is a bound: the p99 is at
most that. Then `status` is asked on the same file, and all runs are ended and deleted in passes as the daemon makes
them, with a pause after each that is as long as the pass.""",
    "checks": """\
All CPU time of `paceline up` counts; the HTTP server is another process. The floor is the cheaper of two bare pycurl
loops doing the same requests on kept-alive connections, taken in moments in which the daemon is stopped. In waves the
daemon is busy, with as many requests in flight as the floor; evenly spread it is nearly idle, each commit carries few
runs, and a check costs more. The target is read on the waves only; evenly spread, 0.4 has never been reached. In
flight are 500, the default setting; with 200 the ratio was lower. The floor swings widely from run to run on a shared
machine: the last waves gave 0.50, 0.56 and 0.61 on a quiet machine, 0.41, 0.46 and 0.47 beside other work.""",
    "fairness": """\
`paceline up` with 500 places. One user has 2,000 monitors that fire each second at a server that never answers, with a
time-out of 60 s; another has 20 that fire each second. How late the other's checks start, beside the same alone. A
firing that came to no start counts as late by the whole time. What is in flight is read at the end. Below: how long a
list of ten monitors, and a put, take while another user reads 60 lists of 1,000 at a time, without a pause.""",
    "rest": """\
64 connections, `synchronous=FULL`. The floor is the same server and the same parsing, without a store.""",
    "client": """\
Requests for each second of the client process's CPU, one after the other on a kept-alive connection, to the real API in
a process of its own. The floor is bare httpx with the same request, which reads the same JSON into dictionaries; the
client reads it into typed values. The cost ratio is the client's CPU over the floor's.""",
    "verify": """\
`paceline verify` on a store of settled runs, 1,000 of each monitor, beside one read of the same rows in the same order.
`grown_mb` is how much the process's peak of memory rose meanwhile.""",
    "uptime": """\
Passes as the keeper makes them, without its pauses, on a file with `synchronous=FULL`; the log has 128 runs of each
monitor, one after the other. The floor reads every run with its outcome in the order of the log and writes a row of 200
bytes for each 64 of them, with as many commits. The CPU is that of one folded outcome. A view decodes the roll-up of a
monitor and computes all its figures; its size is how many runs are in it.""",
    "plan": """\
Over 1,000 providers, `synchronous=FULL`, through the steps. The floor inserts exactly the rows that are left behind,
each table in the order of its own keys, ready-made, without further indexes. Import is from JSON text. The target for
import is read on names in order; names in no order miss it, because a unique index then writes random pages: beside
that row stands a bare table with the same index.""",
    "dispatch": """\
Claim to result with one call at a time for each provider, `synchronous=FULL`, settlement and next claim in one act. The
floor does one insert, one update by rowid and one delete by rowid for each run, ready-made, with the same batches: one
run for one provider, a hundred for a hundred, a thousand for ten thousand.""",
    "day": """\
Planner and caller turn by turn through a day, with the real steps on a real file; the providers are modelled in the
same process: most calls end well, a few are refused, a few find the provider unavailable. Commits do not wait for the
disk here.""",
    "submit": """\
`synchronous=FULL`, through the step that the API calls. The floor inserts the rows that a submission leaves behind,
ready-made, in one transaction.""",
    "pool": """\
Decisions over 100 accounts. Below, two rules on the same arrivals, for 30 hours, with four accounts that nobody else
uses, against the simulator over loopback with the lag of its model: Paceline's steps, and local counters that are
overwritten with RIPE's figures once no key was asked for in 30 seconds. What is over is the most that an account would
have gone beyond its limits beside a RIPE that refuses nothing.""",
    "spread": """\
The largest gap between two runs over the ideal one, for all runs together and for the provider that is worst off, and
the runs in the fullest minute, on a fresh plan of one day. Also how long the pure plan takes, and its memory. Below are
phases of interval monitors: the fullest second, and the largest gap over the ideal one at the host that is worst off,
after an import; the fullest second ever while one is removed at random and one added, 4,000 times; and the CPU time of
one more monitor beside few and many.""",
    "aws": """\
How many requests each unit of work takes on the engine of DynamoDB and SQS, counted by a hook in boto3 against an
emulator; nothing here was run on AWS. The size is how many units were done together; fewer at once take more requests
each. The floor is the least that could carry the same items in AWS's own batches: 100 actions to a transaction, 25 puts
to a batch, 100 keys to a read, 10 messages to a send. Write units are what DynamoDB bills for items of up to 1 KB,
without what it copies to indexes; a transaction's count twice. Requests are what is paid and what waits, so nothing is
timed: how fast an emulator is says nothing about AWS.""",
    "peers": """\
Saturation: every schedule is overdue and fires once. Load: firings are evenly spread; what did not fire counts with
the time it has been waiting. *Due to claimable* is the run made and durable; *due to settled* also claims it and
records its outcome, which the peers do not. On time: 99 of 100 within a second.""",
}
COLUMNS = {
    "subject": "",
    "size": "size",
    "providers": "providers",
    "whole_ratio": "largest gap ÷ ideal",
    "provider_ratio": "worst provider's",
    "hosts": "hosts",
    "worst_second": "fullest second",
    "ideal_second": "ideal second",
    "host_ratio": "worst host's",
    "worst_minute": "worst minute",
    "ideal_minute": "ideal minute",
    "version": "version",
    "per_s": "per second",
    "due_per_s": "due per second",
    "floor_per_s": "floor",
    "requests": "requests",
    "least": "at least",
    "ratio_to_floor": "of the floor",
    "ratio": "ratio",
    "page_ms": "page ms",
    "found": "found",
    "page_ms_small": "page ms at 1,000",
    "found_small": "found at 1,000",
    "cost_ratio": "cost ratio",
    "value": "value",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "max_ms": "max ms",
    "longest_ms": "longest pass ms",
    "owed": "owed",
    "in_flight": "in flight",
    "out": "runs out",
    "waiting": "runs waiting",
    "cores": "cores",
    "missing": "missing",
    "sent": "sent",
    "credits": "credits",
    "refused": "refused by RIPE",
    "over_credits": "credits over",
    "over_slots": "slots over",
    "dynamodb": "to DynamoDB",
    "sqs": "to SQS",
    "write_units": "write units",
    "because": "the least is",
    "cpu_us": "CPU µs each",
    "pass_ms_max": "longest pass ms",
    "bytes_per_day": "bytes a day",
    "cpu_share": "CPU share",
    "rss_mb": "MB",
    "on_time": "on time",
    "target": "target",
    "met": "met",
    "cannot": "cannot",
}
TEXTS = frozenset({"subject", "because", "cannot"})
HIDDEN = {"aws": frozenset({"per_s"})}
"""Figures that a benchmark measures and the page does not show: the emulator's speed is of no use to anybody."""


def write(reports: Iterable[dict[str, Any]]) -> Path:
    """Writes the page. Benchmarks that were not run again keep their last figures, with their own date."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    known |= {report["bench"]: report for report in reports}
    RECORD.write_text(json.dumps(known, indent=1) + "\n")
    PAGE.write_text(text(known))
    if "spread" in known:
        plot_spread(FOLDER)
        plot_phases(FOLDER)
    if "peers" in known:
        _plot_saturation(known["peers"]["results"])
        _plot_lateness(known["peers"]["results"])
    return PAGE


def text(known: Mapping[str, dict[str, Any]]) -> str:
    """Returns the page of these reports, by the benchmark's name."""
    return "\n".join([_opening(), *(_section(known[name]) for name in TITLES if name in known)])


def _opening() -> str:
    return """# Benchmarks

Written by `make bench-full`. Absolute figures depend on the machine and on what else runs on it; ratios are taken
within one run, floor and subject in turns, and carry further. A *floor* is the least that must be done for the same
result: bare SQLite with the same driver, disk, durability, batch size and bytes, or a bare loop of the same library.
One benchmark alone: `.venv/bin/python -m bench NAME` (`--list` names them, `--json` is for programs).
"""


def _section(report: dict[str, Any]) -> str:
    name = report["bench"]
    rows: list[Result] = report["results"]
    lines = [f"## {TITLES[name]}", "", NOTES[name], "", f"*{_machine(report['machine'])}*", ""]
    for work in dict.fromkeys(row.get("work", "") for row in rows):
        heading = [f"### {work[0].upper()}{work[1:]}", ""] if work else []
        shown = [row for row in rows if row.get("work", "") == work]
        lines += [*heading, _table(shown, hidden=HIDDEN.get(name, frozenset())), ""]
    if name == "spread":
        lines += ["![Runs in each minute of a day](benchmarks/spread.svg)", ""]
        lines += ["![Checks in each second of a minute](benchmarks/phases.svg)", ""]
    if name == "peers":
        lines += ["![Firings per second at saturation](benchmarks/saturation.svg)", ""]
        lines += ["![Lateness under load](benchmarks/lateness.svg)", ""]
        lines += [*_verdicts(rows), ""]
    if missed := [row for row in rows if row.get("met") is False]:
        lines += ["Not met: " + "; ".join(f"{row['subject']} at {row['size']:,}" for row in missed) + ".", ""]
    return "\n".join(lines)


def _verdicts(rows: Sequence[Result]) -> list[str]:
    """Returns who was on time, and who needed less memory, from the table: also if it does not favour Paceline."""
    loads = [row for row in rows if str(row.get("work", "")).startswith("load")]
    lines = []
    for size, work in dict.fromkeys((row["size"], row["work"]) for row in loads):
        here = [row for row in loads if (row["size"], row["work"]) == (size, work)]
        on_time = [row["subject"] for row in here if row.get("on_time")]
        ours_mb = max((row["rss_mb"] for row in here if row["subject"].startswith("Paceline")), default=0)
        leaner = [f"{row['subject']} ({row['rss_mb']:,} MB)" for row in here if row.get("rss_mb", ours_mb) < ours_mb]
        lines.append(
            f"- {size:,} schedules, {work}. On time: {'; '.join(on_time) or 'nobody'}."
            f" With less memory than Paceline's {ours_mb:,.0f} MB: {'; '.join(leaner) or 'nobody'}."
        )
    return lines


def _table(rows: Sequence[Result], *, hidden: frozenset[str]) -> str:
    columns = [name for name in COLUMNS if name not in hidden and any(name in row for row in rows)]
    header = "| " + " | ".join(COLUMNS[name] for name in columns) + " |"
    rule = "|" + "|".join("---" if name in TEXTS else "--:" for name in columns) + "|"
    body = ["| " + " | ".join(_cell(row.get(name)) for name in columns) + " |" for row in rows]
    return "\n".join([header, rule, *body])


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "**no**"
        case float() if abs(value) >= 100:
            return f"{value:,.0f}"
        case float() if abs(value) >= 10:
            return f"{value:,.1f}"
        case int():
            return f"{value:,}"
        case _:
            return str(value).replace("|", "\\|")


def _machine(host: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {host[name]}" for name in ("paceline", "apsw", "pycurl", "uvicorn") if name in host)
    return (
        f"{host['date']} · {host['cpu']}, {host['cores']} cores, {host['memory_gb']} GB, {host['system']},"
        f" {host['file_system']}, load {host['load_1m']} at the start · Python {host['python']},"
        f" SQLite {host['sqlite']}, {versions}"
    )


# -- plots


def _plot_saturation(rows: Sequence[Result]) -> None:
    measured = [row for row in rows if row.get("work") == "saturation" and row.get("per_s")]
    axes = _axes()
    for subject in dict.fromkeys(row["subject"] for row in measured):
        points = [(row["size"], row["per_s"]) for row in measured if row["subject"] == subject]
        _line(axes, subject, points)
    axes.set(xscale="log", yscale="log", xlabel="schedules", ylabel="firings per second", title="Firings at saturation")
    _save(axes, "saturation.svg")


def _plot_lateness(rows: Sequence[Result]) -> None:
    loads = [row for row in rows if str(row.get("work", "")).startswith("load") and row.get("p99_ms") is not None]
    axes = _axes()
    works = list(dict.fromkeys((row["size"], row["work"]) for row in loads))
    for subject in dict.fromkeys(row["subject"] for row in loads):
        points = [
            (works.index((row["size"], row["work"])), row["p99_ms"]) for row in loads if row["subject"] == subject
        ]
        _line(axes, subject, points)
    axes.axhline(1_000, color="grey", linewidth=0.8, linestyle=":")
    axes.set_xticks(range(len(works)), [f"{size:,} schedules\n{work}" for size, work in works])
    axes.set(yscale="log", ylabel="p99 lateness, ms", title="Lateness under load (dotted: one second)")
    axes.margins(x=0.15)
    _save(axes, "lateness.svg")


def _axes() -> Axes:
    axes: Axes = Figure(figsize=(8, 4.8), layout="constrained").add_subplot()
    axes.grid(visible=True, which="major", linewidth=0.4)
    return axes


def _line(axes: Axes, subject: str, points: Sequence[tuple[float, float]]) -> None:
    ours = subject.startswith("Paceline")
    axes.plot(*zip(*points, strict=True), label=subject, marker="o", linewidth=2.4 if ours else 1.2)


def _save(axes: Axes, name: str) -> None:
    """Saves the plot. The same figures give the same bytes."""
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure = axes.get_figure()
    assert isinstance(figure, Figure)
    with mpl.rc_context({"svg.hashsalt": "paceline"}):
        figure.savefig(FOLDER / name, metadata={"Date": None})
