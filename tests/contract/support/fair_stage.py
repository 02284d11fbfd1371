"""Two users who share places and an account: what they have is more than can be done at once."""

from __future__ import annotations

from paceline.core.jobs.values import Sent, StoredMeasurement
from paceline.core.monitors.due import CatchUp, advance_all
from paceline.core.monitors.places import Places
from paceline.core.monitors.schedule import Cadence
from paceline.core.monitors.values import CHECKS
from paceline.ports import Store
from tests.contract.support.stage import (
    HOUR_MS,
    LEASE_MS,
    MINUTE_MS,
    T0_MS,
    arm_all,
    armed_all,
    put,
    settle,
    spec,
    user,
)

PLACES = Places(4, 4)
MINUTES = 40


def live(store: Store, *, minutes: int = MINUTES) -> int:
    """Three of ann's monitors are due each minute and one of bob's once, at two places. Returns the time at the end."""
    store.add_user(user("bob"))
    armed_all(store, ["m0", "m1", "m2"])
    put(store, "m0", spec(every="1h"), owner="bob")
    arm_all(store, T0_MS + 2 * MINUTE_MS, cadence=Cadence(every_ms=HOUR_MS))
    for minute in range(minutes):
        now_ms = T0_MS + minute * MINUTE_MS
        dues = store.due(now_ms=now_ms, limit=99)
        store.commit(advance_all(dues, now_ms=now_ms, catch_up=CatchUp()), now_ms=now_ms)
        claimed = store.claim(CHECKS, now_ms=now_ms, runs_max=2, lease_ms=LEASE_MS, places=PLACES)
        assert all(settle(store, claimed, now_ms=now_ms))
    return T0_MS + minutes * MINUTE_MS


def send_all(store: Store, key: str, *, starved: str = "") -> int:
    """Sends one measurement a minute until nothing is left, that user's last. Returns the time."""
    now_ms = T0_MS
    while items := store.next_to_send(now_ms=now_ms, users_max=9, each_max=1):
        now_ms += MINUTE_MS
        item = min(items, key=lambda one: one.owner == starved)
        begun = store.begin_send(item, account="lab", key=key, sending_max=1, now_ms=now_ms)
        assert isinstance(begun, StoredMeasurement)
        assert store.answer(begun.handle, begun.attempt, Sent((begun.handle,)), now_ms=now_ms)
    return now_ms
