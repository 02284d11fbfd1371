"""Two rules for spending accounts, on the same arrivals: Paceline's holds, and counters overwritten after idle seconds.

Both send through the real client to the RIPE Atlas simulator over loopback, on a virtual clock; RIPE's counters lag as
the simulator's model has it (charged every four hours, lists five seconds late). Paceline's side is the product: its
steps on a store in memory. The other is the plain rule: local counters, raised with each send, and overwritten with
RIPE's figures once nobody has asked for a key for 30 seconds; when all accounts are full it asks again after 30.1 s.
"""

from __future__ import annotations

import json
from collections import deque
from contextlib import closing
from random import Random
from typing import Any, NamedTuple, Protocol

from bench.harness import Context, Result
from paceline.adapters.providers.ripe_atlas import RipeAtlas
from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.jobs.atlas import Created, Lost, Marker, Refused, request_body
from paceline.core.jobs.job import JobLimits, parse_request
from paceline.core.jobs.values import AccountSpec, AddKey
from paceline.core.users import User
from paceline.ports import Store
from paceline.simulators.ripe_atlas import AtlasSimulator, SimulatedLimits, SimulatorClock, SimulatorModel
from paceline.steps.jobs.dispatch import DispatchSettings, dispatch_next
from paceline.steps.jobs.follow import Watch, finish, follow
from paceline.steps.jobs.submit import submit_job
from paceline.steps.jobs.sync import sync_accounts

START_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
SPAN_MS = 30 * HOUR_MS
QUICK_SPAN_MS = 8 * HOUR_MS
STEP_MS = 30_100
IDLE_MS = 30_000
FOLLOW_MS = 60_000
SYNC_MS = 300_000
"""Less often than the product: it notices free room later."""
DECLARED = SimulatedLimits(concurrent=15, daily_results=100_000, daily_credits=50_000)
GENEROUS = SimulatedLimits(concurrent=10_000, daily_results=10_000_000, daily_credits=10_000_000)
"""Limits of a RIPE that refuses nothing: only there can be seen how far a rule overspends."""
ACCOUNTS = ("a", "b", "c", "d")
WORK = "two rules, the same arrivals"


class Arrival(NamedTuple):
    at_ms: int
    probes: int


class Rule(Protocol):
    waiting: int

    def add(self, probes: int, now_ms: int) -> None: ...
    def turn(self) -> None:
        """Does the work that is due. Called at each arrival, and at least every 30.1 s."""


class Lab:
    """RIPE with four accounts, and a clock."""

    def __init__(self, seed: int, limits: SimulatedLimits) -> None:
        self.time_ms = START_MS
        clock = SimulatorClock(source=self.now_ms)
        self.simulator = AtlasSimulator(SimulatorModel(seed=seed, probes=500, target_cap=100_000), clock=clock)
        self.keys = {name: self.simulator.add_account(name, limits=limits)[0] for name in ACCOUNTS}

    def now_ms(self) -> int:
        return self.time_ms


class Holds:
    """The rule of the product: holds."""

    def __init__(self, lab: Lab, atlas: RipeAtlas) -> None:
        self._lab, self._atlas = lab, atlas
        self._store: Store = SqliteStore(":memory:")
        self._watch = Watch()
        self._desk = DispatchSettings(site=self._store.site("bench"), secret=b"bench", sending_max=1, settle_ms=60_000)
        self._store.add_user(User("ann", "user", 10**12, disabled=False, created_ms=START_MS))
        for name, secret in lab.keys.items():
            spec = AccountSpec(DECLARED.concurrent, DECLARED.daily_results, DECLARED.daily_credits)
            self._store.put_account(name, spec)
            self._store.add_key(AddKey(name, secret, secret[-4:]), now_ms=START_MS)

    @property
    def waiting(self) -> int:
        counts = self._store.send_counts()
        return counts.queued + counts.parked + counts.ongoing

    def add(self, probes: int, now_ms: int) -> None:
        body = json.dumps({"measurements": [_document(probes)]}).encode()
        submit_job(self._store, "ann", body, limits=JobLimits(), now_ms=now_ms)

    def turn(self) -> None:
        store, atlas, lab = self._store, self._atlas, self._lab
        sync_accounts(store, atlas, _OPEN, site=self._desk.site, every_ms=SYNC_MS, clock=lab)
        if store.take_duty("follow", every_ms=FOLLOW_MS, now_ms=lab.time_ms):
            follow(store, atlas, _OPEN, self._watch, clock=lab)
            finish(store, now_ms=lab.time_ms)
        while dispatch_next(store, atlas, _OPEN, self._desk, clock=lab, chance=lambda: 0.5).outcome != "idle":
            pass

    def close(self) -> None:
        assert not self._store.verify()
        self._store.close()


class _OpenVault:
    """Vault without encryption: the simulator's keys are not secret."""

    def seal(self, secret: str) -> str:
        return secret

    def unseal(self, sealed: str) -> str:
        return sealed


_OPEN = _OpenVault()


