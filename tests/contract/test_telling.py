"""Delivery of alerts: to whom, through which channels, how often, and which alerts silences hold back."""

from __future__ import annotations

import hashlib
import hmac
import json

import pytest

from paceline.core.alerts.channel import CHANNELS_PER_USER_MAX, ChannelBody
from paceline.core.alerts.silence import SilenceBody, TagSilenceBody, monitor_silence, tag_silence
from paceline.core.jobs.webhook import CAP_MS, TRIES_MAX
from paceline.core.users import UserEdit
from paceline.errors import InvalidInput, LimitReached, NotFound
from paceline.ports import Store
from paceline.steps.access import remove_user
from paceline.steps.alerts.channels import channels_of, get_channel, put_channel, remove_channel
from paceline.steps.alerts.silences import add_silence, end_silence, silences_of
from paceline.steps.alerts.upkeep import pull_back_alerts
from paceline.steps.monitors.send import settle
from tests.contract.support.alert_stage import (
    MAIL,
    SECRET,
    URL,
    VAULT,
    add,
    alert,
    begin,
    call_of,
    channel,
    end,
    note_of,
    record_of,
)
from tests.contract.support.stage import DAY_MS, HOUR_MS, MINUTE_MS, T0_MS, user
from tests.steps.support.scene import finish, put, run_tick, take

FOR_2H = SilenceBody("2h", "moving house")


def fail(store: Store, name: str = "home", *, tags: tuple[str, ...] = ()) -> None:
    """A monitor whose newest run failed."""
    put(store, name, now_ms=T0_MS, every="1d", tags=list(tags))
    run_tick(store, now_ms=T0_MS)
    settle(store, [finish(order, now_ms=T0_MS, ok=False) for order in take(store, now_ms=T0_MS)])


def silence(store: Store, *, now_ms: int = T0_MS, body: SilenceBody = FOR_2H, monitor: str = "home") -> str:
    wanted = monitor_silence(body, monitor, now_ms=now_ms)
    return add_silence(store, "ann", wanted, chance_id="0123456789ab").id


# -- channels


def test_channel_is_stored_sealed_and_its_url_kept_when_it_is_put_back_as_it_is_shown(store: Store) -> None:
    channel(store)
    first = get_channel(store, "ann", "ops")
    assert "a-secret-path" not in first.url
    kept = put_channel(store, VAULT, "ann", "ops", ChannelBody("webhook", "***"), now_ms=T0_MS + 1)
    assert (kept.created, kept.channel.url, kept.channel.default) == (False, first.url, False)
    assert (kept.channel.created_ms, kept.channel.updated_ms) == (T0_MS, T0_MS + 1)
    with pytest.raises(InvalidInput, match="/url"):
        put_channel(store, VAULT, "ann", "ops", ChannelBody("apprise", "***"), now_ms=T0_MS)
    with pytest.raises(InvalidInput, match="/url"):
        put_channel(store, VAULT, "ann", "new", ChannelBody("webhook", "***"), now_ms=T0_MS)


def test_put_of_the_same_channel_changes_nothing(store: Store) -> None:
    channel(store)
    body = ChannelBody("webhook", URL, default=True)
    again = put_channel(store, VAULT, "ann", "ops", body, now_ms=T0_MS + 5)
    assert (again.created, again.channel.updated_ms) == (False, T0_MS)


def test_channels_belong_to_their_user_and_go_with_the_user(store: Store) -> None:
    channel(store)
    with pytest.raises(NotFound):
        get_channel(store, "bob", "ops")
    remove_user(store, "ann", now_ms=T0_MS)
    store.add_user(user("ann", created_ms=T0_MS + 1))
    assert channels_of(store, "ann", since_ms=0) == {}


def test_channels_of_one_user_are_limited(store: Store, *, by_request: bool) -> None:
    if by_request:
        pytest.skip("fifty writes say nothing more there")
    for number in range(CHANNELS_PER_USER_MAX):
        channel(store, f"c{number}")
    with pytest.raises(LimitReached):
        channel(store, "one-more")
    channel(store, "c0", default=False)
    channel(store, "bobs", user="bob")


# -- fan-out


def test_alert_goes_to_the_channels_that_it_names_else_to_the_default_ones(store: Store) -> None:
    channel(store, "a")
    channel(store, "b", default=False)
    channel(store, "c")
    add(store, alert("1"), alert("2", channels=("b", "gone")), alert("3", channels=("gone",)))
    told = {(one.record.alert.id, one.channel) for one in begin(store)}
    default = {(alert(cause).id, name) for cause in "13" for name in "ac"}
    assert told == default | {(alert("2").id, "b")}


def test_alert_of_a_user_without_a_channel_is_over_and_says_so(store: Store) -> None:
    channel(store, "spare", default=False)
    add(store, alert())
    assert begin(store) == []
    record = record_of(store, alert())
    assert (record.state, record.next_ms) == ("no_channel", None)
    assert "no channel" in record.note


