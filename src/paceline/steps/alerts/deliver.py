"""Delivery of alerts: each new one goes to its channels, and each channel is tried until it takes the alert.

A try is written before it is made, with the time of the next one. So a process that dies in the middle loses nothing,
two processes do not make the same try, and only its result has to be written afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from paceline.core.alerts import telling
from paceline.core.alerts.alert import ADMINS, Alert, alert_id
from paceline.core.alerts.channel import Channel
from paceline.core.alerts.message import AppriseNote, delivery_handle, severity_of, text_of, title_of, webhook_body
from paceline.core.alerts.record import AlertRecord, Delivery, following
from paceline.core.alerts.silence import NamedSilence, silenced_by
from paceline.core.batches.calls import Call, CallResult
from paceline.core.jobs.webhook import SIGNATURE_HEADER, TRIES_MAX
from paceline.core.users import User
from paceline.errors import WrongSetting
from paceline.ports import Store, Vault
from paceline.steps.alerts.channels import channels_of
from paceline.steps.alerts.silences import silences_of
from paceline.steps.jobs.webhook import sign, webhook_secret
from paceline.steps.walk import walk

ALERTS_MAX = 50
WEBHOOK_MS, NOTE_MS = 10_000, 30_000
"""Time limits of one try."""
WRITES_MAX = 10
"""Maximum number of attempts to write the end of a try while others write the same alert."""
USER_GONE = "its user was removed or is disabled"
REMOVED = "the channel was removed"
UNREADABLE = "the channel's URL was sealed with another key; put it again"


class Message(NamedTuple):
    """A try that is written and now has to be made. ``record``: the alert as it was written with the try."""

    record: AlertRecord
    channel: str
    tries: int
    order: Call | AppriseNote
    next_ms: int
    """Time from which another process may make the next try: this one must be over by then."""

    @property
    def fence(self) -> tuple[int, int]:
        return self.order.handle, self.order.attempt


class DeliveryResult(NamedTuple):
    """Result of a try. ``over``: no further one follows, because this one succeeded or was the last."""

    alert: Alert
    channel: str
    tries: int
    ok: bool
    over: bool
    reason: str = ""


class Begun(NamedTuple):
    """Tries to make, and how many alerts were looked at."""

    messages: list[Message]
    looked_at: int


class Owner(NamedTuple):
    """Facts of a user for one pass."""

    user: User
    channels: Mapping[str, Channel]
    silences: Sequence[NamedSilence]


def begin_deliveries(
    store: Store, vault: Vault, *, secret: bytes, now_ms: int, chance: Callable[[], float], limit: int = ALERTS_MAX
) -> Begun:
    """Write the tries that are due and return them; those that another process took first are left out."""
    desk = _Pass(store, vault, secret=secret, now_ms=now_ms, chance=chance)
    due = store.due_alerts(now_ms=now_ms, limit=limit)
    changed = [desk.decide(record) for record in due]
    won = store.write_alerts(changed)
    messages = [one for record, ours in zip(changed, won, strict=True) if ours for one in desk.messages(record)]
    return Begun(messages, len(due))


def end_deliveries(store: Store, ended: Sequence[tuple[Message, CallResult]]) -> list[DeliveryResult]:
    """Write the results of tries. Only a 2xx is a success; a redirect is not followed."""
    by_alert: dict[str, list[tuple[Message, CallResult]]] = {}
    for one in ended:
        by_alert.setdefault(one[0].record.alert.id, []).append(one)
    records: list[AlertRecord | None] = [
        max((one.record for one, _ in some), key=_version) for some in by_alert.values()
    ]
    left = list(zip(by_alert.values(), records, strict=True))
    for _ in range(WRITES_MAX):
        wanted = [(some, after) for some, record in left if record is not None and (after := _after(record, some))]
        won = store.write_alerts([after for _, after in wanted]) if wanted else []
        left = [
            (some, store.alert(after.alert.id)) for (some, after), ours in zip(wanted, won, strict=True) if not ours
        ]
        if not left:
            break
    return [_ended(message, result) for message, result in ended]


def deliver_test(
    vault: Vault, channel: Channel, *, user: str, channel_id: str, secret: bytes, now_ms: int
) -> Call | AppriseNote:
    """Return the message that ``channel test`` sends. It is no alert: nothing of it is stored."""
    alert = Alert(
        id=alert_id("channel.test", f"{user}/{channel_id}@{now_ms}"),
        event="channel.test",
        at_ms=now_ms,
        user=user,
        subject=channel_id,
        reason="somebody asked for this test",
    )
    return _order(alert, channel_id, channel.kind, vault.unseal(channel.url), tries=1, secret=secret, now_ms=now_ms)


class _Pass:
    """One pass over alerts that are due: it reads each user once."""

    def __init__(self, store: Store, vault: Vault, *, secret: bytes, now_ms: int, chance: Callable[[], float]) -> None:
        self._store = store
        self._vault = vault
        self._secret = secret
        self._now_ms = now_ms
        self._chance = chance
        self._owners: dict[str, Owner | None] = {}
        self._woken: set[tuple[str, str]] = set()
        self._made: dict[str, list[tuple[Delivery, Call | AppriseNote]]] = {}

    def decide(self, record: AlertRecord) -> AlertRecord:
        """Return the record after this pass, with the tries that ``messages`` returns once it is written."""
        if record.alert.user == ADMINS:
            return self._pass_on(record)
        owner = self._owner(record.alert)
        if owner is None:
            return telling.close(record, USER_GONE)
        if record.state == "silenced":
            record = telling.wake(record, still_true=self._is_still_true(record.alert))
        if record.state == "new":
            if (silence := self._silence(record.alert, owner)) is not None:
                return telling.silence(record, silence)
            record = telling.fan_out(record, owner.channels, now_ms=self._now_ms)
        if record.state != "sending":
            return record
        deliveries = [self._try(record.alert, one, owner) for one in record.deliveries]
        return telling.with_deliveries(record, tuple(deliveries))

    def messages(self, record: AlertRecord) -> list[Message]:
        """Return the tries of a record that this pass has written."""
        written = following(record)
        return [
            Message(written, delivery.channel, delivery.tries, order, delivery.next_ms)
            for delivery, order in self._made.get(record.alert.id, ())
        ]

    def _try(self, alert: Alert, delivery: Delivery, owner: Owner) -> Delivery:
        if not telling.is_due(delivery, now_ms=self._now_ms):
            return delivery
        channel = owner.channels.get(delivery.channel)
        if channel is None or delivery.tries >= TRIES_MAX:
            # The channel is gone; or the process that made the last try died during it.
            reason = REMOVED if channel is None else delivery.reason or "the last try was cut short"
            return telling.give_up(delivery, reason, now_ms=self._now_ms)
        timeout_ms = WEBHOOK_MS if channel.kind == "webhook" else NOTE_MS
        begun = telling.begin_try(delivery, now_ms=self._now_ms, timeout_ms=timeout_ms, chance=self._chance())
        try:
            url = self._vault.unseal(channel.url)
        except WrongSetting:
            return telling.end_try(begun, ok=False, final=False, reason=UNREADABLE, now_ms=self._now_ms)
        order = _order(
            alert, delivery.channel, channel.kind, url, tries=begun.tries, secret=self._secret, now_ms=self._now_ms
        )
        self._made.setdefault(alert.id, []).append((begun, order))
        return begun

    def _pass_on(self, record: AlertRecord) -> AlertRecord:
        """Give each admin an alert of their own.

        If the process stops before the record is written, the next pass computes the same ids.
        """
        alert = record.alert
        admins = [user for user in walk(self._store.users) if user.role == "admin" and not user.disabled]
        named = [user for user in admins if self._names_channel_of(alert, user)]
        own = [
            replace(alert, id=alert_id(alert.event, f"{alert.id}/{user.id}"), user=user.id)
            for user in (named or admins)
        ]
        self._store.add_alerts(own)
        return replace(record, state="passed_on", next_ms=None)

    def _names_channel_of(self, alert: Alert, user: User) -> bool:
        if not alert.channels:
            return False
        channels = channels_of(self._store, user.id, since_ms=user.created_ms)
        return any(name in channels for name in alert.channels)

    def _owner(self, alert: Alert) -> Owner | None:
        """Return the alert's user; None: the user is gone, and a later user of the same name is another one."""
        if alert.user not in self._owners:
            user = self._store.user(alert.user)
            self._owners[alert.user] = None if user is None or user.disabled else self._read(user)
        owner = self._owners[alert.user]
        return owner if owner is not None and alert.at_ms >= owner.user.created_ms else None

    def _read(self, user: User) -> Owner:
        channels = channels_of(self._store, user.id, since_ms=user.created_ms)
        silences = silences_of(self._store, user.id, now_ms=self._now_ms, since_ms=user.created_ms)
        return Owner(user, channels, silences)

    def _silence(self, alert: Alert, owner: Owner) -> NamedSilence | None:
        if alert.event not in telling.MONITOR_EVENTS or not owner.silences:
            return None
        monitor = self._store.monitor(alert.user, alert.subject)
        tags = monitor.spec.tags if monitor is not None else ()
        return silenced_by(owner.silences, monitor=alert.subject, tags=tags, now_ms=self._now_ms)

    def _is_still_true(self, alert: Alert) -> bool:
        """Return True for one alert of each monitor whose health is still as the alert says."""
        if (alert.user, alert.subject) in self._woken:
            return False
        monitor = self._store.monitor(alert.user, alert.subject)
        if monitor is None or monitor.spec.paused:
            return False
        record = self._store.health_records([monitor.generation]).get(monitor.generation)
        if record is None or not (record.failing or record.late_ms):
            return False
        self._woken.add((alert.user, alert.subject))
        return True


