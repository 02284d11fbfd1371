"""Users take turns for places of alerts and of webhooks: nobody waits because somebody else has much (promise 13)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from paceline.core import try_turns
from paceline.core.alerts.silence import SilenceBody, monitor_silence
from paceline.core.try_turns import AGAIN_MS, PLACES, PLACES_PER_USER_MAX, DuePosition
from paceline.core.users import UserEdit
from paceline.ports import Store
from paceline.steps.access import remove_user
from paceline.steps.alerts.silences import add_silence
from tests.contract.support.alert_stage import add, alert, begin, channel, record_of
from tests.contract.support.job_stage import admitted, limit
from tests.contract.support.stage import MINUTE_MS, T0_MS, user
from tests.contract.support.try_stage import AlertTelling, Telling, WebhookTelling, names_of, users_of

OTHERS = ("carol", "dave", "eve")


@pytest.fixture(params=[AlertTelling, WebhookTelling], ids=["alerts", "webhooks"])
def open_telling(request: pytest.FixtureRequest) -> Callable[[Store], Telling]:
    opened: Callable[[Store], Telling] = request.param
    return opened


@pytest.fixture
def telling(store: Store, open_telling: Callable[[Store], Telling]) -> Telling:
    return open_telling(store)


@pytest.fixture
def many(*, by_request: bool) -> int:
    """Tries of a user with many: more than twice the places, at most hundreds."""
    return 110 if by_request else 400


def test_promise_13_a_single_try_is_begun_in_the_next_pass_although_one_user_has_hundreds(
    telling: Telling, many: int
) -> None:
    telling.due("ann", many)
    assert users_of(telling.begin()) == {"ann": PLACES_PER_USER_MAX}
    assert (telling.begin(), telling.waiting) == ([], True), "the others wait until a place is free"
    telling.due("bob", 1, at_ms=T0_MS + 1)
    assert users_of(telling.begin(now_ms=T0_MS + 1)) == {"bob": 1}


def test_promise_13_one_user_s_tries_get_the_places_that_nobody_else_uses_up_to_a_ceiling(
    telling: Telling, many: int
) -> None:
    telling.due("ann", many)
    telling.due("bob", 3)
    begun = users_of(telling.begin())
    assert begun["bob"] == 3
    assert PLACES - 3 - PLACES // 5 <= begun["ann"] < PLACES_PER_USER_MAX, "some stay free for somebody new"
    for _ in range(3):
        telling.end("bob", *["ann"] * 10)
        telling.begin()
        assert telling.held()["ann"] <= PLACES_PER_USER_MAX
    assert telling.held() == {"ann": PLACES_PER_USER_MAX}


def test_promise_13_users_with_many_tries_get_the_same_number_of_places(
    telling: Telling, store: Store, *, by_request: bool
) -> None:
    for name in OTHERS:
        store.add_user(user(name))
    for name in ("ann", "bob", *OTHERS):
        telling.due(name, 15 if by_request else 60)
    for _ in range(4):
        telling.begin()
        held = telling.held()
        assert len(held) == 5
        assert max(held.values()) - min(held.values()) <= 1
        assert held.total() > PLACES * 4 // 5
        telling.end("ann", "ann", "bob")


def test_promise_13_freed_place_goes_to_the_user_who_has_least_and_then_to_the_one_who_waited_longest(
    telling: Telling, store: Store
) -> None:
    store.add_user(user("carol"))
    telling.due("ann", 70)
    telling.begin()
    for name in ("bob", "carol"):
        telling.due(name, 30, at_ms=T0_MS + 1)
    telling.begin(now_ms=T0_MS + 1)
    before = telling.held()
    telling.end("ann")
    telling.begin(now_ms=T0_MS + 1)
    after = telling.held()
    assert (after["ann"], after.total()) == (before["ann"] - 1, before.total()), "the user with most gets it last"


def test_promise_13_retries_of_one_user_do_not_come_before_the_first_try_of_another(
    telling: Telling, many: int
) -> None:
    telling.due("ann", many)
    telling.begin()
    telling.end(*["ann"] * PLACES_PER_USER_MAX, code=None)
    later_ms = T0_MS + MINUTE_MS // 2
    assert len(telling.begin(now_ms=later_ms)) == PLACES_PER_USER_MAX, "retries are due, and what has never been tried"
    telling.due("bob", 2, at_ms=later_ms)
    assert users_of(telling.begin(now_ms=later_ms + AGAIN_MS))["bob"] == 2


def test_tries_of_one_user_begin_in_the_order_in_which_they_are_due(telling: Telling) -> None:
    names = [telling.due("ann", 1, at_ms=T0_MS + number)[0] for number in (3, 1, 2, 4)]
    telling.due("bob", 1)
    begun = telling.begin(now_ms=T0_MS + 4)
    assert names_of(begun, "ann") == [names[1], names[2], names[0], names[3]]


def test_try_that_comes_in_with_a_time_that_was_read_already_is_begun_a_second_later(
    telling: Telling, many: int
) -> None:
    now_ms = T0_MS + MINUTE_MS
    telling.due("ann", many, at_ms=now_ms - 100)
    telling.begin(now_ms=now_ms)
    telling.due("bob", 1, at_ms=now_ms - 200)
    assert users_of(telling.begin(now_ms=now_ms + AGAIN_MS)) == {"bob": 1}


def test_try_with_a_time_long_ago_is_begun_when_the_list_is_read_again(
    telling: Telling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(try_turns, "PAGE", 8)
    now_ms = T0_MS + MINUTE_MS
    telling.due("ann", 60, at_ms=T0_MS + 10)
    while telling.begin(now_ms=now_ms) or telling.more:
        pass
    telling.due("bob", 1, at_ms=T0_MS + 5)
    passes = 0
    while not telling.held()["bob"]:
        passes += 1
        assert passes <= 60 // 8 + 1
        telling.begin(now_ms=now_ms + passes * AGAIN_MS)


def test_each_try_is_made_by_one_of_two_processes(
    store: Store, other: Store, open_telling: Callable[[Store], Telling]
) -> None:
    one, two = open_telling(store), open_telling(other)
    names = one.due("ann", 45) + one.due("bob", 5)
    first = one.begin()  # reads everything, and remembers what has no place
    second = two.begin()
    assert sorted(name for _, name in first + second) == sorted(names)
    assert len(second) > 3
    one.end(*["ann"] * 20)
    assert (one.waiting, one.begin(), one.waiting) == (True, [], False), "what the other took is not due any more"


def test_process_whose_memory_is_outdated_looks_on_until_it_finds_a_try(
    store: Store, other: Store, open_telling: Callable[[Store], Telling], many: int
) -> None:
    one, two = open_telling(store), open_telling(other)
    one.due("ann", many)
    one.begin()  # remembers the others, which the second process takes
    while begun := two.begin():
        two.end(*[name for name, _ in begun])
    one.due("bob", 1, at_ms=T0_MS + 1)
    one.end(*["ann"] * PLACES_PER_USER_MAX)
    passes = [users_of(one.begin(now_ms=T0_MS + 1))]
    while one.more:
        passes.append(users_of(one.begin(now_ms=T0_MS + 1)))
    assert passes[0] == {"bob": 1}
    assert len(passes) <= many // 100 + 1
    assert not one.waiting


def test_user_with_more_tries_than_are_remembered_has_them_all_made_while_those_of_another_hang(
    telling: Telling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(try_turns, "PAGE", 8)
    monkeypatch.setattr(try_turns, "USER_IDS_MAX", 10)
    telling.due("bob", 60)
    while telling.begin() or telling.more:
        pass
    names = telling.due("ann", 45, at_ms=T0_MS + 1)
    made: list[str] = []
    while (begun := telling.begin(now_ms=T0_MS + 1)) or telling.more:
        made += names_of(begun, "ann")
        telling.end(*[user for user, _ in begun if user == "ann"])
    assert sorted(made) == sorted(names)
    assert telling.waiting, "bob's wait for places"


def test_try_that_comes_in_late_is_begun_at_once_if_nothing_waits_for_a_place(telling: Telling) -> None:
    telling.due("ann", 3, at_ms=T0_MS + 50)
    telling.begin(now_ms=T0_MS + 50)
    telling.due("bob", 1, at_ms=T0_MS + 10)
    assert users_of(telling.begin(now_ms=T0_MS + 50)) == {"bob": 1}


def test_memory_is_dropped_if_the_clock_is_set_back(telling: Telling) -> None:
    telling.due("ann", 60, at_ms=T0_MS + 10)
    telling.begin(now_ms=T0_MS + MINUTE_MS)
    telling.due("bob", 1, at_ms=T0_MS + 5)
    assert users_of(telling.begin(now_ms=T0_MS + 10))["bob"] == 1


# -- pages of the list


def test_due_alerts_are_read_page_by_page_also_those_of_one_time(store: Store) -> None:
    add(store, *[alert(str(number), at_ms=T0_MS + number // 4) for number in range(12)], alert("x", at_ms=T0_MS + 50))
    whole = store.due_alerts(now_ms=T0_MS + 9, limit=50)
    assert [one.at_ms - T0_MS for one in whole] == [0] * 4 + [1] * 4 + [2] * 4
    paged: list[DuePosition[str]] = []
    while page := store.due_alerts(now_ms=T0_MS + 9, limit=3, after=paged[-1] if paged else None):
        paged += page
    assert paged == whole
    assert store.due_alerts(now_ms=T0_MS, limit=3, after=whole[-1]) == []
    records = store.alert_records([whole[0].id, "al_none", whole[5].id])
    assert {one.alert.id for one in records} == {whole[0].id, whole[5].id}
    assert store.alert_records([]) == []


def test_due_webhooks_are_read_page_by_page_also_those_of_one_time(store: Store) -> None:
    limit(store, 10**9)
    jobs = [admitted(store, 1, webhook="https://hooks.example.org/") for _ in range(7)]
    for index, job in enumerate(jobs):
        store.cancel_job(job.number, now_ms=T0_MS)
        if index in {3, 6}:
            store.finish_jobs(now_ms=T0_MS + index, limit=10)
    whole = store.due_webhooks(now_ms=T0_MS + 9, limit=50)
    assert [one.at_ms - T0_MS for one in whole] == [3] * 4 + [6] * 3
    paged: list[DuePosition[int]] = []
    while page := store.due_webhooks(now_ms=T0_MS + 9, limit=2, after=paged[-1] if paged else None):
        paged += page
    assert paged == whole
    assert {one.id for one in whole} == {job.number for job in jobs}
    assert store.due_webhooks(now_ms=T0_MS, limit=3, after=whole[-1]) == []


# -- alerts alone


def test_alerts_that_need_no_try_are_decided_although_all_places_are_taken(store: Store) -> None:
    telling = AlertTelling(store)
    store.edit_user("bob", UserEdit(role="admin"))
    for name in OTHERS:
        store.add_user(user(name))
    for name in ("ann", "bob"):
        telling.due(name, 60)
    channel(store, user="carol")
    add_silence(store, "carol", monitor_silence(SilenceBody("2h", "moving"), "home", now_ms=T0_MS), chance_id="0" * 12)
    channel(store, user="eve")
    while telling.begin() or telling.more:
        pass
    while telling.held().total() < PLACES:  # whatever was left free
        telling.out.append(telling.out[0])
    silenced, without, gone = [alert(name, user=name, at_ms=T0_MS + 1) for name in OTHERS]
    admins = alert("night", event="batch.day_ended", user="", subject="shop/day", at_ms=T0_MS + 1)
    add(store, silenced, without, gone, admins)
    remove_user(store, "eve", now_ms=T0_MS)
    assert telling.begin(now_ms=T0_MS + 1) == []
    states = [record_of(store, one).state for one in (silenced, without, gone, admins)]
    assert states == ["silenced", "no_channel", "no_channel", "passed_on"]
    assert telling.more, "the admins' own alerts are looked for at once"


def test_places_of_an_alert_with_many_channels_are_counted_by_channel(store: Store) -> None:
    for number in range(7):
        channel(store, f"c{number}")
    channel(store, user="bob")
    telling = AlertTelling(store)
    telling._told |= {"ann", "bob"}
    telling.due("ann", 10)
    telling.due("bob", 1)
    begun = telling.begin()
    assert users_of(begun) == {"ann": PLACES_PER_USER_MAX - 1, "bob": 1}
    tries = {(one.record.alert.id, one.channel) for one in telling.out}
    telling.end(*["ann"] * (PLACES_PER_USER_MAX - 1))
    telling.begin()
    again = {(one.record.alert.id, one.channel) for one in telling.out if one.user == "ann"}
    assert (len(tries | again), tries & again) == (71, set()), "each channel of each alert, once"
    telling.end(*["ann"] * len(again), "bob")
    assert begin(store, now_ms=T0_MS + 10**9) == [], "all were told"
