"""``python -m bench [NAME ...] [--json] [--full] [--list] [--docs] [--strict] [--beside REVISION [--rounds N]]``."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.harness import Context, Result, machine, work_folder

BENCHES = {
    "tick": "due entries to committed entries and runs, against bare SQLite",
    "edit": "put, replace and delete of one monitor; bulk put, against bare SQLite",
    "lists": "a page of each filtered list of monitors at a million, against that at a thousand",
    "ahead": "the next hours of a million monitors, against those of a thousand",
    "lateness": "the real daemon with 100,000 monitors firing at 1,000 per second",
    "scale": "the real daemon with checkers that claim and never settle; status and purge at that size",
    "checks": "HTTP checks per CPU-second of the whole daemon, against a bare pycurl loop",
    "fairness": "one user beside 2,000 hanging monitors of another, and beside another who reads lists all the time",
    "rest": "single monitor PUTs per second over REST, against the same server without a store",
    "client": "CPU of a request through the Python client, against bare httpx",
    "verify": "history judged by paceline verify, against one read of the rows",
    "uptime": "outcomes folded into roll-ups, against bare SQLite; the size of a roll-up",
    "plan": "a million records imported, and planned into a day's runs, against bare SQLite; memory",
    "dispatch": "claim to result with one, a hundred and ten thousand providers, against bare SQLite",
    "day": "a day of a million records on a virtual clock, with the real engine and model providers",
    "spread": "how evenly a batch's day and monitors' phases are, beside random times, hashes and windows; their cost",
    "submit": "a job of 1,000 measurements: validated, priced, admitted, against bare SQLite",
    "pool": "decisions per second with 100 accounts, and how evenly they are used",
    "aws": "requests to DynamoDB and SQS for each firing, planned record and measurement, beside the least",
    "peers": "the same firing work on APScheduler 3 and 4, Huey and DBOS",
}
QUICK = (
    "tick",
    "edit",
    "lists",
    "ahead",
    "lateness",
    "scale",
    "checks",
    "fairness",
    "rest",
    "client",
    "uptime",
    "verify",
    "plan",
    "dispatch",
    "day",
    "spread",
    "submit",
    "pool",
    "aws",
)
"""Benchmarks that run if none is named; the peers come with --full."""
LEADING = ("subject", "size", "per_s", "ratio_to_floor", "target", "met")


def main() -> int:
    arguments = _parse()
    if arguments.list:
        for name, text in BENCHES.items():
            print(f"{name:10s} {text}")
        return 0
    names = arguments.names or (list(BENCHES) if arguments.full else list(QUICK))
    if arguments.beside:
        return _compare(arguments, names)
    reports = [_measure(name, full=arguments.full, as_json=arguments.json) for name in names]
    if arguments.docs:
        from bench.page import write

        print(f"wrote {write(reports)}", file=sys.stderr)
    missed = [row for report in reports for row in report["results"] if row.get("met") is False]
    return 1 if arguments.strict and missed else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHES))
    parser.add_argument("--json", action="store_true", help="one JSON object per benchmark instead of a table")
    parser.add_argument("--full", action="store_true", help="larger sizes, more rounds, and the peers")
    parser.add_argument("--list", action="store_true", help="name the benchmarks and stop")
    parser.add_argument("--docs", action="store_true", help="write docs/benchmarks.md and its plot")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument(
        "--beside", metavar="REVISION", help="run another revision of this repository in turns, and compare"
    )
    parser.add_argument("--rounds", type=int, default=3, help="with --beside: how often each of the two runs")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(BENCHES):
        parser.error(f"no benchmark named {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}")
    if arguments.rounds < 1:
        parser.error("--rounds must be at least 1")
    return arguments


def _compare(arguments: argparse.Namespace, names: list[str]) -> int:
    from bench.beside import compare

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    for name, rows in compare(arguments.beside, names, rounds=arguments.rounds, full=arguments.full, say=say):
        if arguments.json:
            print(json.dumps({"bench": name, "beside": arguments.beside, "results": rows}), flush=True)
        else:
            Console().print(_table(f"{name}, beside {arguments.beside}", rows))
    return 0


def _measure(name: str, *, full: bool, as_json: bool) -> dict[str, Any]:
    module = importlib.import_module(f"bench.{name}")
    with work_folder() as folder:
        report = {"bench": name, "machine": machine(folder), "results": module.run(Context(full=full, folder=folder))}
    if as_json:
        print(json.dumps(report), flush=True)
    else:
        _show(report)
    return report


def _show(report: dict[str, Any]) -> None:
    rows: list[Result] = report["results"]
    host = report["machine"]
    caption = (
        f"{host['date']} · {host['cpu']} · {host['cores']} cores · Python {host['python']} · SQLite {host['sqlite']}"
    )
    Console().print(_table(report["bench"], rows, caption=caption))


def _table(title: str, rows: list[Result], *, caption: str | None = None) -> Table:
    columns = [name for name in LEADING if any(name in row for row in rows)]
    columns += sorted({name for row in rows for name in row} - set(columns))
    table = Table(title=title, caption=caption)
    for name in columns:
        table.add_column(name, justify="left" if name == "subject" else "right")
    for row in rows:
        table.add_row(*(_cell(row.get(name)) for name in columns))
    return table


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "NO"
        case float() if abs(value) >= 1_000:
            return f"{value:,.0f}"
        case int():
            return f"{value:,}"
        case _:
            return str(value)


if __name__ == "__main__":
    sys.exit(main())
