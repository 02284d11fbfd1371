"""Alerts and their deliveries: an outbox that is found by time, and a list for each user.

Alerts come into the store in two ways: ``add_alerts``, and inside the transaction that writes the fact they tell of
(``adapters.sqlite.alerts.add`` and ``adapters.aws.alerts.adding`` are for that). ``core.alerts`` decides what is done
with a record; a store keeps it and finds it by ``core.alerts.record.place_of``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from paceline.core.alerts.alert import Alert
from paceline.core.alerts.record import AlertCounts, AlertRecord
from paceline.core.try_turns import DuePosition


class ListPlace(NamedTuple):
    """Place where a page of a user's alerts begins: after the alert of that time and id."""

    at_ms: int
    id: str


class AlertStore(Protocol):
    """Alerts of all users. Each method is one atomic act for each alert."""

    def add_alerts(self, alerts: Sequence[Alert]) -> list[bool]:
        """Store new alerts. False: there is one of that id, which stays as it is."""

    def due_alerts(self, *, now_ms: int, limit: int, after: DuePosition[str] | None = None) -> list[DuePosition[str]]:
        """Return positions of open alerts that are due at or before now, the longest due first: a hint.

        ``after``: only those behind this position; None: all. The cost does not depend on how many stand before it, and
        alerts are not read. An alert that has just been written may still stand at its old position: read it with
        ``alert_records``. ``write_alerts`` decides who wins.
        """

    def alert_records(self, alert_ids: Sequence[str]) -> list[AlertRecord]:
        """Return the alerts that exist of these, in no particular order."""

    def open_alerts_after(self, at_ms: int, *, limit: int) -> list[AlertRecord]:
        """Return open alerts that are due after that time, for a clock that was set back."""

    def write_alerts(self, records: Sequence[AlertRecord]) -> list[bool]:
        """Replace each record whose version is still the stored one. The stored version is then one higher."""

    def alert(self, alert_id: str) -> AlertRecord | None: ...
    def alerts(self, user: str, *, since_ms: int, before: ListPlace | None, limit: int) -> list[AlertRecord]:
        """Return the user's alerts, newest first, of equal times by falling id; none from before ``since_ms``."""

    def alert_counts(self) -> AlertCounts: ...
    def purge_alerts(self, *, at_before_ms: int, limit: int) -> int:
        """Delete alerts from before that time that are not open. Return how many, at most ``limit``."""
