"""Batches' runs from claim to result, through step, core and port, at the batch size that strict order allows."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from bench.harness import Context, Result, Round, connect, in_turns, judged, median, result, transaction
from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.batches.batch import BatchSpec
from paceline.core.batches.calls import CallResult, CallSettlement
from paceline.core.batches.provider import ProviderSpec
from paceline.core.batches.run_keys import due_ms_of, queue_key, run_key
from paceline.core.batches.values import ClaimedCall, PutProvider
from paceline.steps.batches.call import ProviderBook, claim_calls, settle_and_claim
from paceline.steps.batches.outgoing import CallItem, RecordedCall, claim_for_worker, settle_reports
from paceline.steps.monitors.outgoing import OutcomeReport

START_MS = 1_900_000_000_000
STEP_MS = 100
"""Virtual time between two batches of runs that become due together."""
LEASE_MS = 30_000
BATCH_MAX = 1_000
RATIO_MIN = 0.3
FLATNESS_MIN = 0.5
STUCK_MIN = 0.8
GROUPS = (1, 100, 10_000)
GROUPS_BACKLOG = 100_000
BACKLOGS = (1_000, 20_000, 500_000)
BACKLOGS_FULL = (*BACKLOGS, 1_000_000)
BACKLOGS_GROUPS = 100
FLAT = (20_000, 500_000)
STUCK_RUNS = 200_000
PROVIDER = "provider-1"
WORKER_BATCH, WORKER_BATCHES = 200, 10
"""Runs that a worker claims at a time. They are due a millisecond apart, so that none is late and paced."""
PAYLOAD = '{"ok": true}'
BATCHES = {1: 50, 100: 20, 10_000: 10}
"""Batches of a round, so that rounds of all sizes take about as long."""


def run(context: Context) -> list[Result]:
    rounds = 15 if context.full else 7
    contestants: dict[str, Round] = {}
    for groups in GROUPS:
        _add(context, contestants, groups, GROUPS_BACKLOG, rounds)
    for backlog in BACKLOGS_FULL if context.full else BACKLOGS:
        _add(context, contestants, BACKLOGS_GROUPS, backlog, rounds)
    runs = _runs(BACKLOGS_GROUPS, FLAT[0], rounds)
    stuck = Dispatcher(context.file("stuck.db"), groups=BACKLOGS_GROUPS, runs=runs, stuck=STUCK_RUNS)
    contestants["stuck"] = partial(stuck.round, BATCHES[BACKLOGS_GROUPS])
    stepper = Stepper(context.file("steps.db"), groups=GROUPS[-1], runs=_runs(GROUPS[-1], GROUPS_BACKLOG, rounds))
    contestants["steps"] = partial(stepper.round, BATCHES[GROUPS[-1]])
    runs = GROUPS_BACKLOG + (rounds + 2) * WORKER_BATCHES * WORKER_BATCH
    contestants["worker"] = partial(Worker(context.file("worker.db"), runs=runs).round, WORKER_BATCHES)
    floor = Floor(context.file("floor worker.db"), groups=WORKER_BATCH, runs=runs)
    contestants["floor worker"] = partial(floor.round, WORKER_BATCHES)
    rates = in_turns(rounds, contestants)
    return [*_against_floor(rates), *_flatness(rates)]


def _runs(groups: int, backlog: int, rounds: int) -> int:
    """Returns how many runs to plan, so that the backlog is still there after all rounds."""
    return backlog + (rounds + 2) * BATCHES[groups] * batch_of(groups)


def _add(context: Context, contestants: dict[str, Round], groups: int, backlog: int, rounds: int) -> None:
    started_s = time.perf_counter()
    runs = _runs(groups, backlog, rounds)
    name = f"{groups} {backlog}"
    if f"dispatch {name}" in contestants:
        return
    subject = Dispatcher(context.file(f"dispatch {name}.db"), groups=groups, runs=runs)
    floor = Floor(context.file(f"floor {name}.db"), groups=groups, runs=runs)
    contestants[f"dispatch {name}"] = partial(subject.round, BATCHES[groups])
    contestants[f"floor {name}"] = partial(floor.round, BATCHES[groups])
    context.say(f"dispatch: {groups:,} groups, {backlog:,} runs set up in {time.perf_counter() - started_s:.1f} s")


def _against_floor(rates: dict[str, list[float]]) -> list[Result]:
    results = []
    for name in [name for name in rates if name.startswith("dispatch")]:
        _, groups, backlog = name.split()
        results.append(
            result(
                f"claim and settle, {int(groups):,} groups",
                int(backlog),
                rates=rates[name],
                floor=rates[f"floor {groups} {backlog}"],
                target=RATIO_MIN,
                batch=batch_of(int(groups)),
            )
        )
    floor = rates[f"floor {GROUPS[-1]} {GROUPS_BACKLOG}"]
    subject = f"the same through the steps, {GROUPS[-1]:,} groups"
    batch = batch_of(GROUPS[-1])
    results.append(result(subject, GROUPS_BACKLOG, rates=rates["steps"], floor=floor, target=RATIO_MIN, batch=batch))
    subject, floor, batch = "claimed and reported by a worker of one's own", rates["floor worker"], WORKER_BATCH
    results.append(result(subject, GROUPS_BACKLOG, rates=rates["worker"], floor=floor, target=RATIO_MIN, batch=batch))
    return results


def _flatness(rates: dict[str, list[float]]) -> list[Result]:
    few, many = (rates[f"dispatch {BACKLOGS_GROUPS} {backlog}"] for backlog in FLAT)
    flat = median(large / small for small, large in zip(few, many, strict=True))
    beside = median(stuck / free for free, stuck in zip(few, rates["stuck"], strict=True))
    return [
        {"subject": f"rate against that at {FLAT[0]:,}", "size": FLAT[1], "ratio": round(flat, 3)}
        | judged(flat, at_least=FLATNESS_MIN),
        {"subject": "rate beside a stuck group, against that without", "size": STUCK_RUNS, "ratio": round(beside, 3)}
        | judged(beside, at_least=STUCK_MIN),
    ]


def batch_of(groups: int) -> int:
    """Returns the size of a batch: one run of each group may be out."""
    return min(groups, BATCH_MAX)


class Dispatcher:
    """Drives the real store on a real file; each batch of runs is settled in the act that claims the next one."""

    def __init__(self, file: str, *, groups: int, runs: int, stuck: int = 0) -> None:
        self._store = SqliteStore(file, synchronous="full")
        fill(file, groups=groups, runs=runs, stuck=stuck)
        self._now_ms = START_MS
        self._batch = batch_of(groups)
        self._out: Sequence[ClaimedCall] = self._store.claim_calls(
            now_ms=START_MS, runs_max=self._batch + 1, lease_ms=LEASE_MS
        )
        if stuck:  # the first run of the group is out and never comes back
            self._out = [call for call in self._out if call.provider <= groups]
        assert len(self._out) == self._batch

    def round(self, batches: int) -> float:
        spent_s = 0.0
        for _ in range(batches):
            settlements = [settlement(call, self._now_ms) for call in self._out]
            self._now_ms += STEP_MS
            start_s = time.perf_counter()
            won, self._out = self._store.settle_and_claim_calls(
                settlements, now_ms=self._now_ms, runs_max=self._batch, lease_ms=LEASE_MS
            )
            spent_s += time.perf_counter() - start_s
            assert won == [True] * self._batch
            assert len(self._out) == self._batch
        return batches * self._batch / spent_s


def settlement(call: ClaimedCall, now_ms: int) -> CallSettlement:
    return CallSettlement(
        call.handle, call.attempt, "done", now_ms, now_ms + 50, "", 50.0, 200, PAYLOAD, verdict="good"
    )


class Stepper(Dispatcher):
    """Like ``Dispatcher``, through the steps: looks up definitions, builds calls, judges results."""

    def __init__(self, file: str, *, groups: int, runs: int) -> None:
        super().__init__(file, groups=groups, runs=runs)
        self._book = ProviderBook(self._store, OpenVault())
        self._store.release_calls([(call.handle, call.attempt) for call in self._out], now_ms=START_MS)
        self._sent = claim_calls(self._store, self._book, now_ms=START_MS, runs_max=self._batch, lease_ms=LEASE_MS)

    def round(self, batches: int) -> float:
        spent_s = 0.0
        for _ in range(batches):
            now_ms = self._now_ms
            calls = [item.call for item in self._sent]
            results = [CallResult(c.handle, c.attempt, now_ms, now_ms + 50, 50.0, 200, payload=PAYLOAD) for c in calls]
            out = {(item.call.handle, item.call.attempt): item for item in self._sent}
            self._now_ms += STEP_MS
            start_s = time.perf_counter()
            report, self._sent = settle_and_claim(
                self._store,
                self._book,
                out,
                results,
                chance=lambda: 0.5,
                now_ms=self._now_ms,
                runs_max=self._batch,
                lease_ms=LEASE_MS,
            )
            spent_s += time.perf_counter() - start_s
            assert len(report.settled) == len(self._sent) == self._batch
        return batches * self._batch / spent_s


class Worker:
    """A worker of one outgoing provider, through the steps: it claims a batch of runs and reports them.

    The claim and the report are two acts, as over REST; the floor writes the same rows in one.
    """

    def __init__(self, file: str, *, runs: int) -> None:
        self._store = SqliteStore(file, synchronous="full")
        fill(file, groups=1, runs=runs, stuck=0, step_ms=1)
        spec = ProviderSpec(kind="outgoing", max_in_flight=WORKER_BATCH)
        self._store.put_provider(PutProvider(PROVIDER, spec), now_ms=START_MS)
        self._now_ms = START_MS - 1

    def round(self, batches: int) -> float:
        spent_s = 0.0
        for _ in range(batches):
            self._now_ms += WORKER_BATCH
            start_s = time.perf_counter()
            claimed = self._claim()
            reports = [
                OutcomeReport(item.run, item.lease, "ok", {"ok": True}, viewer=None, chance=0.5) for item in claimed
            ]
            settled = settle_reports(self._store, reports, now_ms=self._now_ms)
            spent_s += time.perf_counter() - start_s
            assert len(settled) == WORKER_BATCH
            assert all(isinstance(one, RecordedCall) for one in settled)
        return batches * WORKER_BATCH / spent_s

    def _claim(self) -> list[CallItem]:
        return claim_for_worker(
            self._store, PROVIDER, now_ms=self._now_ms, runs_max=WORKER_BATCH, lease_ms=LEASE_MS
        ).items


class OpenVault:
    """Vault without encryption: nothing here is secret."""

    def seal(self, secret: str) -> str:
        return secret

    def unseal(self, sealed: str) -> str:
        return sealed


class Floor:
    """One transaction per batch: for each run one insert, one update and one delete by rowid, with prepared rows."""

    def __init__(self, file: str, *, groups: int, runs: int) -> None:
        self._batch = batch_of(groups)
        self._db = connect(file)
        self._db.execute(
            "CREATE TABLE queue (k INTEGER PRIMARY KEY, run, state, at_ms, attempt, lost, started_ms, reason)"
        )
        self._db.execute(
            """CREATE TABLE result (k INTEGER PRIMARY KEY, run, state, attempt, started_ms, ended_ms, latency_ms, code,
                                    reason, payload, dead)"""
        )
        keys = [key for key, _ in due_runs(groups, runs)]
        with transaction(self._db):
            rows = ((key, record_run(key), "waiting", 0, 0, 0, None, "") for key in sorted(keys))
            self._db.executemany("INSERT INTO queue VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        self._keys = iter(keys)
        self._out = [next(self._keys) for _ in range(self._batch)]

    def round(self, batches: int) -> float:
        ready = [self._rows() for _ in range(batches)]
        start_s = time.perf_counter()
        for results, ended, started in ready:
            with transaction(self._db):
                self._db.executemany("INSERT INTO result VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", results)
                self._db.executemany("DELETE FROM queue WHERE k = ?", ended)
                self._db.executemany(
                    "UPDATE queue SET state = ?, at_ms = ?, attempt = ?, started_ms = ? WHERE k = ?", started
                )
        return batches * self._batch / (time.perf_counter() - start_s)

    def _rows(self) -> tuple[list[tuple[Any, ...]], list[tuple[int]], list[tuple[Any, ...]]]:
        """Returns rows with as many bytes as real ones."""
        results = [(k, record_run(k), "done", 1, START_MS, START_MS + 50, 50.0, 200, "", PAYLOAD, 0) for k in self._out]
        ended = [(k,) for k in self._out]
        self._out = [next(self._keys) for _ in range(self._batch)]
        return results, ended, [("out", START_MS + LEASE_MS, 1, START_MS, k) for k in self._out]


def record_run(key: int) -> int:
    """Returns a number as long as that of a run."""
    return run_key(1, key & 0xFFFFF)


def due_runs(groups: int, runs: int, *, step_ms: int = STEP_MS) -> Iterator[tuple[int, int]]:
    """Yields (key, group) in due order: at each step of virtual time as many groups are due as a batch takes."""
    batch = batch_of(groups)
    for index in range(runs):
        group = index % groups
        yield queue_key(group + 1, START_MS + index // batch * step_ms), group


def fill(file: str, *, groups: int, runs: int, stuck: int, step_ms: int = STEP_MS) -> None:
    """Fills the tables directly: setting up a million runs through the steps takes longer than measuring them."""
    db = connect(file)
    spec = msgspec.json.encode(ProviderSpec(base_url="https://provider.example.org", timeout="10m")).decode()
    records = list(range(1, runs + stuck + 1))
    random.Random(7).shuffle(records)  # the order of import has nothing to do with the times
    due = [(key, group + 1) for key, group in due_runs(groups, runs, step_ms=step_ms)]
    due += [(queue_key(groups + 1, START_MS + index), groups + 1) for index in range(stuck)]
    planned = [(key, run_key(1, record), provider) for (key, provider), record in zip(due, records, strict=True)]
    with transaction(db):
        db.executemany(
            "INSERT INTO provider (id, name, revision, spec, created_ms, updated_ms) VALUES (?, ?, 1, ?, 0, 0)",
            [(number, f"provider-{number}", spec) for number in range(1, groups + 2)],
        )
        first = {provider: due_ms_of(key) for key, provider in reversed(due)}
        db.executemany("INSERT INTO pace (provider, revision, ready_ms) VALUES (?, 1, ?)", first.items())
        text = msgspec.json.encode(BatchSpec()).decode()
        db.execute(
            "INSERT INTO batch (id, name, revision, spec, created_ms, updated_ms) VALUES (1, 'b', 1, ?, 0, 0)", (text,)
        )
        db.execute(
            "INSERT INTO day (id, batch, date, start_ms, end_ms, state) VALUES (1, 1, '2030-03-17', ?, ?, 'planned')",
            (START_MS, START_MS + 86_400_000),
        )
        db.executemany(
            """INSERT INTO record (id, batch, name, provider, place, active, endpoint, body)
               VALUES (?, 1, ?, ?, 0, 1, ?, NULL)""",
            [
                (run & 0x7FFFFFFF, f"record-{run & 0x7FFFFFFF}", provider, f"/items/{run & 0x7FFFFFFF}")
                for _, run, provider in sorted(planned, key=lambda row: row[1])
            ],
        )
        db.executemany("INSERT INTO planned (run, k) VALUES (?, ?)", sorted((run, key) for key, run, _ in planned))
        db.executemany("INSERT INTO queue (k, run) VALUES (?, ?)", sorted((key, run) for key, run, _ in planned))