class OverwritesWhenIdle:
    """The plain rule: local counters of each account for slots, results and credits."""

    def __init__(self, lab: Lab, atlas: RipeAtlas) -> None:
        self._lab, self._atlas = lab, atlas
        self._used = {name: [0, 0, 0] for name in ACCOUNTS}
        self._queue: deque[int] = deque()
        self._asked_ms = self._synced_ms = START_MS
        self._wait_ms = 0
        self._number = 0

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def add(self, probes: int, now_ms: int) -> None:
        del now_ms
        self._queue.append(probes)

    def turn(self) -> None:
        now_ms = self._lab.time_ms
        if now_ms - max(self._asked_ms, self._synced_ms) >= IDLE_MS:
            self._overwrite()
        while self._queue and now_ms >= self._wait_ms:
            self._asked_ms = now_ms
            need = (1, self._queue[0], 60 * self._queue[0])
            name = self._free(need)
            if name is None or not self._send(name, self._queue[0]):
                self._wait_ms = now_ms + STEP_MS
                return
            self._queue.popleft()
            self._used[name] = [used + more for used, more in zip(self._used[name], need, strict=True)]

    def close(self) -> None:
        """Does nothing: there is nothing to close."""

    def _free(self, need: tuple[int, int, int]) -> str | None:
        limits = (DECLARED.concurrent, DECLARED.daily_results, DECLARED.daily_credits)
        rooms = [
            name
            for name, used in self._used.items()
            if all(have + more <= limit for have, more, limit in zip(used, need, limits, strict=True))
        ]
        return min(rooms, key=lambda name: self._used[name][2], default=None)

    def _send(self, name: str, probes: int) -> bool:
        self._number += 1
        now_ms = self._lab.time_ms
        wanted = parse_request(json.dumps(_document(probes)).encode(), JobLimits(), now_ms=now_ms)
        body = request_body(wanted, Marker("bench", "j", self._number), client="0" * 64, now_ms=now_ms)
        return isinstance(self._atlas.create(self._lab.keys[name], wanted, body), Created)

    def _overwrite(self) -> None:
        self._synced_ms = self._lab.time_ms
        for name, key in self._lab.keys.items():
            spend, running = self._atlas.credits(key), self._atlas.in_flight(key)
            assert not isinstance(spend, Refused | Lost), spend  # errors do not occur here
            assert isinstance(running, int), running
            self._used[name] = [running, spend.results_day, spend.spent_day]


RULES: dict[str, type[Holds | OverwritesWhenIdle]] = {
    "holds (Paceline)": Holds,
    "overwritten after 30 idle seconds": OverwritesWhenIdle,
}


def compare(context: Context) -> list[Result]:
    rows: list[Result] = []
    for seed in range(5 if context.full else 1):
        load = arrivals(seed, SPAN_MS if context.full else QUICK_SPAN_MS)
        for name in RULES:
            strict = _live(name, load, seed, DECLARED)
            # A rule that is never refused behaves the same with a RIPE that refuses nothing.
            generous = _live(name, load, seed, GENEROUS) if strict["refused"] else strict
            row: Result = {"work": WORK, "subject": f"{name}, seed {seed}", "size": len(load)}
            row |= {column: strict[column] for column in ("sent", "refused", "credits")}
            row |= {column: generous[column] for column in ("over_credits", "over_slots")}
            rows.append(row)
            context.say(
                f"pool: {row['subject']}: sent {row['sent']} of {row['size']} for {row['credits']:,} credits, RIPE"
                f" refused {row['refused']}; had it not, an account would be {row['over_credits']:,} credits and"
                f" {row['over_slots']} slots over"
            )
    return rows


def arrivals(seed: int, span_ms: int) -> list[Arrival]:
    """Returns bursts of one-offs with pauses between them: more than the accounts can take."""
    random, now_ms = Random(seed), START_MS
    found: list[Arrival] = []
    while now_ms < START_MS + span_ms:
        for _ in range(random.randrange(5, 40)):
            found.append(Arrival(now_ms, random.choice((1, 5, 10, 20, 50))))
            now_ms += random.randrange(200, 2_000)
        now_ms += random.randrange(600_000, 3_600_000)
    return found


def _live(name: str, load: list[Arrival], seed: int, limits: SimulatedLimits) -> dict[str, Any]:
    """Returns the figures of one rule: what RIPE accepted and refused, and how far it exceeded the declared limits."""
    lab = Lab(seed, limits)
    with lab.simulator, closing(RipeAtlas(lab.simulator.base_url)) as atlas, closing(RULES[name](lab, atlas)) as rule:
        for arrival in load:
            while lab.time_ms + STEP_MS < arrival.at_ms:
                lab.time_ms += STEP_MS if rule.waiting else max(STEP_MS, (arrival.at_ms - lab.time_ms) // 2)
                rule.turn()
            lab.time_ms = max(lab.time_ms, arrival.at_ms)
            rule.add(arrival.probes, lab.time_ms)
            rule.turn()
        audit = lab.simulator.audit()
    accounts = audit["accounts"].values()
    return {
        "sent": len(audit["measurements"]),
        "refused": sum(sum(one["refusals"].values()) for one in accounts),
        "credits": sum(one["spent"] for one in accounts),
        "over_credits": max(0, *(one["peaks"]["daily_credits"] - DECLARED.daily_credits for one in accounts)),
        "over_slots": max(0, *(one["peaks"]["concurrent"] - DECLARED.concurrent for one in accounts)),
    }


def _document(probes: int) -> dict[str, Any]:
    """Returns a one-off traceroute: 60 credits a result."""
    target = {"type": "traceroute", "protocol": "ICMP", "af": 4, "target": "192.0.2.1", "description": "a bench"}
    return {
        "definitions": [target],
        "probes": [{"type": "area", "value": "WW", "requested": probes}],
        "is_oneoff": True,
    }
