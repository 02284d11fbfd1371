"""Checkers that read the outgoing queue themselves: a lost, doubled or early message delays no run for long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from paceline.adapters.aws.client.connect import Clients
from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import padded
from paceline.adapters.aws.client.items import put as put_item
from paceline.adapters.aws.client.queues import Queues
from paceline.adapters.aws.client.tables import ITEMS, OUTGOING
from paceline.adapters.aws.monitors import claims as monitors_claims
from paceline.adapters.aws.monitors import reoffer as monitors_offers
from paceline.adapters.aws.monitors.keys import OWNERS
from paceline.adapters.aws.monitors.reoffer import AGES_MS, LAG_MS
from paceline.adapters.aws.store import AwsStore
from paceline.core.ids import parse_run_id
from paceline.core.monitors.definition import Monitor
from paceline.core.monitors.outcome import Retry
from paceline.core.monitors.values import Claimed, Take
from paceline.core.users import UserEdit
from tests.aws.support.monitor_stage import counted, offers
from tests.contract.support import stage
from tests.contract.support.stage import (
    ALL_OUTGOING,
    DAY_MS,
    HOUR_MS,
    LEASE_MS,
    MINUTE_MS,
    T0_MS,
    arm_all,
    armed,
    claim,
    make_runs,
    names,
    settle,
)

pytestmark = pytest.mark.aws
CHECK = stage.OUTGOING


@pytest.fixture
def other(clients: Clients, prefix: str, store: AwsStore) -> Iterator[AwsStore]:
    del store
    with closing(AwsStore(prefix, clients=clients)) as opened:
        yield opened


def fired(store: AwsStore, name: str = "a", runs: int = 1, *, owner: str = "ann", after_ms: int = 0) -> Monitor:
    monitor = armed(store, name, check=CHECK, owner=owner)
    make_runs(store, monitor, runs, after_ms=after_ms)
    return monitor


def take(store: AwsStore, offer: dict[str, Any], *, now_ms: int = T0_MS) -> Claimed | None:
    """What the checker does with a message."""
    name = parse_run_id(offer["run"])
    assert name is not None
    return store.take([Take(*name, lease_ms=LEASE_MS, attempt=offer["attempt"])], now_ms=now_ms)[0]


def facts(found: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(offer["counter"], offer["attempt"]) for offer in found]


def offered_in_passes(store: AwsStore, *, from_ms: int) -> list[int]:
    """Returns the minutes at which something was offered; there is a pass before, at and after each age."""
    ages = [age_ms // MINUTE_MS for age_ms in AGES_MS]
    passes = [0, *(minute for age in ages for minute in (age - 5, age, age + 5))]
    return [m for m in passes for _ in range(store.offer_again(now_ms=from_ms + m * MINUTE_MS))]


def test_a_message_takes_its_run_once_and_the_next_run_has_its_own(store: AwsStore, queues: Queues) -> None:
    fired(store, runs=2)
    (offer,) = offers(queues)
    taken = take(store, offer)
    assert taken is not None
    assert take(store, offer) is None
    assert offers(queues) == []
    assert settle(store, [taken]) == [True]
    assert take(store, offer) is None
    (following,) = offers(queues)
    assert facts([offer, following]) == [(0, 1), (1, 1)]
    assert take(store, following) is not None


def test_retried_run_gets_a_new_message_and_its_old_message_is_stale(store: AwsStore, queues: Queues) -> None:
    fired(store)
    (offer,) = offers(queues)
    taken = take(store, offer)
    assert taken is not None
    assert settle(store, [taken], Retry("again", T0_MS)) == [True]
    (again,) = offers(queues)
    assert again["attempt"] == 2
    assert take(store, offer) is None
    assert take(store, again) is not None


def test_a_message_that_came_early_is_sent_once_more_in_its_time(store: AwsStore, queues: Queues) -> None:
    fired(store, after_ms=T0_MS + MINUTE_MS)
    assert offers(queues) == []  # it waits for a minute
    assert queues.depth(OUTGOING) == 1
    monitor = store.monitor("ann", "a")
    assert monitor is not None
    early = {"run": f"ann/a#{monitor.generation}@0", "attempt": 1}
    assert take(store, early, now_ms=T0_MS + MINUTE_MS - 1) is None
    assert queues.depth(OUTGOING) == 2
    assert take(store, {**early, "attempt": 2}) is None  # no message of ours says so
    assert queues.depth(OUTGOING) == 2
    assert take(store, early, now_ms=T0_MS + MINUTE_MS) is not None


def test_promise_10_run_of_a_dead_checker_is_offered_again_after_its_lease(store: AwsStore, queues: Queues) -> None:
    fired(store)
    (offer,) = offers(queues)
    assert store.offer_again(now_ms=T0_MS) == 0
    assert take(store, offer) is not None
    assert store.offer_again(now_ms=T0_MS + LEASE_MS) == 0  # the lease is just over, and the index may lag
    assert store.offer_again(now_ms=T0_MS + 2 * LEASE_MS) == 1
    assert store.offer_again(now_ms=T0_MS + 3 * LEASE_MS) == 0
    (again,) = offers(queues)
    assert again["attempt"] == 2
    retaken = take(store, again, now_ms=T0_MS + 3 * LEASE_MS)
    assert retaken is not None
    assert retaken.lost


def test_promise_10_lost_offer_is_repeated_at_fixed_ages_of_the_run(store: AwsStore, queues: Queues) -> None:
    fired(store)
    offers(queues)  # lost
    ages = [age_ms // MINUTE_MS for age_ms in AGES_MS]
    assert offered_in_passes(store, from_ms=T0_MS) == ages
    assert facts(offers(queues)) == [(0, 1)] * len(ages)
    assert names(claim(store, ALL_OUTGOING)) == [("a", 0)]


def test_promise_10_waiting_run_is_offered_once_after_a_long_pause_of_all_passes(
    store: AwsStore, queues: Queues
) -> None:
    fired(store)
    store.offer_again(now_ms=T0_MS)
    offers(queues)  # lost
    assert store.offer_again(now_ms=T0_MS + 20 * HOUR_MS) == 1
    assert store.offer_again(now_ms=T0_MS + 20 * HOUR_MS + 5 * MINUTE_MS) == 0


def test_a_clock_that_was_set_back_does_not_stop_the_passes(store: AwsStore, queues: Queues) -> None:
    store.offer_again(now_ms=T0_MS + DAY_MS)
    fired(store)
    offers(queues)  # lost
    assert offered_in_passes(store, from_ms=T0_MS)[0] == AGES_MS[0] // MINUTE_MS


def test_passes_of_all_processes_share_their_work(store: AwsStore, other: AwsStore, clients: Clients) -> None:
    fired(store)
    store.offer_again(now_ms=T0_MS)
    with counted(clients) as asked:
        assert other.offer_again(now_ms=T0_MS + LAG_MS) == 0
    assert asked == {"GetItem": 1}


def test_runs_are_not_offered_without_a_queue_reader(store: AwsStore, queues: Queues) -> None:
    store.alarms.offers = False
    fired(store)
    assert store.offer_again(now_ms=T0_MS + HOUR_MS) == 0
    assert queues.depth(OUTGOING) == 0


def test_promise_10_run_dropped_while_its_owner_was_disabled_is_offered_when_enabled(
    store: AwsStore, queues: Queues
) -> None:
    fired(store, "asked", owner="bob")
    fired(store, "held")
    fired(store, "out")
    by_name = {offer["run"].split("#")[0]: offer for offer in offers(queues)}
    assert take(store, by_name["ann/out"]) is not None
    store.edit_user("ann", UserEdit(disabled=True))
    arm_all(store, T0_MS, outgoing=True)
    assert take(store, by_name["ann/held"]) is None  # and the checker drops the message
    assert offers(queues) == []
    store.edit_user("ann", UserEdit(disabled=False))
    (again,) = offers(queues)
    assert again["run"] == by_name["ann/held"]["run"]
    assert take(store, again) is not None


def test_promise_10_next_run_is_offered_when_the_first_expires(store: AwsStore, queues: Queues) -> None:
    fired(store, runs=3)
    offers(queues)  # the checkers were away for a day
    before_ms, now_ms = T0_MS + MINUTE_MS, T0_MS + DAY_MS
    assert store.purge(settled_before_ms=0, due_before_ms=before_ms, now_ms=now_ms, limit=9).runs_expired == 1
    assert facts(offers(queues)) == [(1, 1)]


def test_claims_for_all_owners_visit_every_owner_in_turn(
    store: AwsStore, database: DynamoDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitors_claims, "PROBED_MAX", 8)
    monkeypatch.setattr(monitors_offers, "PAGE_MAX", 8)
    fired(store)
    # Owners of long ago who have nothing to claim, more than one claim asks and more than one page holds.
    rows = [{"pk": OWNERS, "sk": padded(10_000 + n), "owner": f"o{n}", "queues": 1} for n in range(20)]
    database.write_many(put_item(ITEMS, row) for row in rows)
    assert len(list(monitors_offers.owners(database))) == 21
    assert names(claim(store, ALL_OUTGOING)) == [("a", 0)]
    assert [claim(store, ALL_OUTGOING) for _ in range(2)] == [[], []]
    fired(store, "b", owner="bob")
    assert names(claim(store, ALL_OUTGOING)) == [("b", 0)]  # the last of them, and then the first ones again