def test_alert_for_admins_is_passed_on_to_each_admin_once(store: Store) -> None:
    for name in ("ann", "bob"):
        store.edit_user(name, UserEdit(role="admin"))
        channel(store, user=name)
    store.add_user(user("carol"))
    channel(store, user="carol")
    add(store, alert("night", event="batch.day_ended", user="", subject="shop/2026-11-15"))
    assert begin(store) == []
    messages = begin(store)
    assert {one.record.alert.user for one in messages} == {"ann", "bob"}
    assert begin(store, now_ms=T0_MS + 1) == []
    assert len(store.alerts("ann", since_ms=0, before=None, limit=9)) == 1
    assert store.alerts("carol", since_ms=0, before=None, limit=9) == []


def test_alert_of_a_batch_goes_to_the_admins_channels_of_its_names(store: Store) -> None:
    for name in ("ann", "bob"):
        store.edit_user(name, UserEdit(role="admin"))
        channel(store, user=name)
    channel(store, "night", user="bob", default=False)
    add(store, alert("x", event="batch.day_ended", user="", subject="s", channels=("night",)))
    begin(store)
    assert [(one.record.alert.user, one.channel) for one in begin(store)] == [("bob", "night")]


def test_alerts_of_a_removed_recreated_or_disabled_user_are_not_sent(store: Store) -> None:
    channel(store)
    add(store, alert("1"))
    remove_user(store, "ann", now_ms=T0_MS)
    store.add_user(user("ann", created_ms=T0_MS + 1))
    body = ChannelBody("webhook", URL, default=True)
    put_channel(store, VAULT, "ann", "ops", body, now_ms=T0_MS + 1)
    assert begin(store) == []
    assert store.alerts("ann", since_ms=T0_MS + 1, before=None, limit=9) == []
    channel(store, user="bob")
    store.edit_user("bob", UserEdit(disabled=True))
    add(store, alert("2", user="bob"))
    assert begin(store) == []
    assert store.alert_counts().open == 0


# -- webhooks


def test_webhook_is_signed_and_carries_the_alert_under_its_id(store: Store) -> None:
    channel(store)
    add(store, alert())
    [message] = begin(store)
    call = call_of(message)
    assert (call.method, call.url) == ("POST", URL)
    assert json.loads(call.body or "") == {
        "id": alert().id,
        "event": "monitor.failing",
        "at": "2026-09-21T14:13:20.000Z",
        "user": "ann",
        "subject": "home",
        "reason": "answered 500",
        "data": {"failures": 3},
    }
    assert call.headers["Idempotency-Key"] == alert().id
    secret = hmac.new(SECRET, b"webhook/ann", hashlib.sha256).hexdigest()
    signed = f"{T0_MS // 1_000}.{call.body}".encode()
    digest = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    assert call.headers["Paceline-Signature"] == f"t={T0_MS // 1_000},v1={digest}"


def test_note_for_apprise_has_title_text_and_the_opened_url(store: Store) -> None:
    channel(store, url=MAIL)
    add(store, alert())
    note = note_of(begin(store)[0])
    assert (note.url, note.title, note.severity) == (MAIL, "home is failing", "failure")
    assert note.text.splitlines()[0] == "answered 500"


def test_delivered_alert_is_not_sent_again(store: Store, other: Store) -> None:
    channel(store)
    add(store, alert())
    messages = begin(store)
    assert begin(other) == []
    [ended] = end(store, messages, 204)
    assert (ended.ok, ended.over, ended.tries) == (True, True, 1)
    record = record_of(other, alert())
    assert (record.state, record.next_ms, record.deliveries[0].state) == ("told", None, "told")
    assert begin(store, now_ms=T0_MS + DAY_MS) == []


def test_failed_delivery_is_tried_again_with_growing_pauses_and_given_up_after_a_day(store: Store) -> None:
    channel(store)
    add(store, alert())
    now_ms, waits = T0_MS, []
    for tries in range(1, TRIES_MAX + 1):
        [message] = begin(store, now_ms=now_ms)
        assert message.tries == tries
        [ended] = end(store, [message], 500 if tries % 2 else None, now_ms=now_ms)
        assert ended.over is (tries == TRIES_MAX)
        if not ended.over:
            next_ms = record_of(store, alert()).next_ms
            assert next_ms is not None
            assert begin(store, now_ms=next_ms - 1) == []
            waits.append(next_ms - now_ms)
            now_ms = next_ms
    assert waits == sorted(waits)
    assert now_ms - T0_MS > DAY_MS / 3
    record = record_of(store, alert())
    assert (record.state, record.deliveries[0].reason) == ("given_up", "answered 500")
    assert store.alert_counts() == (0, 1)


def test_delivery_of_a_dead_process_is_tried_again_by_another(store: Store, other: Store) -> None:
    channel(store)
    add(store, alert())
    [lost] = begin(store)
    assert begin(other, now_ms=lost.next_ms - 1) == []
    [again] = begin(other, now_ms=lost.next_ms)
    assert (again.tries, call_of(again).headers["Idempotency-Key"]) == (2, alert().id)
    end(other, [again], 200)
    end(store, [lost], None)
    assert record_of(store, alert()).state == "told"


