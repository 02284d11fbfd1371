"""Delivery of alerts: each new one goes to its channels, and each channel is tried until it takes the alert.

A try is written before it is made, with the time of the next one. So a process that dies in the middle loses nothing,
two processes do not make the same try, and only its result has to be written afterwards.

Users take turns for the places of tries. An alert that needs no try is decided as soon as it is read.
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
from paceline.core.try_turns import PAGE, DuePosition, DueTries, TryPlaces, TryQueue, TryTurn
from paceline.core.users import User
from paceline.errors import WrongSetting
from paceline.ports import Store, Vault
from paceline.steps.alerts.channels import channels_of
from paceline.steps.alerts.silences import silences_of
from paceline.steps.jobs.webhook import sign, webhook_secret
from paceline.steps.tries import FREE, TriesBegun, TriesToMake, Waiting, begin_by_turns
from paceline.steps.walk import walk

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

    @property
    def user(self) -> str:
        return self.record.alert.user


class DeliveryResult(NamedTuple):
    """Result of a try. ``over``: no further one follows, because this one succeeded or was the last."""

    alert: Alert
    channel: str
    tries: int
    ok: bool
    over: bool
    reason: str = ""


class Owner(NamedTuple):
    """Facts of a user for one pass."""

    user: User
    channels: Mapping[str, Channel]
    silences: Sequence[NamedSilence]


def begin_deliveries(
    store: Store,
    vault: Vault,
    *,
    secret: bytes,
    now_ms: int,
    chance: Callable[[], float],
    queue: TryQueue[str] | None = None,
    places: TryPlaces = FREE,
) -> TriesToMake[Message]:
    """Write tries that are due, by turns of users, and return them; those that another process took are left out.

    ``queue``: what earlier passes of this process remember; None: users take turns within this pass.
    """
    records = _Pass(store, vault, secret=secret, now_ms=now_ms, chance=chance)
    return begin_by_turns(records, TryQueue[str]() if queue is None else queue, places, now_ms=now_ms)


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
    """One pass over alerts that are due, a ``TryRecords``: it reads each user once."""

    def __init__(self, store: Store, vault: Vault, *, secret: bytes, now_ms: int, chance: Callable[[], float]) -> None:
        self._store = store
        self._vault = vault
        self._secret = secret
        self._now_ms = now_ms
        self._chance = chance
        self._owners: dict[str, Owner | None] = {}
        self._woken: set[tuple[str, str]] = set()
        self._decided: dict[str, AlertRecord] = {}
        """Records with tries to begin, decided on except for these."""

    def due(self, after: DuePosition[str] | None) -> list[DuePosition[str]]:
        return self._store.due_alerts(now_ms=self._now_ms, limit=PAGE, after=after)

    def look(self, positions: Sequence[DuePosition[str]]) -> Waiting[str]:
        records = self._store.alert_records([position.id for position in positions])
        due = [one for one in records if one.next_ms is not None and one.next_ms <= self._now_ms]
        decided = [self._decide(record) for record in sorted(due, key=_position_of)]
        self._decided.update((after.alert.id, after) for after in decided if self._due_tries(after))
        if without_tries := [after for after in decided if not self._due_tries(after)]:
            self._store.write_alerts(without_tries)
        return Waiting(
            [
                self._in_queue(record, self._decided[record.alert.id])
                for record in due
                if record.alert.id in self._decided
            ],
            early=any(record.alert.user == ADMINS for record in due),
        )

    def begin(self, turns: Sequence[TryTurn[str]]) -> TriesBegun[str, Message]:
        if unread := [turn.due.position for turn in turns if turn.due.position.id not in self._decided]:
            self.look(unread)
        begun = [
            self._begin(self._decided.pop(turn.due.position.id), turn.places)
            for turn in turns
            if turn.due.position.id in self._decided
        ]
        won = self._store.write_alerts([after for after, _ in begun]) if begun else []
        ours = [one for one, written in zip(begun, won, strict=True) if written]
        messages = [
            Message(following(after), delivery.channel, delivery.tries, order, delivery.next_ms)
            for after, made in ours
            for delivery, order in made
        ]
        return TriesBegun(messages, [self._in_queue(after, after) for after, _ in ours if self._due_tries(after)])

    def _in_queue(self, record: AlertRecord, decided: AlertRecord) -> DueTries[str]:
        return DueTries(record.alert.user, _position_of(record), self._due_tries(decided))

    def _due_tries(self, decided: AlertRecord) -> int:
        if decided.state != "sending":
            return 0
        return sum(telling.is_due(one, now_ms=self._now_ms) for one in decided.deliveries)

    def _decide(self, record: AlertRecord) -> AlertRecord:
        """Return the record with all that is due now, except that its tries are still to begin."""
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
        return telling.with_deliveries(record, tuple(self._drop(one, owner) for one in record.deliveries))

    def _drop(self, delivery: Delivery, owner: Owner) -> Delivery:
        """Give up a delivery that cannot be tried."""
        gone = delivery.channel not in owner.channels
        if telling.is_due(delivery, now_ms=self._now_ms) and (gone or delivery.tries >= TRIES_MAX):
            # The channel is gone; or the process that made the last try died during it.
            reason = REMOVED if gone else delivery.reason or "the last try was cut short"
            return telling.give_up(delivery, reason, now_ms=self._now_ms)
        return delivery

    def _begin(self, record: AlertRecord, places: int) -> tuple[AlertRecord, list[tuple[Delivery, Call | AppriseNote]]]:
        """Return the record with at most so many tries more, and these tries with what is to be sent."""
        owner = self._owner(record.alert)
        assert owner is not None
        after: list[Delivery] = []
        made: list[tuple[Delivery, Call | AppriseNote]] = []
        for one in record.deliveries:
            begun, order = one, None
            if len(made) < places and telling.is_due(one, now_ms=self._now_ms):
                begun, order = self._try(record.alert, one, owner.channels[one.channel])
            after.append(begun)
            if order is not None:
                made.append((begun, order))
        return telling.with_deliveries(record, tuple(after)), made

    def _try(self, alert: Alert, delivery: Delivery, channel: Channel) -> tuple[Delivery, Call | AppriseNote | None]:
        timeout_ms = WEBHOOK_MS if channel.kind == "webhook" else NOTE_MS
        begun = telling.begin_try(delivery, now_ms=self._now_ms, timeout_ms=timeout_ms, chance=self._chance())
        try:
            url = self._vault.unseal(channel.url)
        except WrongSetting:
            return telling.end_try(begun, ok=False, final=False, reason=UNREADABLE, now_ms=self._now_ms), None
        order = _order(
            alert, delivery.channel, channel.kind, url, tries=begun.tries, secret=self._secret, now_ms=self._now_ms
        )
        return begun, order

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


def _position_of(record: AlertRecord) -> DuePosition[str]:
    assert record.next_ms is not None
    return DuePosition(record.next_ms, record.alert.id)
