"""Sends: users take turns, the intent comes first, every line is closed once; accounts and keys as they are now."""

from __future__ import annotations

from collections import Counter

import pytest

from paceline.core.jobs.accounts import enable_key
from paceline.core.jobs.cost import Cost
from paceline.core.jobs.meters import Reading
from paceline.core.jobs.values import (
    AccountClosed,
    AccountSpec,
    AddKey,
    EndResult,
    KeyRefused,
    MeasurementEnd,
    MeasurementProgress,
    MeterFull,
    NotSent,
    Paused,
    Rejected,
    Sent,
    StoredMeasurement,
    TargetFull,
    Unsure,
)
from paceline.core.users import UserEdit
from paceline.ports import Store
from tests.contract.conftest import Opener
from tests.contract.monitors.test_races import race
from tests.contract.support.job_stage import (
    SENDING_MAX,
    add_account,
    admitted,
    again,
    begin,
    begin_short,
    done,
    heads,
    job_of,
    money,
    quotas,
    send,
)
from tests.contract.support.stage import DAY_MS, HOUR_MS, MINUTE_MS, T0_MS


def test_users_take_turns_however_much_one_user_has_queued(store: Store) -> None:
    key = add_account(store)
    admitted(store, 50)
    admitted(store, 2, owner="bob")
    order = [send(store, key).owner for _ in range(6)]
    assert order == ["ann", "bob", "ann", "bob", "ann", "ann"]


def test_user_with_many_small_jobs_does_not_pass_waiting_users(store: Store) -> None:
    key = add_account(store)
    admitted(store, 50)
    order = []
    for _ in range(10):
        if "bob" not in [one.owner for one in heads(store)]:
            admitted(store, 1, owner="bob")
        order.append(send(store, key).owner)
    assert Counter(order) == {"ann": 5, "bob": 5}


def test_reading_the_next_send_time_changes_no_queue_position(store: Store) -> None:
    key = add_account(store)
    admitted(store, 2)
    admitted(store, 1, owner="bob")
    assert send(store, key).owner == "ann"
    waiting = [(one.handle, one.attempt) for one in heads(store)]
    assert store.park(waiting, next_ms=T0_MS + MINUTE_MS, reason="full") == [True, True]
    assert store.next_send_ms() == T0_MS + MINUTE_MS
    assert [one.owner for one in heads(store, now_ms=T0_MS + MINUTE_MS)] == ["bob", "ann"]


def test_measurements_of_a_user_are_sent_in_order_of_submission(store: Store) -> None:
    key = add_account(store)
    first, second = admitted(store, 2), admitted(store, 1)
    sent = [send(store, key) for _ in range(3)]
    assert [(one.job, one.index) for one in sent] == [(first.id, 0), (first.id, 1), (second.id, 0)]
    assert heads(store) == []


def test_a_disabled_users_measurements_wait(store: Store) -> None:
    admitted(store, 1)
    store.edit_user("ann", UserEdit(disabled=True))
    assert heads(store) == []
    assert store.next_send_ms() is None
    store.edit_user("ann", UserEdit(disabled=False))
    assert len(heads(store)) == 1
    assert store.next_send_ms() == 0


def test_promise_9_the_intent_is_written_before_anything_is_sent(store: Store, other: Store) -> None:
    key = add_account(store)
    job = admitted(store)
    begun = begin(store, key, now_ms=T0_MS + 5)
    seen = again(other, begun)
    assert seen == begun
    assert (seen.state, seen.account, seen.key, seen.attempt, seen.intent_ms) == ("sending", "lab", key, 1, T0_MS + 5)
    assert quotas(store) == {"concurrent": (0, 1), "results": (0, 10), "credits": (0, 60)}
    assert job_of(store, job).state == "running"


def test_promise_5_a_measurement_is_begun_once(store: Store, other: Store) -> None:
    key = add_account(store)
    admitted(store)
    seen, seen_too = heads(store)[0], heads(other)[0]
    assert isinstance(
        store.begin_send(seen, account="lab", key=key, sending_max=SENDING_MAX, now_ms=T0_MS), StoredMeasurement
    )
    assert other.begin_send(seen_too, account="lab", key=key, sending_max=SENDING_MAX, now_ms=T0_MS) is None
    assert quotas(store)["concurrent"] == (0, 1)


