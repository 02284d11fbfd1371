"""Delivery of alerts: webhooks through libcurl, all other channels through apprise, both behind the guard."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paceline.adapters.providers.apprise_notes import AppriseNotes
from paceline.adapters.providers.calls import HttpCaller
from paceline.adapters.providers.guard import Network
from paceline.core.alerts.message import AppriseNote
from paceline.core.batches.calls import Call, CallResult
from paceline.ports import Clock

LOOK_MS = 250
"""Interval at which the deadlines of notes in flight are checked."""


class HttpMessenger:
    """Fills ``ports.Messenger``. ``own`` are the endpoints of the API, which no message may reach."""

    def __init__(
        self,
        *,
        allow: Sequence[Network],
        clock: Clock,
        own: Sequence[tuple[str, int]] = (),
        ca_file: Path | None = None,
    ) -> None:
        self._caller = HttpCaller(allow=allow, clock=clock, own=own, ca_file=ca_file)
        self._notes = AppriseNotes(allow=allow, own=own, clock=clock, ended=self._caller.wake)

    @property
    def in_flight(self) -> int:
        return self._caller.in_flight + self._notes.in_flight

    def start(self, orders: Sequence[Call | AppriseNote]) -> None:
        self._caller.start([one for one in orders if isinstance(one, Call)])
        self._notes.start([one for one in orders if isinstance(one, AppriseNote)])

    def finished(self, *, wait_ms: int) -> list[CallResult]:
        ended = self._notes.finished()
        wait_ms = 0 if ended else min(wait_ms, LOOK_MS) if self._notes.in_flight else wait_ms
        return [*ended, *self._caller.finished(wait_ms=wait_ms), *self._notes.finished()]

    def wake(self) -> None:
        self._caller.wake()

    def close(self) -> None:
        self._notes.close()
        self._caller.close()
