"""Judges history of monitors with ``paceline verify``: runs a second, and memory, beside one bare read of the rows."""

from __future__ import annotations

import resource
import time

from bench.harness import Context, Result, connect, in_turns, result, transaction
from paceline.adapters.sqlite.keys import CHECKS_LANE, GENERATION_BITS, GENERATION_MASK, LANE_BITS
from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.monitors.checks import HttpCheck
from paceline.core.monitors.definition import MonitorSpec
from paceline.core.monitors.schedule import SLOT_MS
from paceline.core.monitors.values import PutMonitor
from paceline.core.users import User
from paceline.core.verify.rules import Rules
from paceline.steps.history.verify import verify
from paceline.steps.monitors import define

T0_MS = 1_800_000_000_000
MINUTE_MS = 60_000
DAY_MS = 86_400_000
RUNS_EACH = 1_000
RATIO_MIN = 0.05


def run(context: Context) -> list[Result]:
    monitors, rounds = (1_000, 2) if context.full else (100, 3)
    past = _Past(context, monitors)
    rates = in_turns(rounds, {"verify": past.verify, "floor": past.floor})
    size = monitors * RUNS_EACH
    grown_mb = round(past.grown_kib / 1_024, 1)
    row = result("runs judged", size, rates=rates["verify"], floor=rates["floor"], target=RATIO_MIN, grown_mb=grown_mb)
    context.say(f"verify: {row['per_s']:,.0f} runs/s, {grown_mb} MB more than before")
    return [row]


class _Past:
    """A store with settled runs of all monitors, a minute apart, as if every check had taken 40 ms."""

    def __init__(self, context: Context, monitors: int) -> None:
        path = context.file("verify.db")
        self._store = SqliteStore(path, synchronous="normal")
        self._rows = connect(path)
        self._seed(monitors)
        self._now_ms = T0_MS + (RUNS_EACH + 1) * MINUTE_MS
        self.grown_kib = 0

    def verify(self) -> float:
        rules = Rules(self._now_ms, keep_ms=7 * DAY_MS, expire_ms=DAY_MS)
        before_kib, began_s = _peak_kib(), time.perf_counter()
        report = verify(self._store, rules, progress=lambda _done, _total: None)
        took_s = time.perf_counter() - began_s
        self.grown_kib = max(self.grown_kib, _peak_kib() - before_kib)
        assert report.passed, report
        return report.runs / took_s

    def floor(self) -> float:
        """Reads each run with its outcome once, by monitor and in order."""
        began_s, runs = time.perf_counter(), 0
        for _ in self._rows.execute(
            """SELECT generation, counter, due_ms, state, attempt, started_ms, ended_ms, reason
               FROM run JOIN outcome USING (handle) ORDER BY generation, counter"""
        ):
            runs += 1
        return runs / (time.perf_counter() - began_s)

    def _seed(self, monitors: int) -> None:
        self._store.add_user(User("ann", "user", 0, disabled=False, created_ms=T0_MS))
        spec = MonitorSpec(check=HttpCheck(url="http://example.org/"), every="60s", initial_delay="0s")
        puts = [PutMonitor("ann", f"m{number}", spec) for number in range(monitors)]
        define.put_monitors(self._store, puts, monitors_max=monitors, now_ms=T0_MS)
        base, db = CHECKS_LANE << LANE_BITS, self._rows
        with transaction(db):
            for counter in range(RUNS_EACH):
                first, due_ms = base + counter * monitors, T0_MS + counter * MINUTE_MS
                # Generations are numbered from 1, and so are the runs of a queue.
                runs = [
                    (first + of, of, counter, due_ms, first - monitors + of if counter else 0)
                    for of in range(1, monitors + 1)
                ]
                ends = [(row[0], "ok", 1, due_ms, due_ms + 40, 40.0, 200, "", "{}") for row in runs]
                db.executemany("INSERT INTO run VALUES (?, ?, ?, ?, ?)", runs)
                db.executemany("INSERT INTO outcome VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)", ends)
            made = RUNS_EACH * monitors
            later = RUNS_EACH * MINUTE_MS // SLOT_MS << GENERATION_BITS
            db.execute(
                f"""UPDATE due SET k = k + ?, counter = ?,
                       last_run = ? + (k & {GENERATION_MASK})""",  # noqa: S608  a number
                (later, RUNS_EACH, base + made - monitors),
            )
            db.execute(
                "UPDATE lane SET tail = ?, position = ?, ended = ? WHERE id = ?", (made, made, made, CHECKS_LANE)
            )


def _peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