@pytest.mark.parametrize(
    ("spec", "meter"),
    [
        (AccountSpec(concurrent=1), "concurrent"),
        (AccountSpec(daily_results=19), "results"),
        (AccountSpec(daily_credits=119), "credits"),
    ],
)
def test_promise_8_all_limits_of_a_send_are_taken_together_or_none(store: Store, spec: AccountSpec, meter: str) -> None:
    key = add_account(store, spec=spec)
    admitted(store, 2)
    send(store, key)
    before = quotas(store)
    short = begin_short(store, key)
    assert short.meter == f"account/lab/{meter}"
    assert quotas(store) == before
    assert heads(store)[0].state == "queued"


def test_an_account_or_key_that_cannot_be_used_any_more_sends_nothing(store: Store) -> None:
    key = add_account(store)
    admitted(store)
    head = heads(store)[0]
    store.change_key("lab", key, enable_key(enabled=False))
    assert store.begin_send(head, account="lab", key=key, sending_max=SENDING_MAX, now_ms=T0_MS) is None
    store.change_key("lab", key, enable_key(enabled=True))
    store.put_account("lab", AccountSpec(enabled=False))
    assert store.begin_send(head, account="lab", key=key, sending_max=SENDING_MAX, now_ms=T0_MS) is None
    store.put_account("lab", AccountSpec())
    assert store.begin_send(head, account="lab", key="k999", sending_max=SENDING_MAX, now_ms=T0_MS) is None
    assert store.begin_send(head, account="lab", key=key, sending_max=SENDING_MAX, now_ms=T0_MS) is not None


def test_sent_measurement_is_settled_on_delivered_results_and_the_rest_refunded(store: Store) -> None:
    key = add_account(store)
    job = admitted(store)
    sent = send(store, key)
    assert (sent.state, sent.answered_ms, [one.atlas_id for one in sent.atlas]) == (
        "ongoing",
        T0_MS,
        [sent.handle * 100],
    )
    assert store.note_progress([MeasurementProgress(sent.handle, 1, ((2, 7),), (9,))]) == [True]
    assert again(store, sent).atlas[0][1:] == (2, 7, 9)
    assert store.note_progress([MeasurementProgress(sent.handle, 1, ((4, 5),))]) == [True]
    assert again(store, sent).atlas[0][1:] == (4, 7, 9)
    assert again(store, sent).running
    ending = MeasurementEnd(sent.handle, 1, "done", "", 42, 7, frees_slot=True)
    assert store.end([ending], now_ms=T0_MS + 1) == [EndResult(won=True)]
    assert store.end([ending], now_ms=T0_MS + 2) == [EndResult(won=False)]
    assert money(store) == (42, 0)
    assert quotas(store) == {"concurrent": (0, 0), "results": (7, 0), "credits": (42, 0)}
    found = job_of(store, job)
    assert (found.reserved, found.settled, found.refunded) == (60, 42, 18)
    assert again(store, sent).settled == 42


def test_usage_beyond_the_hold_is_reported_and_not_charged(store: Store) -> None:
    key = add_account(store)
    admitted(store)
    assert done(store, send(store, key), spent=70) == EndResult(won=True, overrun=10)
    assert money(store) == (60, 0)


def test_slot_of_an_account_is_held_until_ripe_no_longer_counts_it(store: Store) -> None:
    key = add_account(store)
    admitted(store)
    sent = send(store, key)
    store.note_progress([MeasurementProgress(sent.handle, 1, ((2, 7),))])
    store.end([MeasurementEnd(sent.handle, 1, "done", "", 42, 7, frees_slot=False)], now_ms=T0_MS)
    assert money(store) == (42, 0)
    # While it runs, RIPE counts everything that was requested.
    assert quotas(store) == {"concurrent": (0, 1), "results": (0, 10), "credits": (0, 60)}
    assert [one.handle for one in store.holding("done", after=0, limit=10)] == [sent.handle]
    assert store.free_slots([(sent.handle, 1), (sent.handle, 1)], now_ms=T0_MS) == [True, False]
    assert quotas(store) == {"concurrent": (0, 0), "results": (7, 0), "credits": (42, 0)}
    assert store.holding("done", after=0, limit=10) == []


