"""Requests to DynamoDB and SQS for each firing, each planned record and each measurement, against an emulator.

Requests are what is paid and what waits, so they are counted and not timed: a hook in boto3 counts each call that is
made. Beside each stands the least that could carry the same items in AWS's own batches: 100 actions to a transaction,
25 puts to a batch, 100 keys to a read, 10 messages to a send. How fast the emulator is says nothing about AWS.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import date
from typing import Any, NamedTuple

from bench.harness import Context, Result
from paceline.adapters.aws.batches.enqueue import RUNS_PER_WRITE as PLANNED_TOGETHER
from paceline.adapters.aws.batches.keys import SHARDS
from paceline.adapters.aws.client.connect import Clients
from paceline.adapters.aws.store import AwsStore
from paceline.core.batches.batch import BatchSpec, RecordSpec, window_of
from paceline.core.batches.calls import CallSettlement
from paceline.core.batches.provider import ProviderSpec
from paceline.core.batches.values import PutProvider
from paceline.core.jobs.cost import price
from paceline.core.jobs.job import Job, job_digest
from paceline.core.jobs.measurement import Measurement, Ping, Probes, targets_of
from paceline.core.jobs.values import AccountSpec, AddKey, Admitted, MeasurementEnd, Sent, StoredMeasurement, Submission
from paceline.core.monitors.checks import HttpCheck
from paceline.core.monitors.definition import MonitorSpec
from paceline.core.monitors.due import CatchUp
from paceline.core.monitors.outcome import Done
from paceline.core.monitors.values import CHECKS, PutMonitor, Settlement
from paceline.core.users import User
from paceline.steps.batches.plan import plan_day
from paceline.steps.monitors.define import put_monitors
from paceline.steps.monitors.tick import tick

SIZE, SIZE_FULL = 200, 1_000
PROVIDERS = 10
SENDS = 50
DATE = date(2027, 3, 1)
NOW_MS = window_of(BatchSpec(), DATE).start_ms
WINDOW, STEPS_MAX = "10s", 60
LEASE_MS = 60_000
EVERY_MS = 60_000


class Least(NamedTuple):
    """Least requests for each unit, and the reason for that figure."""

    requests: float
    because: str


TICKED = Least(3 / 100 + 1 / 10, "entry, run and lane in a transaction; an alarm in a send")
CLAIMED = Least(1 / 100 + 1 / 100, "one read; the run in a transaction")
SETTLED = Least(2 / 100, "run and lane in a transaction")
IMPORTED = Least(2 / 100 + 1 / 100, "one read; name and record in a transaction")
SUBMITTED = Least(1 / 25, "measurements in batches of puts; one transaction for all of them")
BEGUN = Least(2.0, "whose turn it is; one transaction for each send: the meters judge it alone")
TOLD = Least(1.0, "one transaction for each answer")
ENDED = Least(1.0, "one transaction for each: its meters, its job")


def run(context: Context) -> list[Result]:
    from tests.aws.support.ministack import emulator, fresh_prefix, guarded_clients

    size = SIZE_FULL if context.full else SIZE
    with emulator() as server, guarded_clients(server.url) as clients:
        requests = Requests(clients)
        with closing(AwsStore(fresh_prefix(), clients=clients)) as store:
            store.create()
            rows = [
                *_firings(store, requests, size),
                *_records(store, requests, size),
                *_measurements(store, requests, min(size, SENDS)),
            ]
            assert store.verify() == []
    for row in rows:
        context.say(f"aws: {row['subject']}: {row['requests']} requests each, at least {row['least']}")
    return rows


class Requests:
    """Counts every request of the clients, by operation."""

    def __init__(self, clients: Clients) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        for service, client in clients._asdict().items():
            client.meta.events.register("provide-client-params", self._note, unique_id=f"count-{service}")

    def _note(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        with self._lock:
            self._counts[f"{model.service_model.service_name}.{model.name}"] += 1
            self._counts["units"] += _write_units(model.name, params)

    @contextmanager
    def counted(self) -> Iterator[Counter[str]]:
        """Yields a counter. At the end of the block it has the requests that were made meanwhile."""
        with self._lock:
            before = self._counts.copy()
        made: Counter[str] = Counter()
        yield made
        with self._lock:
            made.update(self._counts - before)


def _write_units(operation: str, params: dict[str, Any]) -> int:
    """Returns the write units that DynamoDB bills for items of up to 1 KB, without indexes. Transactions cost twice."""
    match operation:
        case "TransactWriteItems":
            return 2 * len(params["TransactItems"])
        case "BatchWriteItem":
            return sum(len(items) for items in params["RequestItems"].values())
        case "PutItem" | "UpdateItem" | "DeleteItem":
            return 1
        case _:
            return 0


def _row(subject: str, size: int, least: Least, requests: Requests, work: Callable[[], object]) -> Result:
    total = _Total()
    with total.counting(requests):
        work()
    return _result(subject, size, least, total.made, total.s)


def _result(subject: str, size: int, least: Least, made: Counter[str], took_s: float) -> Result:
    units = made.pop("units", 0)
    each = made.total() / size
    sqs = sum(count for name, count in made.items() if name.startswith("sqs."))
    return {
        "subject": subject,
        "size": size,
        "per_s": round(size / took_s, 1),
        "ratio_to_floor": round(least.requests / each, 3),
        "requests": round(each, 3),
        "least": round(least.requests, 3),
        "dynamodb": round((made.total() - sqs) / size, 3),
        "sqs": round(sqs / size, 3),
        "write_units": round(units / size, 2),
        "most": ", ".join(f"{name.partition('.')[2]} {count}" for name, count in made.most_common(3)),
        "because": least.because,
    }


# -- monitors


def _firings(store: AwsStore, requests: Requests, size: int) -> Iterator[Result]:
    """Measures the second round of all monitors at once: lanes and numbers exist by then, as in every later round."""
    assert store.add_user(User("ann", "user", 10**12, disabled=False, created_ms=NOW_MS))
    spec = MonitorSpec(check=HttpCheck(url="http://example.org/"), every="60s", initial_delay="0s")  # all at once
    puts = [PutMonitor("ann", f"m{number}", spec) for number in range(size)]
    put_monitors(store, puts, monitors_max=size, now_ms=NOW_MS)
    for _ in _round(store, requests, size, now_ms=NOW_MS):
        pass
    yield from _round(store, requests, size, now_ms=NOW_MS + EVERY_MS)


def _round(store: AwsStore, requests: Requests, size: int, *, now_ms: int) -> Iterator[Result]:
    runs: list[Settlement] = []

    def make() -> None:
        while tick(store, now_ms=now_ms, catch_up=CatchUp()).runs:
            pass

    def claim() -> None:
        while claimed := store.claim(CHECKS, now_ms=now_ms, runs_max=size, lease_ms=LEASE_MS):
            runs.extend(Settlement(one.handle, one.attempt, Done(ok=True), now_ms, now_ms) for one in claimed)

    yield _row("a firing: due to run", size, TICKED, requests, make)
    yield _row("a firing: claimed", size, CLAIMED, requests, claim)
    assert len(runs) == size
    yield _row("a firing: settled", size, SETTLED, requests, lambda: store.settle(runs))


# -- batches


def _records(store: AwsStore, requests: Requests, size: int) -> Iterator[Result]:
    """Measures a day of ten seconds, with a look each second: some runs of each provider are due together."""
    for number in range(PROVIDERS):
        spec = ProviderSpec(base_url="http://example.org", max_in_flight=1_000)
        store.put_provider(PutProvider(f"p{number}", spec), now_ms=NOW_MS)
    batch = store.put_batch("daily", BatchSpec(window=WINDOW), expected_revision=None, now_ms=NOW_MS).batch
    assert batch is not None
    records = [RecordSpec(f"r{number}", f"p{number % PROVIDERS}", "/x") for number in range(size)]
    yield _row("a record: imported", size, IMPORTED, requests, lambda: store.put_records(batch, records, now_ms=NOW_MS))
    least = -(-size // PLANNED_TOGETHER) + SHARDS + PROVIDERS
    planned = Least(least / size, "two items of 98 in a transaction; all partitions read; each provider's lane woken")
    yield _row("a record: planned", size, planned, requests, lambda: plan_day(store, batch, DATE, now_ms=NOW_MS))
    yield from _calls(store, requests, size)


def _calls(store: AwsStore, requests: Requests, size: int) -> Iterator[Result]:
    """Measures calls.

    The least depends on how many runs of one provider are due together: its lane is one item, judged by itself.
    """
    claims, answers = _Total(), _Total()
    now_ms, ended, lanes = NOW_MS, 0, 0
    for _ in range(STEPS_MAX):
        with claims.counting(requests):
            calls = store.claim_calls(now_ms=now_ms, runs_max=size, lease_ms=LEASE_MS)
        done = [CallSettlement(one.handle, one.attempt, "done", now_ms, now_ms, verdict="good") for one in calls]
        if done:
            with answers.counting(requests):
                assert all(store.settle_calls(done))
        ended, lanes, now_ms = ended + len(calls), lanes + len({one.provider for one in calls}), now_ms + 1_000
        if ended == size:
            break
    assert ended == size
    called = Least(2 * lanes / size, "for each provider one look at its front, and one transaction with its lane")
    yield _result("a record's run: claimed", size, called, claims.made, claims.s)
    answered = Least(lanes / size, "for each provider one transaction with its lane")
    yield _result("a record's run: settled", size, answered, answers.made, answers.s)


class _Total:
    """Requests and time of an act that takes many passes."""

    def __init__(self) -> None:
        self.made: Counter[str] = Counter()
        self.s = 0.0

    @contextmanager
    def counting(self, requests: Requests) -> Iterator[None]:
        start_s = time.perf_counter()
        with requests.counted() as made:
            yield
        self.made += made
        self.s += time.perf_counter() - start_s


# -- jobs


def _measurements(store: AwsStore, requests: Requests, size: int) -> Iterator[Result]:
    store.put_account("lab", AccountSpec(concurrent=size, daily_results=10**9, daily_credits=10**9))
    key = store.add_key(AddKey("lab", "sealed", "1234"), now_ms=NOW_MS).key
    assert key is not None
    one = Measurement(
        (Ping(description="a ping", af=4, target="192.0.2.1"),), (Probes(10, "area", "WW"),), is_oneoff=True
    )
    job, cost = Job((one,) * size), price(one, now_ms=NOW_MS)
    order = Submission("ann", job, (cost,) * size, job_digest(job))
    begun: list[StoredMeasurement] = []

    def submit() -> None:
        assert isinstance(store.submit(order, now_ms=NOW_MS), Admitted)

    def begin() -> None:
        """Begins the sends as the dispatcher does, which also reads RIPE's gates.

        Reading the accounts is not counted.
        """
        for _ in range(size):
            (head,) = store.next_to_send(now_ms=NOW_MS, users_max=1, each_max=1)
            store.gates(sorted(targets_of(one)))
            sent = store.begin_send(head, account="lab", key=key.id, sending_max=size, now_ms=NOW_MS)
            assert isinstance(sent, StoredMeasurement)
            begun.append(sent)

    def tell() -> None:
        for item in begun:
            assert store.answer(item.handle, item.attempt, Sent((item.handle,)), now_ms=NOW_MS)

    def end() -> None:
        credits_each = cost.credits
        ends = [MeasurementEnd(m.handle, m.attempt, "done", "", credits_each, 10, frees_slot=True) for m in begun]
        assert all(done.won for done in store.end(ends, now_ms=NOW_MS))

    yield _row("a measurement: submitted", size, SUBMITTED, requests, submit)
    yield _row("a measurement: begun", size, BEGUN, requests, begin)
    yield _row("a measurement: answered", size, TOLD, requests, tell)
    yield _row("a measurement: ended", size, ENDED, requests, end)
