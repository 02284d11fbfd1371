"""The actors of the world of batches: daemons that plan and call, model providers, and operators that keep editing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from random import Random
from typing import Any, Protocol

import msgspec

from paceline.core.batches.batch import BatchSpec, day_at, make_record
from paceline.core.batches.calls import Call, CallResult
from paceline.core.batches.provider import SAFE_METHODS, BreakerSpec, ProviderSpec, RetrySpec
from paceline.core.batches.records.options import RecordOptions
from paceline.core.batches.values import DeadChoice
from paceline.errors import InvalidInput, LimitReached, NotFound, PacelineError
from paceline.ports import Store
from paceline.steps.batches import batches, plan, providers
from paceline.steps.batches.call import ProviderBook, SentCall, claim_calls, settle_calls
from paceline.steps.batches.deletion import delete_batch, go_on_deleting
from paceline.steps.batches.late_records import plan_late_records
from paceline.steps.batches.rerun import rerun
from tests.world.support.batch_ledger import BatchLedger
from tests.world.support.batch_workers import KINDS, BatchWorker, as_outgoing

BATCHES = ("b", "b-1", "1")
RECORDS = tuple(f"r{number}" for number in range(12))
PROVIDERS = ("slow", "flapping", "lying", "strict")
LEASE_MS = 30_000
WAIT_MS_MAX = 3_600_000


class OpenVault:
    """Seals by marking: what is kept apart here is who sees what, not how it is hidden."""

    def seal(self, secret: str) -> str:
        return f"sealed:{secret}"

    def unseal(self, sealed: str) -> str:
        return sealed.removeprefix("sealed:")


class Surroundings(Protocol):
    random: Random
    ledger: BatchLedger
    calm: bool

    @property
    def now_ms(self) -> int: ...
    @property
    def true_ms(self) -> int: ...


class ModelProviders:
    """The outside services. Every call that arrives takes effect; its answer may be wrong, late or missing."""

    def __init__(self, world: Surroundings) -> None:
        self._world = world
        self.effects: dict[str, int] = {}

    def answer(self, item: Call) -> CallResult:
        world, safe = self._world, item.method in SAFE_METHODS
        name = item.run_id
        base = CallResult(item.handle, item.attempt, started_ms=world.now_ms, ended_ms=world.now_ms, latency_ms=5.0)
        if world.random.random() < 0.05 and not world.calm:
            return msgspec.structs.replace(base, fault="network", arrived=False, reason="no connection")
        world.ledger.arrived(item.handle, name, looks_up=item.looks_up, safe=safe)
        if item.looks_up:
            return msgspec.structs.replace(base, code=200 if name in self.effects else 404, reason="looked up")
        mood = "good" if world.calm else world.random.choice(("good",) * 6 + ("bad", "lost", "many", "wrong", "half"))
        if mood in ("good", "lost", "half"):
            self.effects[name] = self.effects.get(name, 0) + 1
        return self._tell(base, mood)

    def _tell(self, base: CallResult, mood: str) -> CallResult:
        match mood:
            case "good":
                return msgspec.structs.replace(base, code=200, payload='{"ok":true}')
            case "bad":
                return msgspec.structs.replace(base, code=500, reason="status 500")
            case "half":
                return msgspec.structs.replace(base, code=502, reason="status 502, after the effect")
            case "many":
                pause_ms = self._world.random.choice((None, 2_000, 60_000))
                return msgspec.structs.replace(base, code=429, reason="status 429", retry_after_ms=pause_ms)
            case "wrong":
                return msgspec.structs.replace(base, code=422, reason="status 422")
        return msgspec.structs.replace(base, fault="time_out", reason="no answer in time")


class BatchDaemon:
    """The planner and the call sender of one process, and a worker of an operator's own beside it.

    A crash is a new one: it remembers nothing.
    """

    TURNS = ("plan", "plan", "send", "send", "send", "collect", "collect", "collect", "keep", "drain", "work", "report")

    def __init__(self, world: Surroundings, store: Store, outside: ModelProviders) -> None:
        self._world = world
        self._store = store
        self._outside = outside
        self._book = ProviderBook(store, OpenVault())
        self._flying: list[tuple[int, SentCall, CallResult]] = []
        self._ahead_ms: int | None = None
        worker = BatchWorker(world, store, outside)
        self.work, self.report = worker.work, worker.report

    def turn(self, name: str) -> None:
        getattr(self, name)()

    def whole_turn(self) -> None:
        for name in ("watch_clock", "plan", "collect", "send", "report", "work"):
            self.turn(name)

    def plan(self) -> None:
        plan.plan_due(self._store, now_ms=self._world.now_ms)

    def send(self) -> None:
        room = 20 - len(self._flying)
        if room <= 0:
            return
        sent = claim_calls(self._store, self._book, now_ms=self._world.now_ms, runs_max=room, lease_ms=LEASE_MS)
        for item in sent:
            latency_ms = 5 if self._world.calm else self._world.random.choice((5, 80, 900, 4_000, 50_000, 90_000))
            result = self._outside.answer(item.call)
            result = msgspec.structs.replace(
                result, ended_ms=result.started_ms + latency_ms, latency_ms=float(latency_ms)
            )
            self._flying.append((self._world.true_ms + latency_ms, item, result))

    def collect(self) -> None:
        ended = [(item, result) for at_ms, item, result in self._flying if at_ms <= self._world.true_ms]
        self._flying = [entry for entry in self._flying if entry[0] > self._world.true_ms]
        sent = {(result.handle, result.attempt): item for item, result in ended}
        settle_calls(self._store, sent, [result for _, result in ended], chance=self._world.random.random)

    def drain(self) -> None:
        """What is in flight and safe to repeat is given back; the rest is left to its lease."""
        left = [(of.call.handle, of.call.attempt) for _, of, _ in self._flying if of.call.method in SAFE_METHODS]
        self._flying.clear()
        self._store.release_calls(left, now_ms=self._world.now_ms)

    def keep(self) -> None:
        self.watch_clock()
        go_on_deleting(self._store, now_ms=self._world.now_ms, limit=5)

    def watch_clock(self) -> None:
        ahead_ms = self._world.now_ms - self._world.true_ms
        if self._ahead_ms is None or ahead_ms < self._ahead_ms - 1_000:
            self._store.pull_back_calls(lambda: self._world.now_ms, wait_ms_max=WAIT_MS_MAX)
        self._ahead_ms = ahead_ms


class Operators:
    """They import, switch off, delete, bring back, pause, resume, redrive and discard."""

    def __init__(self, world: Surroundings, store: Store) -> None:
        self._world = world
        self._store = store

    def begin(self) -> None:
        for name in PROVIDERS:
            self.put_provider(name, paused=False)
        for name in BATCHES:
            self.put_batch(name, paused=False)

    def act(self) -> str:
        random = self._world.random
        batch, records = random.choice(BATCHES), random.sample(RECORDS, random.randint(1, 5))
        actions: dict[str, Callable[[], None]] = {
            "put records": lambda: self.put_records(batch, records),
            "remove record": lambda: self.remove_record(batch, records[0]),
            "put provider": lambda: self.put_provider(random.choice(PROVIDERS), paused=random.random() < 0.3),
            "put batch": lambda: self.put_batch(batch, paused=random.random() < 0.3),
            "plan": lambda: self.plan(batch),
            "redrive": self.redrive,
            "discard": self.discard,
            "rerun": lambda: self.rerun(batch, records),
            "delete batch": lambda: self.delete_batch(batch),
        }
        name = random.choice((*actions, "put records", "redrive", "plan", "put batch"))
        actions[name]()
        return f"{name} {batch} {records}"

    def put_provider(self, name: str, *, paused: bool) -> None:
        random = self._world.random
        spec = ProviderSpec(
            base_url=f"http://{name}.example.org",
            headers={"Authorization": "secret"},
            method="PUT" if name == "slow" else "POST",
            order=random.choice(("spread", "imported", "priority")),
            max_in_flight=random.choice((1, 1, 1, 2, 5)),
            rate=random.choice((None, None, "2/1s", "20/1s", "3/1m")),
            timeout="60s",
            retry=RetrySpec(max_attempts=3, base="1s", cap="20s"),
            breaker=BreakerSpec(failures=random.choice((2, 5, 100)), open_for="30s"),
            unknown={"lying": "look_up", "strict": "hold"}.get(name, "retry"),  # type: ignore[arg-type]
            look_up="/calls/{run}" if name == "lying" else None,
            paused=paused,
        )
        if name in KINDS and random.random() < 0.4:
            spec = as_outgoing(spec)
        providers.put_provider_spec(
            self._store, OpenVault(), name, spec, expected_revision=None, now_ms=self._world.now_ms
        )

    def put_batch(self, name: str, *, paused: bool) -> None:
        random = self._world.random
        spec = BatchSpec(
            start="00:00",
            window={"b": "24h", "b-1": "1h", "1": "5m"}[name],
            timezone="Europe/Berlin",
            jitter=random.choice(("0s", "30s")),
            missed=random.choice(("skip", "once", "all")),
            paused=paused,
        )
        done = self._store.put_batch(name, spec, expected_revision=None, now_ms=self._world.now_ms)
        if done.disposition == "created":
            self.put_records(name, RECORDS[:8])

    def put_records(self, batch: str, names: Sequence[str]) -> None:
        random = self._world.random
        specs = [
            make_record(
                name,
                random.choice(PROVIDERS) if random.random() < 0.1 else PROVIDERS[int(name[1:]) % len(PROVIDERS)],
                f"/items/{name}",
                random.choice(('{"a":1}', '{"a":"{run} {attempt}"}')),
                active=self._world.calm or random.random() < 0.9,
                options=self._options(),
            )
            for name in names
        ]
        found = self._store.batch(batch)
        if found is None:
            return  # it was deleted
        self._store.put_records(found, specs, now_ms=self._world.now_ms)
        plan_late_records(self._store, found, now_ms=self._world.now_ms)

    def _options(self) -> RecordOptions:
        """Also records that wait for each other, or for themselves, which only a put past the steps can make."""
        random = self._world.random
        return RecordOptions(
            timeout=random.choice((None, None, "90s", "1s")),
            priority=random.choice((0, 0, 3)),
            after=random.choice(RECORDS[:6]) if random.random() < 0.15 else None,
        )

    def remove_record(self, batch: str, name: str) -> None:
        with suppress(PacelineError):
            batches.remove_record(self._store, batches.get_batch(self._store, batch), name)

    def plan(self, name: str) -> None:
        batch = self._store.batch(name)
        if batch is not None:
            with suppress(NotFound):  # it is being deleted
                plan.plan_day(self._store, batch, day_at(batch.spec, self._world.now_ms), now_ms=self._world.now_ms)

    def rerun(self, name: str, records: Sequence[str]) -> None:
        """Of the running day, or of the day before; some records have no run there."""
        random = self._world.random
        batch = self._store.batch(name)
        if batch is None:
            return
        day = day_at(batch.spec, self._world.now_ms) - timedelta(days=random.choice((0, 0, 1)))
        which: Any = random.choice(({"state": "done"}, {"state": "failed"}, {"records": records}))
        with suppress(NotFound, InvalidInput, LimitReached):
            rerun(self._store, batch, day.isoformat(), now_ms=self._world.now_ms, **which)

    def delete_batch(self, name: str) -> None:
        if self._world.random.random() < 0.1:
            with suppress(NotFound):
                delete_batch(self._store, name, now_ms=self._world.now_ms)

    def redrive(self) -> None:
        choice = DeadChoice(provider=self._world.random.choice(PROVIDERS))
        self._store.redrive(choice, gap_ms=1_000, now_ms=self._world.now_ms, limit=self._world.random.choice((2, 100)))

    def discard(self) -> None:
        if self._world.random.random() < 0.2:
            self._store.discard(DeadChoice(provider=self._world.random.choice(PROVIDERS)), limit=3)