def test_usage_of_an_account_expires_after_a_day(store: Store) -> None:
    key = add_account(store, spec=AccountSpec(daily_credits=60))
    admitted(store, 2)
    done(store, send(store, key))
    assert begin_short(store, key, now_ms=T0_MS + DAY_MS - 1).meter == "account/lab/credits"
    found = store.accounts(now_ms=T0_MS, releases_until_ms=T0_MS + DAY_MS + MINUTE_MS)[0]
    free_ms = found.credits.releases[0].at_ms
    assert T0_MS + DAY_MS <= free_ms <= T0_MS + DAY_MS + MINUTE_MS
    assert quotas(store, now_ms=free_ms)["credits"] == (0, 0)
    done(store, send(store, key, now_ms=free_ms), now_ms=free_ms)
    assert quotas(store, now_ms=free_ms)["credits"] == (60, 0)


def test_promise_9_a_lost_reply_keeps_every_line_held_until_it_is_looked_up(store: Store) -> None:
    key = add_account(store)
    admitted(store)
    begun = begin(store, key)
    fence = (begun.handle, begun.attempt)
    assert store.answer(*fence, Unsure("no answer", T0_MS + MINUTE_MS), now_ms=T0_MS)
    assert (again(store, begun).state, again(store, begun).lookups) == ("unknown", 0)
    assert store.to_look_up(now_ms=T0_MS + MINUTE_MS - 1, limit=10) == []
    assert [one.handle for one in store.to_look_up(now_ms=T0_MS + MINUTE_MS, limit=10)] == [begun.handle]
    assert store.next_send_ms() == T0_MS + MINUTE_MS
    assert heads(store, now_ms=T0_MS + HOUR_MS) == []
    assert store.answer(*fence, Unsure("not seen yet", T0_MS + 2 * MINUTE_MS, lookups=1), now_ms=T0_MS + MINUTE_MS)
    assert again(store, begun).lookups == 1
    assert store.answer(*fence, Unsure("no answer", T0_MS + 2 * MINUTE_MS), now_ms=T0_MS + MINUTE_MS)
    assert again(store, begun).lookups == 1
    assert quotas(store)["concurrent"] == (0, 1)
    assert store.answer(*fence, Sent((77,)), now_ms=T0_MS + 2 * MINUTE_MS)
    assert (again(store, begun).state, [one.atlas_id for one in again(store, begun).atlas]) == ("ongoing", [77])


def test_measurement_not_found_by_lookup_is_sent_again_as_the_next_attempt(store: Store) -> None:
    key = add_account(store)
    admitted(store)
    begun = begin(store, key)
    store.answer(begun.handle, 1, Unsure("no answer", T0_MS), now_ms=T0_MS)
    assert heads(store) == []
    assert store.answer(begun.handle, 1, NotSent("it is not there"), now_ms=T0_MS)
    assert quotas(store) == {"concurrent": (0, 0), "results": (0, 0), "credits": (0, 0)}
    assert begin(store, key).attempt == 2
    assert not store.answer(begun.handle, 1, Sent((5,)), now_ms=T0_MS)
    assert money(store) == (0, 60)


def test_send_of_a_dead_sender_becomes_unknown(store: Store, other: Store) -> None:
    key = add_account(store)
    admitted(store)
    begun = begin(store, key)
    assert other.lose_sends(intent_before_ms=T0_MS, look_ms=T0_MS + 9) == 0
    assert other.lose_sends(intent_before_ms=T0_MS + 1, look_ms=T0_MS + 9) == 1
    assert (again(store, begun).state, again(store, begun).next_ms) == ("unknown", T0_MS + 9)
    assert store.answer(begun.handle, 1, Sent((5,)), now_ms=T0_MS)  # its sender was alive after all