def test_failing_channel_does_not_repeat_deliveries_to_the_others(store: Store) -> None:
    channel(store, "a")
    channel(store, "b")
    add(store, alert())
    one, two = begin(store)
    end(store, [one], 200)
    end(store, [two], 500)
    [again] = begin(store, now_ms=T0_MS + HOUR_MS)
    assert again.channel == "b"
    end(store, [again], 200)
    assert [(one.channel, one.state, one.tries) for one in record_of(store, alert()).deliveries] == [
        ("a", "told", 1),
        ("b", "told", 2),
    ]


def test_channel_that_is_changed_or_removed_counts_from_the_next_try_on(store: Store) -> None:
    channel(store, "a")
    channel(store, "b")
    add(store, alert())
    end(store, begin(store), 500)
    channel(store, "a", url="https://new.example.org/")
    remove_channel(store, "ann", "b")
    [again] = begin(store, now_ms=T0_MS + HOUR_MS)
    assert call_of(again).url == "https://new.example.org/"
    assert [one.state for one in record_of(store, alert()).deliveries] == ["waiting", "given_up"]


def test_delivery_that_waits_too_far_ahead_comes_back_after_the_clock_was_set_back(store: Store) -> None:
    channel(store)
    add(store, alert(at_ms=T0_MS + 30 * DAY_MS))
    assert pull_back_alerts(store, lambda: T0_MS, wait_ms_max=2 * CAP_MS) == 1
    assert len(begin(store, now_ms=T0_MS + 2 * CAP_MS)) == 1
    assert pull_back_alerts(store, lambda: T0_MS, wait_ms_max=30 * DAY_MS) == 0


# -- silences


def test_silenced_alert_is_recorded_and_not_sent(store: Store) -> None:
    channel(store)
    fail(store)
    silence(store)
    add(store, alert(event="monitor.recovered"), alert("other", subject="else"))
    assert [one.record.alert.subject for one in begin(store)] == ["else"]
    record = record_of(store, alert(event="monitor.recovered"))
    assert (record.state, record.note, record.next_ms) == ("silenced", "moving house", None)


def test_silence_of_a_tag_covers_the_monitors_that_have_it(store: Store) -> None:
    channel(store)
    fail(store, "home", tags=("web",))
    fail(store, "else", tags=("mail",))
    add_silence(store, "ann", tag_silence(TagSilenceBody("web", "1h"), now_ms=T0_MS), chance_id="a" * 12)
    add(store, alert("1"), alert("2", subject="else"))
    # The settled failures have made an alert of their own for each monitor.
    assert {one.record.alert.subject for one in begin(store)} == {"else"}


def test_failure_that_outlasts_its_silence_is_sent_once_at_its_end(store: Store) -> None:
    channel(store)
    fail(store)
    silence(store)
    add(store, alert("1"), alert("2", at_ms=T0_MS + 1))
    assert begin(store, now_ms=T0_MS + MINUTE_MS) == []
    assert begin(store, now_ms=T0_MS + 2 * HOUR_MS - 1) == []
    [told] = begin(store, now_ms=T0_MS + 2 * HOUR_MS)
    assert told.record.alert.subject == "home"
    end(store, [told], 200)
    assert begin(store, now_ms=T0_MS + 3 * HOUR_MS) == []


def test_failure_that_ended_during_its_silence_is_not_sent(store: Store) -> None:
    channel(store)
    put(store, "home", now_ms=T0_MS, every="1d")
    run_tick(store, now_ms=T0_MS)
    settle(store, [finish(order, now_ms=T0_MS) for order in take(store, now_ms=T0_MS)])
    silence(store)
    add(store, alert())
    assert begin(store) == []
    assert begin(store, now_ms=T0_MS + 2 * HOUR_MS) == []
    assert record_of(store, alert()).next_ms is None


def test_ending_a_silence_early_sends_a_lasting_failure_at_once(store: Store) -> None:
    channel(store)
    fail(store)
    name = silence(store)
    add(store, alert())
    assert begin(store) == []
    end_silence(store, "ann", name, now_ms=T0_MS + 5)
    assert len(begin(store, now_ms=T0_MS + 5)) == 1
    with pytest.raises(NotFound):
        end_silence(store, "ann", name, now_ms=T0_MS + 6)


def test_silences_are_listed_while_they_last_and_belong_to_their_user(store: Store) -> None:
    name = silence(store)
    assert [one.id for one in silences_of(store, "ann", now_ms=T0_MS, since_ms=0)] == [name]
    assert silences_of(store, "ann", now_ms=T0_MS + 2 * HOUR_MS, since_ms=0) == []
    assert silences_of(store, "bob", now_ms=T0_MS, since_ms=0) == []
    with pytest.raises(NotFound):
        end_silence(store, "bob", name, now_ms=T0_MS)


@pytest.mark.parametrize("body", [SilenceBody("1s"), SilenceBody("soon"), SilenceBody("1h", "a\nb")])
def test_silence_that_makes_no_sense_is_refused_with_its_field(body: SilenceBody) -> None:
    with pytest.raises(InvalidInput, match=r"/for|/reason"):
        monitor_silence(body, "home", now_ms=T0_MS)
