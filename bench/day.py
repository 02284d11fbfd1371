"""A day of a million records on a virtual clock: the real steps on a real file, against model providers."""

from __future__ import annotations

import heapq
import time
from array import array
from datetime import date
from random import Random

from bench.dispatch import OpenVault
from bench.harness import Context, Result, collect_seldom, judged, percentile
from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.batches.batch import Batch, BatchSpec, RecordSpec, window_of
from paceline.core.batches.calls import CallResult
from paceline.core.batches.provider import ProviderSpec
from paceline.core.batches.spread import evenness
from paceline.core.batches.values import PutProvider
from paceline.steps.batches.call import Fence, ProviderBook, SentCall, settle_and_claim
from paceline.steps.batches.plan import plan_due

RECORDS, RECORDS_QUICK = 1_000_000, 100_000
PROVIDERS = 1_000
IMPORT_PAGE = 10_000
TURN_MS = 500
"""How often the virtual sender looks; no start can be more exact than this."""
LEASE_MS = 30_000
IN_FLIGHT_MAX = 2_000
WALL_S_MAX = 300.0
DAY = date(2027, 3, 1)
REFUSED, UNAVAILABLE = 0.000_5, 0.002
"""Shares of calls that are refused for good, and that find their provider unavailable."""


def run(context: Context) -> list[Result]:
    size = RECORDS if context.full else RECORDS_QUICK
    simulation = Simulation(context.file("day.db"), size)
    imported_s = simulation.fill()
    context.say(f"day: {size:,} records imported in {imported_s:.0f} s")
    collect_seldom()
    started_s = time.perf_counter()
    simulation.live(context)
    wall_s = time.perf_counter() - started_s
    return simulation.results(wall_s)


class Model:
    """The providers: each call takes its time, a few are refused, a few find the provider unavailable for a while."""

    def __init__(self, size: int) -> None:
        self._random = Random(11)
        self.effects = array("B", bytes(size))
        self.last_due_ms: dict[str, int] = {}
        self.in_flight: dict[str, int] = {}
        self.disorder = self.crowded = 0

    def answer(self, sent: SentCall, now_ms: int) -> CallResult:
        call, chance = sent.call, self._random.random()
        if call.attempt == 1:
            self.disorder += sent.due_ms < self.last_due_ms.get(sent.provider, 0)
            self.last_due_ms[sent.provider] = sent.due_ms
        self.in_flight[sent.provider] = flying = self.in_flight.get(sent.provider, 0) + 1
        self.crowded += flying > 1
        latency_ms = 20 + int(self._random.random() ** 4 * 3_000)
        ended_ms = now_ms + latency_ms
        if chance < UNAVAILABLE:
            return CallResult(call.handle, call.attempt, now_ms, ended_ms, float(latency_ms), 503, reason="status 503")
        code = 422 if chance > 1 - REFUSED else 200
        if code == 200:
            self.effects[int(call.url.rpartition("/")[2])] += 1
        reason = "" if code == 200 else "status 422"
        return CallResult(call.handle, call.attempt, now_ms, ended_ms, float(latency_ms), code, reason=reason)