def test_parked_measurement_lets_others_pass_and_returns_to_its_place(store: Store) -> None:
    key = add_account(store)
    admitted(store, 2)
    first = heads(store)[0]
    assert store.park([(first.handle, 0), (first.handle, 0)], next_ms=T0_MS + 10, reason="full") == [True, False]
    assert (again(store, first).state, again(store, first).reason) == ("parked", "full")
    assert heads(store)[0].index == 1
    assert heads(store, now_ms=T0_MS + 10)[0].index == 0
    begun = begin(store, key, now_ms=T0_MS + 10)
    store.answer(begun.handle, 1, NotSent("the target is full", T0_MS + 50), now_ms=T0_MS + 11)
    assert again(store, begun).next_ms == T0_MS + 50
    assert heads(store, now_ms=T0_MS + 11)[0].index == 1


def test_a_refusal_for_good_fails_that_measurement_alone(store: Store) -> None:
    key = add_account(store)
    job = admitted(store, 2)
    begun = begin(store, key)
    assert store.answer(begun.handle, 1, Rejected("no such ASN"), now_ms=T0_MS)
    assert (again(store, begun).state, again(store, begun).reason) == ("failed", "no such ASN")
    assert money(store) == (0, 60)
    assert quotas(store)["credits"] == (0, 0)
    done(store, send(store, key))
    finished = store.finish_jobs(now_ms=T0_MS, limit=10)
    assert [(one.id, one.finished, one.success) for one in finished] == [(job.id, True, False)]


def test_refusal_of_ripe_lowers_the_room_of_the_account(store: Store) -> None:
    key = add_account(store)
    admitted(store)
    begun = begin(store, key)
    assert store.answer(begun.handle, 1, NotSent("too many"), effect=MeterFull("concurrent", 1, 25), now_ms=T0_MS)
    found = store.account("lab", now_ms=T0_MS)
    assert found is not None
    assert (found.concurrent.limit, found.concurrent.foreign) == (25, 25)
    assert begin_short(store, key).meter == "account/lab/concurrent"
    assert store.sync_account("lab", [("concurrent", Reading(T0_MS + 1, 0, 0))], now_ms=T0_MS + 1)
    assert begin(store, key).attempt == 2


def test_refused_key_is_disabled_until_a_user_enables_it(store: Store) -> None:
    key = add_account(store)
    admitted(store)
    begun = begin(store, key)
    store.answer(begun.handle, 1, NotSent("401"), effect=KeyRefused("expired"), now_ms=T0_MS)
    assert store.keys("lab")[0].quarantine == "expired"
    found = store.account("lab", now_ms=T0_MS)
    assert found is not None
    assert (found.keys[0].state, found.keys[0].reason) == ("quarantined", "expired")
    enabled = store.change_key("lab", key, enable_key(enabled=True))
    assert enabled is not None
    assert enabled.quarantine == ""


def test_account_target_and_whole_installation_can_be_paused(store: Store) -> None:
    key = add_account(store)
    admitted(store, 4)
    begun = begin(store, key)
    store.answer(begun.handle, 1, NotSent("429"), effect=Paused(T0_MS + 5, 1, "429"), now_ms=T0_MS)
    begun = begin(store, key)
    full = TargetFull("192.0.2.1", T0_MS + 6, 1, "25 already")
    store.answer(begun.handle, begun.attempt, NotSent("full"), effect=full, now_ms=T0_MS)
    assert store.gates(["192.0.2.1", "other"]) == (Paused(T0_MS + 5, 1, "429"), [full])
    send(store, key, now_ms=T0_MS + 7)  # so it is over
    assert store.gates(["192.0.2.1"]) == (Paused(T0_MS + 5, 0, "429"), [])
    begun = begin(store, key, now_ms=T0_MS + 7)
    closed = AccountClosed(T0_MS + 20, "slow down")
    store.answer(begun.handle, begun.attempt, NotSent("slow down"), effect=closed, now_ms=T0_MS + 7)
    head = heads(store, now_ms=T0_MS + 8)[0]
    assert store.begin_send(head, account="lab", key=key, sending_max=SENDING_MAX, now_ms=T0_MS + 8) is None
    assert begin(store, key, now_ms=T0_MS + 20).state == "sending"


def test_a_measurement_of_several_definitions_takes_as_many_slots_and_ids(store: Store) -> None:
    key = add_account(store)
    admitted(store, cost=Cost(180, 30, 3, 180, 30))
    sent = send(store, key)
    assert len(sent.atlas) == 3
    assert quotas(store)["concurrent"] == (0, 3)


