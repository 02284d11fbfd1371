"""What becomes of an alert: its channels, its tries, its silence, and its end."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from paceline.core.alerts.alert import REASON_CHARS_MAX, Alert, Event, alert_id
from paceline.core.alerts.channel import Channel
from paceline.core.alerts.record import (
    AlertRecord,
    Delivery,
    DeliveryState,
    IndexPosition,
    decode_record,
    encode_record,
    following,
    new_record,
    place_of,
)
from paceline.core.alerts.silence import NamedSilence, Silence
from paceline.core.alerts.telling import (
    COMES_BACK,
    NO_CHANNEL,
    SILENCE_OVER,
    begin_try,
    channels_for,
    close,
    end_try,
    fan_out,
    is_due,
    pulled_back,
    silence,
    wake,
    with_deliveries,
)
from paceline.core.jobs.webhook import TRIES_MAX

NOW_MS = 1_800_000_000_000
EVENTS: tuple[Event, ...] = get_args(Event)
ALERT = Alert(alert_id("monitor.failing", "r1"), "monitor.failing", NOW_MS, "ada", "web")
RECORD = new_record(ALERT)
BY = NamedSilence("s1", Silence("web", None, NOW_MS, NOW_MS + 60_000, "maintenance"))


def channel(*, default: bool = False) -> Channel:
    return Channel("webhook", "sealed", default, NOW_MS, NOW_MS)


def test_alert_goes_to_the_channels_it_names_that_are_still_there() -> None:
    channels = {"a": channel(), "b": channel(default=True), "c": channel()}
    assert channels_for(replace(ALERT, channels=("c", "gone", "a")), channels) == ("c", "a")


@pytest.mark.parametrize("named", [(), ("gone",)])
def test_alert_without_a_channel_of_its_own_goes_to_the_default_channels(named: tuple[str, ...]) -> None:
    channels = {"a": channel(), "b": channel(default=True), "c": channel(default=True)}
    assert channels_for(replace(ALERT, channels=named), channels) == ("b", "c")


def test_new_alert_is_due_at_once_and_fans_out_to_its_channels() -> None:
    assert place_of(RECORD) == IndexPosition("open", NOW_MS)
    sent = fan_out(RECORD, {"a": channel(default=True), "b": channel(default=True)}, now_ms=NOW_MS + 5)
    assert (sent.state, sent.next_ms) == ("sending", NOW_MS + 5)
    assert [(one.channel, one.state, one.next_ms) for one in sent.deliveries] == [
        ("a", "waiting", NOW_MS + 5),
        ("b", "waiting", NOW_MS + 5),
    ]


def test_alert_without_any_channel_is_over_and_says_why() -> None:
    over = fan_out(RECORD, {"a": channel()}, now_ms=NOW_MS)
    assert (over.state, over.next_ms, over.note) == ("no_channel", None, NO_CHANNEL)
    assert place_of(over) == IndexPosition("over", NOW_MS)
    assert close(RECORD, "nobody") == replace(RECORD, state="no_channel", next_ms=None, note="nobody")


@pytest.mark.parametrize("event", EVENTS)
def test_silenced_alert_comes_back_after_the_silence_only_if_it_can_still_be_true(event: Event) -> None:
    silenced = silence(new_record(replace(ALERT, event=event)), BY)
    assert (silenced.state, silenced.silence, silenced.note) == ("silenced", "s1", "maintenance")
    assert silenced.next_ms == (NOW_MS + 60_000 if event in COMES_BACK else None)


def test_silenced_alert_that_is_still_true_is_new_again_and_else_is_over() -> None:
    silenced = silence(RECORD, BY)
    again = wake(silenced, still_true=True)
    assert (again.state, again.silence, again.note) == ("new", "", "")
    assert again.next_ms is not None
    over = wake(silenced, still_true=False)
    assert (over.state, over.next_ms, over.note) == ("silenced", None, SILENCE_OVER)


def test_try_is_counted_before_it_is_made_with_the_time_of_the_next() -> None:
    tried = begin_try(Delivery("a"), now_ms=NOW_MS, timeout_ms=5_000, chance=0.0)
    assert tried.tries == 1
    assert tried.next_ms > NOW_MS + 5_000
    assert not is_due(tried, now_ms=NOW_MS + 5_000)
    assert is_due(tried, now_ms=tried.next_ms)


@pytest.mark.parametrize("state", [state for state in get_args(DeliveryState) if state != "waiting"])
def test_delivery_that_has_ended_is_never_due(state: DeliveryState) -> None:
    assert not is_due(Delivery("a", state), now_ms=NOW_MS)


def test_delivery_ends_as_told_or_given_up_or_waits_with_a_reason() -> None:
    tried = Delivery("a", tries=1, next_ms=NOW_MS + 9, reason="before")

    def ended(delivery: Delivery, *, ok: bool = False, final: bool = False) -> Delivery:
        return end_try(delivery, ok=ok, final=final, reason="x" * 999, now_ms=NOW_MS)

    told = ended(tried, ok=True)
    assert (told.state, told.ended_ms, told.reason) == ("told", NOW_MS, "")
    again = ended(tried)
    assert (again.state, again.next_ms, again.ended_ms) == ("waiting", NOW_MS + 9, None)
    assert again.reason == "x" * REASON_CHARS_MAX
    for given_up in (ended(tried, final=True), ended(replace(tried, tries=TRIES_MAX))):
        assert (given_up.state, given_up.ended_ms) == ("given_up", NOW_MS)
        assert given_up.reason == "x" * REASON_CHARS_MAX
    assert ended(replace(tried, tries=TRIES_MAX - 1)).state == "waiting"


deliveries = st.lists(
    st.builds(Delivery, st.just("a"), st.sampled_from(get_args(DeliveryState)), next_ms=st.integers(0, 99)), max_size=4
).map(tuple)


@given(deliveries)
def test_alert_is_told_if_one_channel_took_it_and_open_while_one_waits(ended: tuple[Delivery, ...]) -> None:
    record = with_deliveries(RECORD, ended)
    states = {one.state for one in ended}
    if "waiting" in states:
        assert record.state == "sending"
        assert record.next_ms == min(one.next_ms for one in ended if one.state == "waiting")
    else:
        assert record.state == ("told" if "told" in states else "given_up")
        assert record.next_ms is None
        assert place_of(record).part == ("failed" if "given_up" in states else "over")


@given(deliveries, st.integers(0, 99))
def test_delivery_waits_no_longer_than_the_latest_time_after_a_clock_set_back(
    ended: tuple[Delivery, ...], latest_ms: int
) -> None:
    record = with_deliveries(RECORD, ended)
    pulled = pulled_back(record, latest_ms=latest_ms)
    assert pulled.next_ms is None if record.next_ms is None else pulled.next_ms == min(record.next_ms, latest_ms)
    for before, after in zip(ended, pulled.deliveries, strict=True):
        assert after == (
            replace(before, next_ms=min(before.next_ms, latest_ms)) if before.state == "waiting" else before
        )


@given(deliveries)
def test_stored_alert_comes_back_as_it_was_and_each_write_has_its_version(ended: tuple[Delivery, ...]) -> None:
    record: AlertRecord = with_deliveries(replace(RECORD, alert=replace(ALERT, data={"failures": 3})), ended)
    assert decode_record(encode_record(record)) == record
    assert following(record) == replace(record, version=record.version + 1)
