"""Folds outcomes into roll-ups, beside bare SQLite; a view of 90 days; and the size of a roll-up."""

from __future__ import annotations

import random
import statistics
import time

from bench.harness import Context, Result, connect, in_turns, result, transaction
from paceline.adapters.sqlite.keys import CHECKS_LANE, LANE_BITS
from paceline.adapters.sqlite.monitors.uptime import FOLD_EVERY
from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.monitors.checks import HttpCheck
from paceline.core.monitors.definition import MonitorSpec
from paceline.core.monitors.uptime.figures import figures
from paceline.core.monitors.uptime.rollup import DAY_MS, EndedRun, Rollup, decode_rollup, encode_rollup, fold
from paceline.core.monitors.values import PutMonitor
from paceline.core.users import User
from paceline.steps.upkeep.fold import RUNS_MAX, fold_runs

T0_MS = 1_800_000_000_000 // DAY_MS * DAY_MS
RUNS_EACH = 2 * FOLD_EVERY
RATIO_MIN = 0.1
DAYS = 90
MINUTE_MS = 60_000


def run(context: Context) -> list[Result]:
    monitors, rounds = (20_000, 5) if context.full else (3_000, 3)
    folding = _Folding(context, monitors)
    rates = in_turns(rounds, {"fold": folding.fold, "floor": folding.floor})
    spent = {"cpu_us": round(statistics.median(folding.cpu_us), 1), "pass_ms_max": round(max(folding.pass_ms), 1)}
    folded = result("outcomes folded", monitors, rates=rates["fold"], floor=rates["floor"], target=RATIO_MIN, **spent)
    rows = [folded, *(_of_days(every_ms) for every_ms in (MINUTE_MS, 5 * MINUTE_MS, 60 * MINUTE_MS))]
    context.say(f"uptime: {folded['per_s']:,.0f} outcomes/s folded, {folded['cpu_us']} us of CPU each")
    return rows


class _Folding:
    """A store with settled runs of all monitors, which alternate in the log as if they fired evenly."""

    def __init__(self, context: Context, monitors: int) -> None:
        path = context.file("uptime.db")
        self._store = SqliteStore(path, synchronous="full")
        self._log, self._bare = connect(path), connect(context.file("floor.db"))
        self._bare.execute("CREATE TABLE uptime (generation INTEGER PRIMARY KEY, counter, rollup)")
        self.cpu_us: list[float] = []
        self.pass_ms: list[float] = []
        self._seed(monitors)

    def fold(self) -> float:
        with transaction(self._log):
            self._log.execute("DELETE FROM uptime")
            self._log.execute("UPDATE lane SET folded = 0")
        folded, more, cpu_s, began_s = 0, True, time.process_time(), time.perf_counter()
        while more:
            pass_s = time.perf_counter()
            done = fold_runs(self._store)
            self.pass_ms.append(1_000 * (time.perf_counter() - pass_s))
            folded, more = folded + done.runs, done.more
        took_s = time.perf_counter() - began_s
        self.cpu_us.append(1_000_000 * (time.process_time() - cpu_s) / folded)
        return folded / took_s

    def floor(self) -> float:
        """Reads every run with its outcome in the order of the log, and writes one row per FOLD_EVERY runs."""
        began_s, handle, runs = time.perf_counter(), 0, 0
        self._bare.execute("DELETE FROM uptime")
        blob = b"r" * 200
        while rows := self._log.execute(
            """SELECT run.handle, generation, counter, due_ms, state, ended_ms, latency_ms, reason
               FROM run JOIN outcome USING (handle) WHERE run.handle > ? ORDER BY run.handle LIMIT ?""",
            (handle, RUNS_MAX),
        ).fetchall():
            handle, runs = rows[-1][0], runs + len(rows)
            turns = [(row[1], row[2], blob) for row in rows if (row[1] + row[2]) % FOLD_EVERY == 0]
            with transaction(self._bare):
                self._bare.executemany("INSERT OR REPLACE INTO uptime VALUES (?, ?, ?)", turns)
        return runs / (time.perf_counter() - began_s)

    def _seed(self, monitors: int) -> None:
        self._store.add_user(User("ann", "user", 0, disabled=False, created_ms=T0_MS))
        spec = MonitorSpec(check=HttpCheck(url="http://example.org/"), every="60s")
        puts = [PutMonitor("ann", f"m{number}", spec) for number in range(monitors)]
        self._store.put_monitors(puts, monitors_max=monitors, now_ms=T0_MS)
        chance, base, db = random.Random(1), CHECKS_LANE << LANE_BITS, self._log
        with transaction(db):
            for counter in range(RUNS_EACH):
                first = base + counter * monitors
                due_ms = T0_MS + counter * MINUTE_MS
                # Generations are numbered from 1, and so are the runs of a queue.
                runs = [
                    (first + of, of, counter, due_ms, first - monitors + of if counter else 0)
                    for of in range(1, monitors + 1)
                ]
                ends = [
                    (row[0], "ok", 1, due_ms, due_ms + 40, chance.lognormvariate(3.7, 0.25), 200, "", "{}")
                    for row in runs
                ]
                db.executemany("INSERT INTO run VALUES (?, ?, ?, ?, ?)", runs)
                db.executemany("INSERT INTO outcome VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)", ends)
            made = RUNS_EACH * monitors
            db.execute(
                "UPDATE lane SET tail = ?, position = ?, ended = ? WHERE id = ?", (made, made, made, CHECKS_LANE)
            )


def _of_days(every_ms: int) -> Result:
    """Measures one monitor with DAYS of runs: the size of its roll-up, and how long a view of it takes."""
    chance = random.Random(1)
    runs = []
    for counter in range(DAYS * DAY_MS // every_ms):
        due_ms, bad = T0_MS + counter * every_ms, chance.random() < 0.0005
        latency_ms = chance.lognormvariate(3.7, 0.25)
        runs.append(EndedRun(counter, due_ms, "failed" if bad else "ok", due_ms + 40, latency_ms, "HTTP 503"))
    text = encode_rollup(fold(Rollup(), runs))
    began_s = time.perf_counter()
    for _ in range(20):
        figures(decode_rollup(text), now_ms=T0_MS + DAYS * DAY_MS)
    per_s = 20 / (time.perf_counter() - began_s)
    return {
        "subject": f"view of {DAYS} days, every {every_ms // 1_000} s",
        "size": len(runs),
        "per_s": round(per_s, 1),
        "bytes_per_day": round(len(text) / DAYS),
    }
