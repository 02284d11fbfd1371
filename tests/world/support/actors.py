"""The actors of the world: daemons with their providers, checkers, and users."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any, Protocol

from paceline.core.ids import run_id
from paceline.core.monitors.checks import DnsCheck, HttpCheck, OutgoingCheck, repeatable
from paceline.core.monitors.definition import MonitorSpec
from paceline.core.monitors.dispatch import RetryPolicy
from paceline.core.monitors.due import CatchUp
from paceline.core.monitors.outcome import Done
from paceline.core.monitors.values import CheckOrder, Finished, PutMonitor
from paceline.core.users import UserEdit
from paceline.errors import AlreadyExists, NotClaimable, NotFound, OwnerDisabled, StaleLease
from paceline.ports import Store
from paceline.steps import access
from paceline.steps.monitors import define, outgoing
from paceline.steps.monitors.look_after import close_hours, tell_late
from paceline.steps.monitors.react import react_to_all
from paceline.steps.monitors.run_now import run_now
from paceline.steps.monitors.send import claim_orders, settle, settle_and_claim
from paceline.steps.monitors.tick import pull_back, tick
from paceline.steps.upkeep.fold import fold_runs
from paceline.steps.upkeep.purge import purge
from paceline.steps.upkeep.recount import recount_phases
from tests.support import outgoing_runs
from tests.world.support.alert_books import policy_at
from tests.world.support.ledger import Ledger, demand

OWNERS = ("ann", "bob", "1-a", "1")
NAMES = ("a", "b", "a-b", "c")
POLICY = RetryPolicy(attempts_max=3, base_ms=1_000, cap_ms=20_000)
CATCH_UP = CatchUp(grace_ms=10_000, runs_max=5, window_ms=60_000, per_second=1_000, waiting_max=4)
CHECK_LEASE_MS = 60_000
KEEP_MS, EXPIRE_MS = 7_200_000, 3_600_000
CHECKS = (
    HttpCheck(url="http://example.org/"),
    HttpCheck(url="http://example.org/", method="POST", body="x"),
    DnsCheck(name="example.org"),
    OutgoingCheck(document={"kind": "outgoing", "task": 1}),
    OutgoingCheck(document={"kind": "outgoing", "task": 2}),
)


class Surroundings(Protocol):
    """The parts of the world that actors use."""

    random: Random
    ledger: Ledger
    calm: bool

    @property
    def now_ms(self) -> int: ...
    @property
    def true_ms(self) -> int:
        """A clock that is never set."""


class ScriptedProvider:
    """A model of the services outside: each check takes its time, some fail, none answers when the process is gone."""

    def __init__(self, world: Surroundings) -> None:
        self._world = world
        self._due: list[tuple[int, CheckOrder, Finished]] = []

    @property
    def in_flight(self) -> int:
        return len(self._due)

    def start(self, orders: Sequence[CheckOrder]) -> None:
        world = self._world
        for order in orders:
            world.ledger.sent(order.handle, order.attempt, order.check)
            latency_ms = 5 if world.calm else world.random.choice((5, 80, 900, 4_000, 30_000, 90_000))
            started_ms = world.now_ms
            done = Done(ok=world.random.random() < 0.8, reason="scripted", latency_ms=float(latency_ms))
            ended_ms = started_ms + latency_ms
            finished = Finished(order.handle, order.attempt, done, started_ms, ended_ms, order.attempts)
            self._due.append((world.true_ms + latency_ms, order, finished))

    def finished(self, *, wait_ms: int) -> list[Finished]:
        del wait_ms
        ended = [item for at_ms, _, item in self._due if at_ms <= self._world.true_ms]
        self._due = [entry for entry in self._due if entry[0] > self._world.true_ms]
        return ended

    def close(self) -> list[CheckOrder]:
        """Drops the checks in flight. Returns their orders."""
        dropped = [order for _, order, _ in self._due]
        self._due.clear()
        return dropped


class Daemon:
    """The loops of one process, one turn at a time. A crash is a new Daemon: it remembers nothing."""

    TURNS = ("react", "react", "tick", "tick", "tick", "send", "send", "send", "collect", "collect", "keep", "drain")

    def __init__(self, world: Surroundings, store: Store) -> None:
        self._world = world
        self._store = store
        self._provider = ScriptedProvider(world)
        self._ahead_ms: int | None = None

    def turn(self, name: str) -> None:
        getattr(self, name)()

    def whole_turn(self) -> None:
        for name in ("watch_clock", "react", "tick", "collect", "send"):
            self.turn(name)

    def react(self) -> None:
        react_to_all(self._store, now_ms=self._world.now_ms, passes_max=20)

    def tick(self) -> None:
        """Once, or as a daemon does that nothing disturbs: until nothing is due."""
        limit = self._world.random.choice((3, 1_000))
        while tick(self._store, now_ms=self._world.now_ms, catch_up=CATCH_UP, limit=limit).more and self._world.calm:
            pass

    def send(self) -> None:
        """Results in hand are settled in the same act, as a daemon does on a file."""
        ended, now_ms = self._provider.finished(wait_ms=0), self._world.now_ms
        room = 8 - self._provider.in_flight
        if ended:
            _, orders = settle_and_claim(
                self._store, ended, now_ms=now_ms, runs_max=room, lease_ms=CHECK_LEASE_MS, policy=POLICY
            )
        elif room > 0:
            orders = claim_orders(self._store, now_ms=now_ms, runs_max=room, lease_ms=CHECK_LEASE_MS, policy=POLICY)
        else:
            return
        self._provider.start(orders)

    def collect(self) -> None:
        settle(self._store, self._provider.finished(wait_ms=0), policy=POLICY)

    def drain(self) -> None:
        """What is in flight is given back where it can be repeated safely."""
        left = [(order.handle, order.attempt) for order in self._provider.close() if repeatable(order.check)]
        self._store.release(left, now_ms=self._world.now_ms)

    def keep(self) -> None:
        self.watch_clock()
        fold_runs(self._store, limit=50)
        close_hours(self._store, now_ms=self._world.now_ms)
        tell_late(self._store, after=0, now_ms=self._world.now_ms)
        purge(self._store, keep_ms=KEEP_MS, expire_ms=EXPIRE_MS, now_ms=self._world.now_ms, limit=50)
        recount_phases(self._store, now_ms=self._world.now_ms, every_ms=60_000, pause_ms=0, limit=4)

    def watch_clock(self) -> None:
        ahead_ms = self._world.now_ms - self._world.true_ms
        if self._ahead_ms is None or ahead_ms < self._ahead_ms - 1_000:
            pull_back(self._store, read_ms=lambda: self._world.now_ms, wait_ms_max=3_600_000, limit=3)
        self._ahead_ms = ahead_ms


class Checker:
    """A user's own checker: honest, but slow, forgetful, and given to repeating itself."""

    def __init__(self, world: Surroundings, store: Store, owner: str | None) -> None:
        self._world = world
        self._store = store
        self._owner = owner
        self._work: list[outgoing.OutgoingItem] = []
        self._done: list[outgoing.OutgoingItem] = []

    def claim(self) -> None:
        items = outgoing.claim_outgoing(
            self._store,
            owner=self._owner,
            now_ms=self._world.now_ms,
            runs_max=self._world.random.randint(1, 4),
            lease_ms=self._world.random.choice((1_000, 20_000, 300_000)),
            policy=POLICY,
        )
        self._begin(items)

    def take(self) -> None:
        """By a message: of the newest run or an older one, of this attempt or another, once or again."""
        random = self._world.random
        life = random.choice(list(self._world.ledger.lives.values()) or [None])
        if life is None or not life.runs:
            return
        run = random.choice(list(life.runs.values())[-4:])
        name = run_id(life.monitor.owner, life.monitor.id, generation=life.monitor.generation, counter=run.counter)
        attempt = random.choice((None, run.attempt, run.attempt + 1, run.attempt + 1)) or None
        ask = outgoing.RunClaim(name, attempt, random.choice((1_000, 20_000)), self._owner)
        with suppress(NotFound, NotClaimable):  # the ledger judges what was handed out
            self._begin([outgoing_runs.claim_run(self._store, ask, now_ms=self._world.now_ms, policy=POLICY)])

    def _begin(self, items: Sequence[outgoing.OutgoingItem]) -> None:
        for item in items:
            handle, attempt = item.lease.split(".")
            self._world.ledger.sent(int(handle, 16), int(attempt), OutgoingCheck(item.check))
        self._work += items

    def settle(self) -> None:
        if self._work:
            self._done = [*self._done[-20:], self._work.pop(self._world.random.randrange(len(self._work)))]
            self._report(self._done[-1])

    def settle_all(self) -> None:
        while self._work:
            self._report(self._work.pop(0), status="ok")

    def repeat(self) -> None:
        if self._done:
            self._report(self._world.random.choice(self._done))

    def extend(self) -> None:
        if self._work:
            item = self._world.random.choice(self._work)
            by_ms = self._world.random.choice((1_000, 60_000, 600_000))
            try:
                outgoing.extend_lease(
                    self._store, item.run, lease=item.lease, by_ms=by_ms, viewer=self._owner, now_ms=self._world.now_ms
                )
            except (StaleLease, NotFound):
                self._work = [other for other in self._work if other is not item]

    def _report(self, item: outgoing.OutgoingItem, *, status: Any = None) -> None:
        with suppress(StaleLease, NotFound):  # the ledger has judged whether that was right
            report = outgoing.OutcomeReport(
                item.run,
                item.lease,
                status or self._world.random.choice(("ok", "ok", "failed", "retry")),
                {"reason": "looked"},
                self._owner,
                self._world.random.random(),
            )
            outgoing_runs.record_outcome(self._store, report, now_ms=self._world.now_ms, policy=POLICY)