def test_accounts_are_put_and_changed_while_they_are_used(store: Store) -> None:
    assert store.put_account("lab", AccountSpec()) == "created"
    assert store.put_account("lab", AccountSpec()) == "unchanged"
    key = add_account(store, spec=AccountSpec(concurrent=2))
    admitted(store, 3)
    send(store, key)
    assert store.put_account("lab", AccountSpec(concurrent=1)) == "replaced"
    assert begin_short(store, key).limit == 1
    found = store.account("lab", now_ms=T0_MS)
    assert found is not None
    assert (found.concurrent.limit, found.concurrent.held, found.sends) == (1, 1, 1)
    assert store.account("other", now_ms=T0_MS) is None


def test_keys_are_kept_sealed_and_an_account_has_each_secret_once(store: Store) -> None:
    assert store.add_key(AddKey("lab", "s", "1234"), now_ms=T0_MS).disposition == "no_account"
    key = add_account(store)
    again_added = store.add_key(AddKey("lab", "sealed lab", "1234"), now_ms=T0_MS)
    assert again_added.disposition == "already"
    assert again_added.key == store.keys("lab")[0]
    assert store.sealed_key("lab", key) == "sealed lab"
    assert store.sealed_key("other", key) is None
    assert store.sealed_key("lab", "nonsense") is None
    assert not store.remove_key("other", key)
    assert store.remove_key("lab", key)
    assert (store.keys("lab"), store.sealed_key("lab", key)) == ([], None)


def test_measurements_listed_by_ripe_are_ours_if_they_hold_a_slot_of_the_account(store: Store) -> None:
    key = add_account(store)
    admitted(store, 3)
    running, ended = send(store, key), send(store, key)
    begin(store, key)
    listed = [one.atlas_id for item in (running, ended) for one in item.atlas]
    assert store.slots_seen("lab", [*listed, 987_654_321]) == 2
    assert store.slots_seen("another", listed) == 0
    done(store, ended)
    assert store.slots_seen("lab", listed) == 1
    assert store.slots_seen("lab", []) == 0


def test_promise_8_concurrent_sends_never_take_more_slots_than_the_account_has(
    store: Store, store_factory: Opener
) -> None:
    key = add_account(store, spec=AccountSpec(concurrent=7))
    admitted(store, 40)

    def work(handle: Store) -> int:
        won = 0
        for _ in range(10):
            for item in heads(handle, each_max=5):
                begun = handle.begin_send(item, account="lab", key=key, sending_max=SENDING_MAX, now_ms=T0_MS)
                won += isinstance(begun, StoredMeasurement)
        return won

    assert sum(race(work, store_factory)) == 7
    assert quotas(store) == {"concurrent": (0, 7), "results": (0, 70), "credits": (0, 420)}


def test_clock_set_back_makes_no_measurement_wait_longer(store: Store) -> None:
    key = add_account(store)
    admitted(store, 3)
    later_ms = T0_MS + 30 * DAY_MS
    begun = begin(store, key, now_ms=later_ms)
    paused = Paused(later_ms + 5, 1, "429")
    store.answer(begun.handle, 1, NotSent("429", later_ms + 5), effect=paused, now_ms=later_ms)
    begun = begin(store, key, now_ms=later_ms)
    closed = AccountClosed(later_ms + 5, "slow down")
    store.answer(begun.handle, 1, Unsure("lost", later_ms + 5), effect=closed, now_ms=later_ms)
    assert store.pull_back_sends(lambda: T0_MS, wait_ms_max=HOUR_MS) == 4
    assert store.pull_back_sends(lambda: T0_MS, wait_ms_max=HOUR_MS) == 0
    assert store.gates([])[0] == Paused(T0_MS + HOUR_MS, 1, "429")
    assert again(store, begun).next_ms == T0_MS + HOUR_MS
    found = store.account("lab", now_ms=T0_MS)
    assert found is not None
    assert found.closed_until_ms == T0_MS + HOUR_MS


def test_site_id_is_the_first_one_proposed(store: Store, other: Store) -> None:
    assert (store.site("abcd1234"), other.site("zzzz9999")) == ("abcd1234", "abcd1234")
