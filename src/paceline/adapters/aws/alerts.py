"""Alerts in ``ledger``: one item for each alert, and one in its user's list.

| pk           | sk         | what it is                                                            |
|--------------|------------|-----------------------------------------------------------------------|
| alert#ID     | -          | an alert with what came of it; in the index by part, see ``place_of`` |
| alerts#USER  | AT_MS#ID   | its line in the user's list                                           |
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from paceline.adapters.aws.base import AwsStorePart
from paceline.adapters.aws.cache.index_cache import ShardCache
from paceline.adapters.aws.client.expiry import Retention
from paceline.adapters.aws.client.items import (
    ABSENT,
    Action,
    DynamoKey,
    Item,
    delete,
    joined,
    padded,
    put,
    setting,
    update,
)
from paceline.adapters.aws.client.tables import EXPIRES, LEDGER
from paceline.adapters.aws.jobs.keys import counted, due_hints, first_place, hinted
from paceline.core.alerts.alert import Alert
from paceline.core.alerts.record import (
    COUNTED_MAX,
    AlertCounts,
    AlertRecord,
    decode_record,
    encode_record,
    following,
    new_record,
    place_of,
)
from paceline.core.try_turns import DuePosition
from paceline.ports.alerts import ListPlace

OPEN, OVER, FAILED = "alert#open", "alert#over", "alert#failed"


def adding(alert: Alert, retention: Retention, *, when: str = ABSENT) -> list[Action]:
    """Return the actions that store a new alert, for the caller's transaction; then call ``alerts_added``.

    With the condition, the transaction is lost if an alert of that id exists. A transaction that can be won only once
    for this alert, such as the settlement of the run that its id names, may leave the condition out (``when=""``).
    """
    record = new_record(alert)
    item = {"pk": _key(alert.id).pk, "sk": "-", "version": record.version, "record": encode_record(record)}
    line = _line(alert)
    listed = {"pk": line.pk, "sk": line.sk, EXPIRES: retention.alert_line_s(alert.at_ms)}
    return [put(LEDGER, item | _place(record), when=when), put(LEDGER, listed)]


class AwsAlertStore(AwsStorePart):
    """Fills ``ports.alerts.AlertStore``."""

    @cached_property
    def _alert_places(self) -> ShardCache:
        return ShardCache(self.change_counter, lambda shard: first_place(self._database, shard))

    def alerts_added(self) -> None:
        """Note that a transaction of this process has stored an alert, here and for other processes."""
        self._alert_places.touch(OPEN)
        self.change_counter.bump()

    def add_alerts(self, alerts: Sequence[Alert]) -> list[bool]:
        won = [
            done.won
            for done in self._database.transact_each([adding(alert, self._database.retention) for alert in alerts])
        ]
        if any(won):
            self.alerts_added()
        return won

    def due_alerts(self, *, now_ms: int, limit: int, after: DuePosition[str] | None = None) -> list[DuePosition[str]]:
        if after is None:
            if self._alert_places.caches_indexes and self._alert_places.first_of(OPEN) > now_ms:
                return []
            self._alert_places.forget(OPEN)
        behind = None if after is None else (after.at_ms, _key(after.id))
        hints = due_hints(self._database, OPEN, now_ms=now_ms, limit=limit, after=behind)
        return [DuePosition(int(hint["at"]), _id_in(hint)) for hint in hints]

    def alert_records(self, alert_ids: Sequence[str]) -> list[AlertRecord]:
        return self._read(alert_ids)

    def open_alerts_after(self, at_ms: int, *, limit: int) -> list[AlertRecord]:
        found = self._records(hinted(self._database, OPEN, after=at_ms, limit=limit))
        return [record for record in found if record.next_ms is not None and record.next_ms > at_ms]

    def write_alerts(self, records: Sequence[AlertRecord]) -> list[bool]:
        retention = self._database.retention
        won = [done.won for done in self._database.write_each([_replacing(record, retention) for record in records])]
        if any(won):
            self._alert_places.touch(OPEN)
        return won

    def alert(self, alert_id: str) -> AlertRecord | None:
        item = self._database.get(LEDGER, _key(alert_id))
        return None if item is None else decode_record(item["record"])

    def alerts(self, user: str, *, since_ms: int, before: ListPlace | None, limit: int) -> list[AlertRecord]:
        last = "~" if before is None else f"{padded(before.at_ms)}#{before.id}"
        lines = self._database.page(
            LEDGER, _list(user), limit=limit + 1, first=padded(since_ms), last=last, newest_first=True
        )
        ids = [line["sk"].partition("#")[2] for line in lines if line["sk"] != last][:limit]
        return self._read(ids)

    def alert_counts(self) -> AlertCounts:
        return AlertCounts(*(counted(self._database, shard, limit=COUNTED_MAX) for shard in (OPEN, FAILED)))

    def purge_alerts(self, *, at_before_ms: int, limit: int) -> int:
        gone = 0
        for shard in (OVER, FAILED):
            hints = hinted(self._database, shard, until=at_before_ms - 1, limit=limit - gone)
            records = [record for record in self._records(hints) if record.next_ms is None]
            keys = [key for record in records for key in (_key(record.alert.id), _line(record.alert))]
            self._database.write_many([delete(LEDGER, key) for key in keys])
            gone += len(records)
        return gone

    def _records(self, hints: Sequence[Item]) -> list[AlertRecord]:
        return self._read([_id_in(hint) for hint in hints])

    def _read(self, ids: Sequence[str]) -> list[AlertRecord]:
        """Read alerts in the order of their ids; an id without an alert is left out."""
        found = self._database.get_many(LEDGER, [_key(one) for one in ids])
        return [decode_record(found[key]["record"]) for key in map(_key, ids) if key in found]


def _replacing(record: AlertRecord, retention: Retention) -> Action:
    after = following(record)
    expires_s = retention.alert_s(after.alert.at_ms) if after.next_ms is None else None
    wanted: dict[str, Any] = {"version": after.version, "record": encode_record(after), EXPIRES: expires_s}
    change, values = setting(wanted | _place(after))
    return update(LEDGER, _key(record.alert.id), change, when="#version = :believed", believed=record.version, **values)


def _place(record: AlertRecord) -> dict[str, Any]:
    part, at_ms = place_of(record)
    return {"shard": {"open": OPEN, "over": OVER, "failed": FAILED}[part], "at": at_ms}


def _key(alert_id: str) -> DynamoKey:
    return DynamoKey(joined("alert", alert_id), "-")


def _id_in(hint: Item) -> str:
    """Return the id of the alert that an entry of the index shows."""
    return str(hint["pk"].partition("#")[2])


def _list(user: str) -> str:
    return joined("alerts", user)


def _line(alert: Alert) -> DynamoKey:
    return DynamoKey(_list(alert.user), f"{padded(alert.at_ms)}#{alert.id}")
