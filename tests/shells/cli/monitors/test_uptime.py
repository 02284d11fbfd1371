"""``paceline monitor uptime``."""

from __future__ import annotations

from contextlib import closing

from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.monitors.uptime.rollup import EndedRun, Rollup, fold, moved
from paceline.wiring import SystemClock
from tests.shells.cli.support.program import Program

MINUTE_MS = 60_000


def with_outcomes(program: Program) -> None:
    """Ten minutes, the sixth of them bad."""
    program.ok("user", "add", "alice")
    program.ok("monitor", "set", "web", "--url", "https://example.org/", "--every", "60s", "--paused")
    with closing(SqliteStore(str(program.folder / "paceline.db"))) as store:
        monitor = store.monitor("alice", "web")
        assert monitor is not None
        begin_ms = SystemClock().now_ms() - 60 * MINUTE_MS
        runs = []
        for at in range(11):
            at_ms, good = begin_ms + at * MINUTE_MS, at != 5
            runs.append(EndedRun(at, at_ms, "ok" if good else "failed", at_ms, 40.0, "" if good else "HTTP 503"))
        assert store.put_rollups([(monitor.generation, moved(fold(Rollup(), runs)))]) == 1


def test_uptime_is_shown_in_percent_with_latencies_and_incidents(program: Program) -> None:
    with_outcomes(program)
    shown = program.ok("monitor", "uptime", "web").splitlines()
    assert [line.split() for line in shown[:4]] == [
        ["good", window, "92.307", "%"] for window in ("1d", "7d", "30d", "90d")
    ]
    assert shown[4].split()[:2] == ["latency", "p50"]
    assert shown[-1].endswith("HTTP 503")
    told = program.json("monitor", "uptime", "web")
    assert told["7d"] == 12 / 13
    assert len(told["incidents"]) == 1


def test_uptime_is_written_as_csv_to_a_file_and_to_stdout(program: Program) -> None:
    with_outcomes(program)
    written = program.json("monitor", "uptime", "web", "--csv", "days.csv")
    lines = (program.folder / "days.csv").read_text().splitlines()
    assert written == {"file": "days.csv", "days": len(lines) - 1}
    assert lines[0].startswith("date,share,good_s,known_s,ok,failed,incidents,p50")
    assert program.ok("monitor", "uptime", "web", "--csv", "-").splitlines() == lines


def test_uptime_of_a_monitor_that_is_not_there_ends_with_three(program: Program) -> None:
    program.ok("user", "add", "alice")
    assert program.run("monitor", "uptime", "web").code == 3
