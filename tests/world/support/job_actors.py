"""The actors of the world of jobs: daemons that send and follow, users, operators, and events at RIPE."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple, Protocol

from paceline.core.jobs.accounts import enable_key
from paceline.core.jobs.job import JobLimits
from paceline.core.jobs.values import AccountSpec
from paceline.core.users import User, UserEdit
from paceline.errors import PacelineError
from paceline.ports import Atlas, Clock, Store
from paceline.simulators.ripe_atlas import POOL_PERMISSIONS, AtlasSimulator, Limits, SimulatedGrant
from paceline.simulators.ripe_atlas.accounts import CREATE, SimulatedKey
from paceline.simulators.ripe_atlas.messages import AtlasRequest
from paceline.simulators.ripe_atlas.world import Fate
from paceline.steps.history.notes import note_disabled, note_limit
from paceline.steps.jobs import accounts, dispatch, follow, lookup, reconcile, submit, sync
from tests.world.support.batch_actors import OpenVault
from tests.world.support.job_ledger import JobBooks
from tests.world.support.seeded import HOUR_MS, SECOND_MS

OWNERS = ("ann", "bob", "cat", "dan")
TARGETS = ("192.0.2.1", "192.0.2.2", "192.0.2.3", "a.example.org")
FATES = {5: "forced.example.org", 6: "nobody.example.org", 7: "failing.example.org", 8: "denied.example.org"}
SETTLE_MS = 60 * SECOND_MS
SYNC_EVERY_MS = 30 * SECOND_MS
KEEP_MS = 12 * HOUR_MS
WAIT_MS_MAX = 24 * HOUR_MS
TOO_LARGE_PROBES = 900
FULL_GRANTS = tuple(SimulatedGrant(one) for one in POOL_PERMISSIONS)


class Place(NamedTuple):
    """An account at RIPE. ``ours``: nobody else uses it, so RIPE never has a reason to refuse us."""

    name: str
    keys: int
    limits: Limits
    ours: bool = True

    @property
    def spec(self) -> AccountSpec:
        return AccountSpec(self.limits.concurrent, self.limits.daily_results, self.limits.daily_credits)


PLACES = (
    Place("small", 1, Limits(concurrent=3, daily_results=120, daily_credits=1_500)),
    Place("wide", 3, Limits(concurrent=12, daily_results=1_500, daily_credits=9_000)),
    Place("rich", 2, Limits(concurrent=8, daily_results=900, daily_credits=30_000)),
    Place("shared", 2, Limits(concurrent=8, daily_results=700, daily_credits=9_000), ours=False),
)


class Surroundings(Protocol):
    random: Random
    books: JobBooks
    calm: bool
    simulator: AtlasSimulator
    clock: Clock
    places: tuple[Place, ...]
    sending_max: int

    @property
    def now_ms(self) -> int: ...
    @property
    def true_ms(self) -> int: ...


class JobDaemon:
    """One process: what it remembers is gone when it dies."""

    TURNS = (
        *(("dispatch",) * 8 + ("follow",) * 3 + ("look_up",) * 4 + ("sync",) * 2),
        *("lose", "finish", "reconcile", "keep"),
    )

    def __init__(self, world: Surroundings, store: Store, atlas: Atlas) -> None:
        self._world = world
        self._store = store
        self._atlas = atlas
        self._vault = OpenVault()
        self._watch = follow.Watch()
        self._ahead_ms: int | None = None
        site = store.site(world.books.site)
        self._desk = dispatch.DispatchSettings(
            site=site, secret=b"secret", sending_max=world.sending_max, settle_ms=SETTLE_MS
        )

    def turn(self, name: str) -> object:
        return getattr(self, name)()

    def whole_turn(self) -> None:
        for name in ("keep", "lose", "look_up", "sync", "follow", "finish"):
            self.turn(name)
        for _ in range(20):
            if self.dispatch() == "idle":
                return

    def dispatch(self) -> str:
        world = self._world
        done = dispatch.dispatch_next(
            self._store, self._atlas, self._vault, self._desk, clock=world.clock, chance=world.random.random
        )
        world.books.outcomes[done.outcome] += 1
        return done.outcome

    def look_up(self) -> object:
        world = self._world
        found = lookup.look_up(
            self._store, self._atlas, self._vault, self._desk, clock=world.clock, chance=world.random.random
        )
        world.books.outcomes.update(found._asdict())
        return found

    def lose(self) -> object:
        return lookup.lose_stale_sends(self._store, settle_ms=SETTLE_MS, now_ms=self._world.now_ms)

    def follow(self) -> object:
        return follow.follow(self._store, self._atlas, self._vault, self._watch, clock=self._world.clock)

    def finish(self) -> object:
        return follow.finish(self._store, now_ms=self._world.now_ms)

    def sync(self) -> object:
        return sync.sync_accounts(
            self._store,
            self._atlas,
            self._vault,
            site=self._desk.site,
            every_ms=SYNC_EVERY_MS,
            clock=self._world.clock,
        )

    def reconcile(self) -> None:
        found = reconcile.reconcile(
            self._store,
            self._atlas,
            self._vault,
            site=self._desk.site,
            settle_ms=SETTLE_MS,
            clock=self._world.clock,
        )
        self._world.books.reconciled(found)

    def keep(self) -> None:
        """The keeper: a clock that was set back, and what is kept long enough."""
        now_ms = self._world.now_ms
        ahead_ms = now_ms - self._world.true_ms
        if self._ahead_ms is None or ahead_ms < self._ahead_ms - SECOND_MS:
            self._store.pull_back_sends(lambda: now_ms, wait_ms_max=WAIT_MS_MAX)
        self._ahead_ms = ahead_ms
        self._store.purge_jobs(finished_before_ms=now_ms - KEEP_MS, limit=20)


class JobUsers:
    """Users that submit, sometimes twice or too much, and cancel."""

    def __init__(self, world: Surroundings, store: Store) -> None:
        self._world = world
        self._store = store
        self._used: list[tuple[str, str, bytes]] = []

    def act(self) -> str:
        random = self._world.random
        owner = random.choice(OWNERS)
        actions: dict[str, Callable[[], object]] = {
            "submits": lambda: self.submit(owner, self._job()),
            "submits again": self.submit_again,
            "takes all that is left": lambda: self.take_all(owner),
            "cancels a job": self.cancel_job,
            "cancels a measurement": self.cancel_measurement,
        }
        name = random.choices(list(actions), weights=(10, 2, 1, 1, 1))[0]
        with suppress(PacelineError):
            actions[name]()
        return f"{owner} {name}"

    def submit(self, owner: str, body: bytes, key: str | None = None) -> None:
        random = self._world.random
        if key is None and random.random() < 0.5:
            key = f"key-{random.randrange(10**9)}"
            self._used.append((owner, key, body))
        submit.submit_job(self._store, owner, body, limits=JobLimits(), idempotency_key=key, now_ms=self._world.now_ms)

    def submit_again(self) -> None:
        """The same job under the same key; or, by mistake, another one."""
        if self._used:
            owner, key, body = self._world.random.choice(self._used[-20:])
            self.submit(owner, self._job() if self._world.random.random() < 0.2 else body, key)

    def take_all(self, owner: str) -> None:
        """Submits two jobs that each fit alone: exactly one wins, also while others submit."""
        budget = self._store.budget(owner, now_ms=self._world.now_ms)
        probes = min((budget.left if budget else 0) // 6, 50)
        if probes:
            body = _job_body([_measurement("ping", TARGETS[0], probes)])
            self.submit(owner, body)
            self.submit(owner, body)

    def cancel_job(self) -> None:
        if job := self._world.books.some_job(self._world.random):
            self._store.cancel_job(job.number, now_ms=self._world.now_ms)

    def cancel_measurement(self) -> None:
        if job := self._world.books.some_job(self._world.random):
            index = self._world.random.randrange(job.measurements)
            self._store.cancel_measurement(job.number << 14 | index, now_ms=self._world.now_ms)

    def _job(self) -> bytes:
        random = self._world.random
        count = random.choice((1, 1, 2, 3, 5, 12))
        return _job_body([self._one() for _ in range(count)])

    def _one(self) -> dict[str, Any]:
        random = self._world.random
        roll = random.random()
        target = random.choice(TARGETS if roll > 0.12 else tuple(FATES.values()))
        probes = random.randint(1, 6)
        if roll < 0.55:
            return _measurement(random.choice(("ping", "ping", "dns", "sslcert")), target, probes)
        if roll < 0.65:
            return _measurement("traceroute", target, random.randint(1, 3))
        if roll < 0.72:
            return _measurement("ping", target, probes, definitions=random.randint(2, 3))
        if roll < 0.76:
            return _measurement("ping", target, probes, is_public=False)
        if roll < 0.94:
            now_s = self._world.now_ms // 1000
            return _measurement(
                "ping",
                target,
                random.randint(1, 2),
                start_time=now_s + random.choice((-60, 60, 900)) if random.random() < 0.4 else None,
                stop_time=now_s + random.choice((1_200, 3_000, 7_200)),
                interval=random.choice((900, 1_800)),
            )
        if roll < 0.96:
            return _measurement("http", target, 1)  # RIPE forbids it
        if roll < 0.98:
            return _measurement("ping", target, 2, source={"type": "asn", "value": 64_999})  # not covered
        return _measurement("ping", target, TOO_LARGE_PROBES)


class Operators:
    """They edit users, accounts and keys while everything runs."""

    def __init__(self, world: Surroundings, store: Store) -> None:
        self._world = world
        self._store = store

    def begin(self) -> None:
        for owner in OWNERS:
            self.add_user(owner)
        for place in self._world.places:
            self._world.simulator.add_account(place.name, keys=place.keys, limits=place.limits)
            accounts.put_account_spec(self._store, place.name, place.spec)
            for secret in self.secrets(place.name):
                self.add_key(place.name, secret)

    def act(self) -> str:
        random = self._world.random
        owner, place = random.choice(OWNERS), random.choice(self._world.places)
        actions: dict[str, Callable[[], object]] = {
            "changes limits of": lambda: self.put_account(place),
            "disables": lambda: self.put_account(place, enabled=False),
            "enables": lambda: self.put_account(place, enabled=True),
            "adds a key to": lambda: self.add_key(place.name, random.choice(self.secrets(place.name))),
            "removes a key of": lambda: self.change_key(place.name, "remove"),
            "disables a key of": lambda: self.change_key(place.name, "disable"),
            "enables the keys of": lambda: self.change_key(place.name, "enable"),
            "edits a user": lambda: self.edit_user(owner),
            "removes a user": lambda: random.random() < 0.3 and self._store.remove_user(owner),
            "adds a user": lambda: self.add_user(owner),
        }
        mends = ("adds a key to", "enables the keys of", "enables the keys of", "enables", "enables", "adds a user")
        name = random.choice((*actions, *mends))
        with suppress(PacelineError):
            actions[name]()
        return f"{name} {place.name}/{owner}"

    def add_user(self, owner: str) -> None:
        limit = {"ann": 4_000, "bob": 1_500, "cat": 900, "dan": 6_000}[owner]
        self._store.add_user(User(owner, "user", limit, disabled=False, created_ms=self._world.now_ms))

    def edit_user(self, owner: str) -> None:
        random = self._world.random
        limit = random.choice((None, 300, 2_000, 6_000)) if owner in ("ann", "bob") else None
        if (before := self._store.user(owner)) is not None:
            note_limit(self._store, owner, daily_credits=before.daily_credits, now_ms=self._world.now_ms)
        disabled = random.random() < 0.3
        note_disabled(self._store, owner, disabled=disabled, now_ms=self._world.now_ms)
        self._store.edit_user(owner, UserEdit(daily_credits=limit, disabled=disabled))

    def put_account(self, place: Place, *, enabled: bool = True) -> None:
        """Never above what RIPE allows: who claims more is told so by RIPE."""
        share = self._world.random.choice((1.0, 1.0, 0.5))
        limits = place.limits
        spec = AccountSpec(
            max(1, int(limits.concurrent * share)),
            int(limits.daily_results * share),
            int(limits.daily_credits * share),
            enabled=enabled,
        )
        accounts.put_account_spec(self._store, place.name, spec)

    def add_key(self, account: str, secret: str) -> None:
        accounts.add_key(self._store, OpenVault(), account, secret, now_ms=self._world.now_ms)

    def change_key(self, account: str, change: str) -> None:
        keys = self._store.keys(account)
        if not keys:
            return
        key = self._world.random.choice(keys)
        if change == "remove":
            self._store.remove_key(account, key.id)
        elif change == "disable":
            self._store.change_key(account, key.id, enable_key(enabled=False))
        else:
            for one in keys:
                self._store.change_key(account, one.id, enable_key(enabled=True))

    def secrets(self, account: str) -> list[str]:
        return [key.uuid for key in self._world.simulator.world.registry.keys.values() if key.account == account]

    def put_all_right(self) -> None:
        """Everybody is there, everything is enabled and as large as at the beginning."""
        for owner in OWNERS:
            note_disabled(self._store, owner, disabled=False, now_ms=self._world.now_ms)
            self._store.edit_user(owner, UserEdit(disabled=False))
        for place in self._world.places:
            accounts.put_account_spec(self._store, place.name, place.spec)
            for secret in self.secrets(place.name):
                with suppress(PacelineError):
                    self.add_key(place.name, secret)
            self.change_key(place.name, "enable")


class Ripe:
    """What happens over there: other people's measurements, keys that are revoked, targets that fill up."""

    def __init__(self, world: Surroundings) -> None:
        self._world = world
        for status, target in FATES.items():
            world.simulator.world.add_fate(Fate(status=status, target=target, after_ms=4 * SECOND_MS))

    def act(self) -> str:
        random = self._world.random
        actions = {"others measure": self.others, "a key is revoked": self.revoke, "a key is back": self.restore}
        name = random.choice((*actions, "others measure", "a key is back", "somebody uses the shared account"))
        actions.get(name, self.use_shared)()
        return name

    def others(self) -> None:
        random, world = self._world.random, self._world.simulator.world
        world.others[random.choice(TARGETS)] = random.choice((0, 0, 0, world.model.target_cap))

    def revoke(self) -> None:
        random = self._world.random
        key = random.choice(self._keys())
        if random.random() < 0.5:
            key.enabled = False
        else:
            key.grants = tuple(grant for grant in key.grants if grant.permission != CREATE)

    def restore(self) -> None:
        key = self._world.random.choice(self._keys())
        key.enabled, key.grants = True, FULL_GRANTS

    def use_shared(self) -> None:
        """By its owner, who knows nothing of us."""
        random = self._world.random
        key = next(key for key in self._keys() if key.account == "shared")
        kept, key.enabled, key.grants = (key.enabled, key.grants), True, FULL_GRANTS
        document = _measurement("ping", "198.51.100.7", random.randint(1, 40), definitions=random.randint(1, 3))
        headers = {"authorization": f"Key {key.uuid}"}
        body = json.dumps(document).encode()
        self._world.simulator.answer(AtlasRequest.of("POST", "/api/v2/measurements/", headers=headers, body=body))
        key.enabled, key.grants = kept

    def put_all_right(self) -> None:
        self._world.simulator.world.others.clear()
        for key in self._keys():
            key.enabled, key.grants = True, FULL_GRANTS

    def _keys(self) -> list[SimulatedKey]:
        return list(self._world.simulator.world.registry.keys.values())


def _job_body(measurements: list[dict[str, Any]]) -> bytes:
    return json.dumps({"measurements": measurements}).encode()


def _measurement(
    kind: str,
    target: str,
    probes: int,
    *,
    definitions: int = 1,
    source: dict[str, Any] | None = None,
    stop_time: int | None = None,
    start_time: int | None = None,
    **fields: Any,
) -> dict[str, Any]:
    own: dict[str, dict[str, Any]] = {
        "traceroute": {"protocol": "ICMP"},
        "dns": {"query_class": "IN", "query_type": "A", "query_argument": "example.org"},
    }
    one = {"type": kind, "af": 4, "target": target, "description": "a test"} | own.get(kind, {}) | fields
    document: dict[str, Any] = {
        "definitions": [one] * definitions,
        "probes": [(source or {"type": "area", "value": "WW"}) | {"requested": probes}],
    }
    times = {"start_time": start_time, "stop_time": stop_time}
    document |= {name: value for name, value in times.items() if value is not None}
    return document if stop_time else document | {"is_oneoff": True}