class Simulation:
    """The planner and the sender of one process, turn by turn."""

    def __init__(self, file: str, size: int) -> None:
        self._size = size
        # Virtual time does not wait for the disk: otherwise a day of commits would be measured, not the engine.
        self._store = SqliteStore(file, synchronous="normal")
        self._book = ProviderBook(self._store, OpenVault())
        self._window = window_of(BatchSpec(), DAY)
        self._random = Random(5)
        self._sent: dict[Fence, SentCall] = {}
        self._flying: list[tuple[int, int, CallResult]] = []
        self._late_ms = array("q")
        self._starts_ms = array("q")
        self._batch: Batch | None = None
        self.model = Model(size)

    def fill(self) -> float:
        started_s, now_ms = time.perf_counter(), self._window.start_ms - 60_000
        for number in range(PROVIDERS):
            spec = ProviderSpec(base_url=f"https://p{number}.example.org")
            self._store.put_provider(PutProvider(f"p{number}", spec), now_ms=now_ms)
        self._batch = self._store.put_batch("all", BatchSpec(), expected_revision=None, now_ms=now_ms).batch
        assert self._batch is not None
        for first in range(0, self._size, IMPORT_PAGE):
            page = [
                RecordSpec(f"r{n:07d}", f"p{n * 7_919 % PROVIDERS}", f"/ask/{n}", f'{{"number":{n}}}')
                for n in range(first, min(first + IMPORT_PAGE, self._size))
            ]
            self._store.put_records(self._batch, page, now_ms=now_ms)
        return time.perf_counter() - started_s

    def live(self, context: Context) -> None:
        """Runs from the start of the window until everything has ended."""
        now_ms, told_s = self._window.start_ms, time.perf_counter()
        report = plan_due(self._store, now_ms=now_ms)
        assert sum(day.report.enqueued for day in report.days) == self._size, report
        while self._flying or self._store.next_call_ms() is not None:
            self._turn(now_ms)
            now_ms += TURN_MS
            if time.perf_counter() - told_s > 30:
                told_s = time.perf_counter()
                context.say(
                    f"day: {(now_ms - self._window.start_ms) / 3_600_000:.1f} h, {len(self._starts_ms):,} started"
                )

    def _turn(self, now_ms: int) -> None:
        ended: list[CallResult] = []
        while self._flying and self._flying[0][0] <= now_ms:
            ended.append(heapq.heappop(self._flying)[2])
        if not ended and (self._store.next_call_ms() or now_ms + 1) > now_ms:
            return
        for item in ended:
            self.model.in_flight[self._sent[item.handle, item.attempt].provider] -= 1
        report, sent = settle_and_claim(
            self._store,
            self._book,
            self._sent,
            ended,
            chance=self._random.random,
            now_ms=now_ms,
            runs_max=IN_FLIGHT_MAX - len(self._flying),
            lease_ms=LEASE_MS,
        )
        assert not report.stale
        for item in ended:
            del self._sent[item.handle, item.attempt]
        for of in sent:
            self._start(of, now_ms)

    def _start(self, of: SentCall, now_ms: int) -> None:
        result = self.model.answer(of, now_ms)
        self._sent[result.handle, result.attempt] = of
        heapq.heappush(self._flying, (result.ended_ms, result.handle, result))
        if of.call.attempt == 1:
            self._late_ms.append(now_ms - of.due_ms)
            self._starts_ms.append(now_ms)

    def results(self, wall_s: float) -> list[Result]:
        assert self._batch is not None
        day = self._store.day(self._batch, DAY.isoformat())
        assert day is not None
        states: dict[str, int] = {}
        for count in self._store.day_counts(day):
            states[count.state] = states.get(count.state, 0) + count.runs
        dues_ms, _ = self._store.day_dues(day)
        even = evenness(dues_ms, start_ms=day.start_ms, end_ms=day.end_ms)
        late_ms = sorted(self._late_ms)
        doubled = sum(effects > 1 for effects in self.model.effects)
        problems = len(self._store.verify())
        wrong = doubled + self.model.disorder + self.model.crowded + problems + (sum(states.values()) != self._size)
        timing: Result = {"subject": "a day, wall time (s)", "size": self._size, "value": round(wall_s, 1)}
        return [
            timing | {"per_s": round(self._size / wall_s, 1)} | judged(wall_s, at_most=WALL_S_MAX),
            {
                "subject": f"a day, lateness of starts (a turn is {TURN_MS} ms)",
                "size": self._size,
                "p50_ms": percentile(late_ms, 0.5),
                "p99_ms": percentile(late_ms, 0.99),
                "max_ms": late_ms[-1],
            },
            {
                "subject": "a day, largest gap of the plan over the ideal",
                "size": self._size,
                "ratio": round(even.ratio, 3),
            },
            {
                "subject": "a day, runs that ended "
                + ", ".join(f"{state} {count:,}" for state, count in sorted(states.items())),
                "size": self._size,
                "value": sum(states.values()),
            },
            {
                "subject": "a day, doubled, out of order, two at once, or a broken invariant",
                "size": self._size,
                "value": wrong,
            }
            | judged(wrong, at_most=0),
        ]
