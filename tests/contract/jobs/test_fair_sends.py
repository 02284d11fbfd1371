"""Whose measurement is sent next when accounts are full: the dispatcher's own step on every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from paceline.core.jobs.accounts import enable_key
from paceline.core.jobs.atlas import ONEOFF_MS, Answer, Created
from paceline.core.jobs.measurement import Measurement
from paceline.core.jobs.pool import PASSED_MS_MAX
from paceline.core.jobs.values import AccountSpec, MeasurementEnd, StoredMeasurement
from paceline.ports import Store
from paceline.steps.jobs.dispatch import Dispatched, DispatchSettings, dispatch_next
from paceline.steps.views.job_report import job_view
from tests.contract.support.job_stage import COST, add_account, admitted
from tests.contract.support.stage import T0_MS

DESK = DispatchSettings("site1", b"secret", sending_max=1, settle_ms=60_000)
MINUTE_MS = 60_000
LARGE = msgspec.structs.replace(COST, concurrent=4)


class Ripe:
    """Accepts every measurement. ``at_ms`` is the clock, which the test moves."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.at_ms = T0_MS
        self._ids = 1_000
        self.out: list[StoredMeasurement] = []

    def now_ms(self) -> int:
        return self.at_ms

    def unseal(self, sealed: str) -> str:
        return sealed

    def create(self, _key: str, measurement: Measurement, _body: bytes) -> Answer:
        first = self._ids
        self._ids += len(measurement.definitions)
        return Created(tuple(range(first, self._ids)))

    def dispatch(self) -> Dispatched:
        edge: Any = self
        done = dispatch_next(self._store, edge, edge, DESK, clock=self, chance=lambda: 0.5)
        if done.outcome == "sent":
            assert done.item is not None
            self.out.append(done.item)
        return done

    def send_all(self) -> list[str]:
        """Sends until nothing more can be sent. Returns the owners of the sent measurements."""
        owners = []
        while (done := self.dispatch()).outcome == "sent":
            assert done.item is not None
            owners.append(done.item.owner)
        return owners

    def end_first(self) -> None:
        """Ends the oldest running measurement and frees its slots."""
        item = self.out.pop(0)
        ending = MeasurementEnd(item.handle, item.attempt, "done", "", 1, 1, frees_slot=True)
        assert self._store.end([ending], now_ms=self.at_ms)[0].won


@pytest.fixture
def ripe(store: Store) -> Ripe:
    return Ripe(store)


def windows(owners: list[str], size: int) -> Iterator[list[str]]:
    for start in range(len(owners) - size + 1):
        yield owners[start : start + size]


def test_promise_13_a_small_user_has_its_turns_when_every_slot_is_taken_by_a_large_one(
    store: Store, ripe: Ripe, *, by_request: bool
) -> None:
    slots, many = (4, 30) if by_request else (20, 400)
    add_account(store, spec=AccountSpec(concurrent=slots))
    admitted(store, many)
    assert ripe.send_all() == ["ann"] * slots
    admitted(store, 5, owner="bob")
    owners: list[str] = []
    while owners.count("bob") < 5:
        assert ripe.dispatch().parked == 0
        ripe.at_ms += 1_000
        ripe.end_first()
        owners += ripe.send_all()
        assert len(owners) <= 10, "bob has every second send"
    assert all(4 <= window.count("bob") <= 6 for window in windows(owners, 10))
    assert store.send_counts().parked == 0, "nobody is parked because accounts are full"


def test_promise_13_a_slot_that_is_freed_is_used_in_the_same_moment(store: Store, ripe: Ripe) -> None:
    add_account(store, spec=AccountSpec(concurrent=2))
    admitted(store, 6)
    assert len(ripe.send_all()) == 2
    ripe.end_first()
    ripe.end_first()
    assert len(ripe.send_all()) == 2, "both, and no time has passed"


@pytest.mark.parametrize(
    "make_room",
    [
        lambda store: store.put_account("lab", AccountSpec(concurrent=3)),
        lambda store: add_account(store, "second", AccountSpec(concurrent=1)),
    ],
    ids=["a raised limit", "a new account"],
)
def test_promise_13_new_room_is_used_in_the_same_moment(
    store: Store, ripe: Ripe, make_room: Callable[[Store], object]
) -> None:
    add_account(store, spec=AccountSpec(concurrent=2))
    admitted(store, 6)
    assert len(ripe.send_all()) == 2
    make_room(store)
    assert len(ripe.send_all()) == 1


def test_promise_13_an_enabled_key_is_used_in_the_same_moment(store: Store, ripe: Ripe) -> None:
    key = add_account(store)
    store.change_key("lab", key, enable_key(enabled=False))
    job = admitted(store, 2)
    assert ripe.send_all() == []
    waiting = job_view(store, job, now_ms=T0_MS).waiting
    assert waiting is not None
    assert waiting.reason == "no account can be used: all its keys are disabled"
    store.change_key("lab", key, enable_key(enabled=True))
    assert len(ripe.send_all()) == 2


def test_promise_13_a_large_measurement_is_not_passed_for_ever_by_small_ones(store: Store, ripe: Ripe) -> None:
    add_account(store, spec=AccountSpec(concurrent=4))
    admitted(store, 30)
    ripe.send_all()
    admitted(store, owner="bob", cost=LARGE)
    began_ms, sent = ripe.at_ms, list[str]()
    while "bob" not in sent:
        ripe.at_ms += 2 * MINUTE_MS
        if ripe.out:
            ripe.end_first()
        sent += ripe.send_all()
        assert ripe.at_ms - began_ms <= PASSED_MS_MAX + ONEOFF_MS + 4 * MINUTE_MS
    assert sent.count("ann") >= 4, "until then smaller ones use what is free"
    [large] = ripe.out
    ripe.end_first()
    assert large.cost == LARGE
    assert "ann" in ripe.send_all(), "and after it they go on"


def test_each_send_that_passes_a_waiting_measurement_is_counted_once(store: Store, ripe: Ripe) -> None:
    add_account(store, spec=AccountSpec(concurrent=4))
    admitted(store, 8)
    ripe.send_all()
    job = admitted(store, owner="bob", cost=LARGE)
    for _ in range(3):
        ripe.at_ms += 1_000
        ripe.end_first()
        ripe.send_all()
    [item] = store.measurements(job.number, after=-1, limit=1)
    assert (item.state, item.passed_ms) == ("queued", T0_MS + 2_000), "the first slot was ann's turn"
    store.note_passed([(item.handle, item.attempt), (item.handle, 7)], now_ms=T0_MS + 9_000)
    assert store.measurement(item.handle) == item