def _order(
    alert: Alert, channel_id: str, kind: str, url: str, *, tries: int, secret: bytes, now_ms: int
) -> Call | AppriseNote:
    handle = delivery_handle(alert.id, channel_id)
    if kind != "webhook":
        return AppriseNote(handle, tries, url, title_of(alert), text_of(alert), severity_of(alert), NOTE_MS)
    body = webhook_body(alert)
    signature = sign(webhook_secret(secret, alert.user), body, at_s=now_ms // 1_000)
    # The same key at each try, so that a receiver whose answer was lost recognises the alert.
    headers = {SIGNATURE_HEADER: signature, "Idempotency-Key": alert.id, "Paceline-Try": str(tries)}
    return Call(handle, tries, alert.id, "POST", url, headers, body.decode(), WEBHOOK_MS)


def _after(record: AlertRecord, ended: Sequence[tuple[Message, CallResult]]) -> AlertRecord | None:
    """Return the record after these tries; None if none of them is its newest try any more."""
    results = {(message.channel, message.tries): result for message, result in ended}
    after = tuple(
        telling.end_try(one, ok=_is_ok(result), final=False, reason=_reason(result), now_ms=result.ended_ms)
        if one.state == "waiting" and (result := results.get((one.channel, one.tries))) is not None
        else one
        for one in record.deliveries
    )
    return telling.with_deliveries(record, after) if after != record.deliveries else None


def _ended(message: Message, result: CallResult) -> DeliveryResult:
    ok = _is_ok(result)
    over = ok or message.tries >= TRIES_MAX
    return DeliveryResult(message.record.alert, message.channel, message.tries, ok, over, "" if ok else _reason(result))


def _is_ok(result: CallResult) -> bool:
    return result.code is not None and 200 <= result.code < 300


def _reason(result: CallResult) -> str:
    return result.reason or f"answered {result.code}"


def _version(record: AlertRecord) -> int:
    return record.version
