"""Health records as a store keeps them: JSON text, with the keys by which they are found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from paceline.core.alerts.alert import Alert
from paceline.core.monitors.alerting.record import NO_RECORD, HealthRecord

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(HealthRecord)


class HealthChange(NamedTuple):
    """Replacement of a health record, with the alerts that are stored with it. ``before`` is the record that was seen.

    ``open_run``: the handle of the monitor's first open run, if that is the cause; the change counts only while that
    run has not ended.
    """

    owner: str
    monitor: str
    generation: int
    before: HealthRecord
    after: HealthRecord
    alerts: tuple[Alert, ...] = ()
    open_run: int | None = None


def encode_health(record: HealthRecord) -> str | None:
    """Return the text of a record; None: there is nothing to remember."""
    return None if record == NO_RECORD else _encoder.encode(record).decode()


def decode_health(text: str | None) -> HealthRecord:
    return NO_RECORD if text is None else _decoder.decode(text)


def is_unchanged(change: HealthChange, records: Mapping[int, HealthRecord]) -> bool:
    """Return whether the monitor's record is still the one that was seen."""
    return records.get(change.generation, NO_RECORD) == change.before