class Users:
    """Users that keep editing."""

    def __init__(self, world: Surroundings, store: Store) -> None:
        self._world = world
        self._store = store

    def act(self) -> str:
        random = self._world.random
        owner, name = random.choice(OWNERS), random.choice(NAMES)
        life = self._world.ledger.find(owner, name)
        try:
            if random.random() < 0.06:
                return self._act_on_user(owner)
            if life is None or random.random() < 0.5:
                return self._put(owner, name, self._spec())
            return self._edit(owner, name)
        except NotFound:  # a concurrent edit won, or a crash left the user removed and not added again
            self.add(owner)
            return f"found nothing at {owner}/{name}"

    def _put(self, owner: str, name: str, spec: MonitorSpec) -> str:
        put = PutMonitor(owner=owner, id=name, spec=spec)
        result = define.put_monitors(self._store, [put], monitors_max=100, now_ms=self._world.now_ms)[0]
        cadence = f"{spec.every or spec.cron} jitter {spec.jitter} {spec.missed} {spec.overlap}"
        return f"{result.disposition} {owner}/{name} {cadence} paused {spec.paused}"

    def _edit(self, owner: str, name: str) -> str:
        now_ms, random = self._world.now_ms, self._world.random
        if random.random() < 0.3:
            define.remove_monitor(self._store, owner, name, now_ms=now_ms)
            return f"removed {owner}/{name}"
        paused = random.random() < 0.4
        define.edit_monitor(
            self._store,
            owner,
            name,
            lambda spec: define.set_paused(spec, paused=paused),
            expected_revision=None,
            monitors_max=100,
            now_ms=now_ms,
        )
        return f"paused {paused} {owner}/{name}"

    def run_now(self) -> str:
        """Asks for a check of any monitor, or of one that has no open run; once, or with a finger that trembles."""
        random, ledger = self._world.random, self._world.ledger
        idle = [life for life in ledger.living() if all(run.over for run in life.runs.values())]
        chosen = random.choice(idle or [None]) if random.random() < 0.7 else None
        owner, name = random.choice(OWNERS), random.choice(NAMES)
        if chosen is not None:
            owner, name = chosen.monitor.owner, chosen.monitor.id
        made = ""
        for _ in range(random.choice((1, 1, 3))):
            try:
                made = run_now(self._store, owner, name, now_ms=self._world.now_ms, catch_up=CATCH_UP).run
            except OwnerDisabled:
                demand(12, owner in ledger.disabled, f"{owner} is not disabled")
                return f"asked for a run of {owner}/{name}, whose owner is disabled"
            except NotFound:
                return f"found nothing at {owner}/{name}"
            life = ledger.find(owner, name)
            demand(5, life is not None and int(made.rpartition("@")[2]) in life.runs, f"{made} was never made")
        return f"asked for {owner}/{name}@{made.rpartition('@')[2]}"  # generations differ between engines

    def _act_on_user(self, owner: str) -> str:
        if self._world.random.random() < 0.15:
            access.remove_user(self._store, owner, now_ms=self._world.now_ms)
            self.add(owner)
            return f"removed and added user {owner}"
        disabled = owner not in self._world.ledger.disabled
        access.edit_user(self._store, owner, UserEdit(disabled=disabled), now_ms=self._world.now_ms)
        return f"user {owner} disabled {disabled}"

    def add(self, owner: str) -> None:
        now_ms, seed = self._world.now_ms, self._world.random.randbytes(32)
        with suppress(AlreadyExists):
            access.add_user(
                self._store, owner, role="user", daily_credits=0, token_bytes=seed, secret_key=b"k" * 32, now_ms=now_ms
            )

    def _spec(self) -> MonitorSpec:
        random = self._world.random
        interval = random.random() < 0.75
        return MonitorSpec(
            check=random.choice(CHECKS),
            every=random.choice(("1s", "5s", "17s", "60s", "10m", "1h")) if interval else None,
            cron=None if interval else random.choice(("* * * * *", "*/5 * * * *", "30 2 * * *")),
            timezone="UTC" if interval else random.choice(("UTC", "Europe/Berlin", "Australia/Lord_Howe")),
            initial_delay=random.choice((None, None, "0s", "7s", "3m")),
            jitter=random.choice(("0s", "0s", "4s", "2m")),
            missed=random.choice(("skip", "once", "all")),
            overlap=random.choice(("skip", "queue")),
            paused=random.random() < 0.1,
            tags=(random.choice(("x", "y")),),
            alert=policy_at(self._world.now_ms),
        )
