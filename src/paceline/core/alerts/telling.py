"""Decisions on an alert: to which channels it goes, when each is tried, and when it is over. See ``record``."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from paceline.core.alerts.alert import REASON_CHARS_MAX, Alert
from paceline.core.alerts.channel import Channel
from paceline.core.alerts.record import AlertRecord, Delivery
from paceline.core.alerts.silence import NamedSilence
from paceline.core.jobs.webhook import CAP_MS, TRIES_MAX, again_ms

MONITOR_EVENTS = frozenset(
    {"monitor.failing", "monitor.recovered", "monitor.late", "monitor.flapping", "certificate.expiring"}
)
"""Events about a monitor, which silences cover."""
COMES_BACK = frozenset({"monitor.failing", "monitor.late"})
"""Events that are sent when their silence ends, if they are still true then."""
WAIT_MS_MAX = 2 * CAP_MS
"""Longest pause between two tries."""
NO_CHANNEL = "there is no channel to tell it through"
SILENCE_OVER = "it was over before its silence ended"


def channels_for(alert: Alert, channels: Mapping[str, Channel]) -> tuple[str, ...]:
    """Return the channels of its user to which the alert goes: those that it names.

    If it names none, or none of the named channels exists any more, it goes to the user's default channels: a channel
    that was removed must not keep an alert from being sent.
    """
    named = tuple(name for name in alert.channels if name in channels)
    return named or tuple(name for name, channel in channels.items() if channel.default)


def fan_out(record: AlertRecord, channels: Mapping[str, Channel], *, now_ms: int) -> AlertRecord:
    """Return the new record with a delivery for each of its channels, each due now; ended if there is no channel."""
    assert record.state == "new"
    names = channels_for(record.alert, channels)
    if not names:
        return replace(record, state="no_channel", next_ms=None, note=NO_CHANNEL)
    deliveries = tuple(Delivery(name, next_ms=now_ms) for name in names)
    return replace(record, state="sending", deliveries=deliveries, next_ms=now_ms, silence="", note="")


def silence(record: AlertRecord, by: NamedSilence) -> AlertRecord:
    """Return the record as silenced. If its event can come back, it is due when the silence ends."""
    until_ms = by.silence.until_ms if record.alert.event in COMES_BACK else None
    return replace(record, state="silenced", next_ms=until_ms, silence=by.id, note=by.silence.reason)


def wake(record: AlertRecord, *, still_true: bool) -> AlertRecord:
    """Return a silenced record whose silence has ended: new again if the alert is still true, else ended."""
    assert record.state == "silenced"
    if still_true:
        return replace(record, state="new", silence="", note="")
    return replace(record, next_ms=None, note=SILENCE_OVER)


def close(record: AlertRecord, note: str) -> AlertRecord:
    """Return the record as ended because nobody can be told; ``note`` says why."""
    return replace(record, state="no_channel", next_ms=None, note=note)


def begin_try(delivery: Delivery, *, now_ms: int, timeout_ms: int, chance: float) -> Delivery:
    """Return the delivery with one more try, and the time from which the try after it may be made."""
    tries = delivery.tries + 1
    next_ms = again_ms(tries, now_ms=now_ms, timeout_ms=timeout_ms, chance=chance)
    return replace(delivery, tries=tries, next_ms=next_ms)


def is_due(delivery: Delivery, *, now_ms: int) -> bool:
    return delivery.state == "waiting" and delivery.next_ms <= now_ms


def give_up(delivery: Delivery, reason: str, *, now_ms: int) -> Delivery:
    return replace(delivery, state="given_up", ended_ms=now_ms, reason=reason[:REASON_CHARS_MAX])


def end_try(delivery: Delivery, *, ok: bool, final: bool, reason: str, now_ms: int) -> Delivery:
    """Return the delivery after its newest try. ``final``: a further try would fail in the same way."""
    if ok:
        return replace(delivery, state="told", ended_ms=now_ms, reason="")
    if final or delivery.tries >= TRIES_MAX:
        return give_up(delivery, reason, now_ms=now_ms)
    return replace(delivery, reason=reason[:REASON_CHARS_MAX])


def with_deliveries(record: AlertRecord, deliveries: tuple[Delivery, ...]) -> AlertRecord:
    """Return the record with these deliveries, and with the state and the time that follow from them."""
    waiting = [one.next_ms for one in deliveries if one.state == "waiting"]
    if waiting:
        return replace(record, state="sending", deliveries=deliveries, next_ms=min(waiting))
    delivered = any(one.state == "told" for one in deliveries)
    return replace(record, state="told" if delivered else "given_up", deliveries=deliveries, next_ms=None)


def pulled_back(record: AlertRecord, *, latest_ms: int) -> AlertRecord:
    """Return the record after the clock was set back: nothing waits beyond ``latest_ms``."""
    deliveries = tuple(
        replace(one, next_ms=min(one.next_ms, latest_ms)) if one.state == "waiting" else one
        for one in record.deliveries
    )
    next_ms = None if record.next_ms is None else min(record.next_ms, latest_ms)
    return replace(record, deliveries=deliveries, next_ms=next_ms)
