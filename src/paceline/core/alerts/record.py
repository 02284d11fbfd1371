"""Record of an alert: its channels, the tries through each of them, and the time of the next one.

new ──► sending ──► told          at least one channel took it
 │         └─────► given_up       no channel took it within its tries
 ├──► silenced                    a silence covers it; a failure that lasts comes back to ``new`` when the silence ends
 ├──► no_channel                  nobody has a channel for it
 └──► passed_on                   it concerned the admins: each of them has an alert of their own

A record is read, decided on, and written if nobody else has written it meanwhile (``version``). A try is written before
it is made, with the time of the next one: a process that dies in between loses nothing, and two do not tell twice.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from paceline.core.alerts.alert import Alert

AlertState = Literal["new", "sending", "told", "given_up", "silenced", "no_channel", "passed_on"]
DeliveryState = Literal["waiting", "told", "given_up"]
Part = Literal["open", "over", "failed"]
PARTS: tuple[Part, ...] = ("open", "over", "failed")


class Delivery(msgspec.Struct, frozen=True):
    """Delivery of one alert through one channel. ``next_ms``: when a waiting one may be tried again."""

    channel: str
    state: DeliveryState = "waiting"
    tries: int = 0
    next_ms: int = 0
    ended_ms: int | None = None
    reason: str = ""


class AlertRecord(msgspec.Struct, frozen=True):
    """An alert with its deliveries.

    ``next_ms``: when the next action is due; None: nothing is left to do. ``silence``: the id of the silence that
    covers the alert.
    """

    alert: Alert
    state: AlertState = "new"
    deliveries: tuple[Delivery, ...] = ()
    next_ms: int | None = None
    silence: str = ""
    note: str = ""
    """Reason why nobody was told; empty if somebody was."""
    version: int = 0


class IndexPosition(NamedTuple):
    """Place of a record in a store's index: open records by their next action, the others by the time of the alert."""

    part: Part
    at_ms: int


class AlertCounts(NamedTuple):
    """Number of open alerts, and of ended alerts that a channel failed to deliver. Counted up to a limit."""

    open: int
    failed: int


COUNTED_MAX = 10_000


def new_record(alert: Alert) -> AlertRecord:
    """Return the record as it is first stored: due at once."""
    return AlertRecord(alert, next_ms=alert.at_ms)


def place_of(record: AlertRecord) -> IndexPosition:
    """Return where the record is indexed. ``failed``: a delivery was given up."""
    if record.next_ms is not None:
        return IndexPosition("open", record.next_ms)
    failed = any(one.state == "given_up" for one in record.deliveries)
    return IndexPosition("failed" if failed else "over", record.alert.at_ms)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(AlertRecord)


def encode_record(record: AlertRecord) -> bytes:
    """Return the record as a store keeps it."""
    return _encoder.encode(record)


def decode_record(stored: bytes) -> AlertRecord:
    return _decoder.decode(stored)


def following(record: AlertRecord) -> AlertRecord:
    """Return the record with the next version, as a write stores it."""
    return msgspec.structs.replace(record, version=record.version + 1)
