"""Edge towards RIPE Atlas: one question at a time, and every answer a value, also the lack of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from paceline.core.jobs.atlas import Answer
from paceline.core.jobs.atlas_replies import Credits, Delivered, KeyCheck, ListedMeasurement, Stopped, Unanswered
from paceline.core.jobs.measurement import Measurement


class Atlas(Protocol):
    """RIPE Atlas as one thread calls it, one call at a time, each within its deadline. Other threads may ``interrupt``.

    ``key`` is the secret itself. It is in no answer, reason or error, even if RIPE repeats it.
    """

    def create(self, key: str, measurement: Measurement, body: bytes) -> Answer:
        """Send the measurement once, never twice. ``body`` is the measurement with its marker.

        Refused is certain: nothing was created, or nothing even left this machine. All else is Lost.
        """

    def find_by_marker(self, key: str, tag: str) -> tuple[ListedMeasurement, ...] | Unanswered:
        """Return all measurements of the key's account with this tag, in order of id.

        An empty answer is certain only after RIPE's lag.
        """

    def running_by_marker(self, key: str, tag: str) -> tuple[ListedMeasurement, ...] | Unanswered:
        """Return the measurements with this tag that run or are scheduled."""

    def statuses(self, key: str, ids: Sequence[int]) -> dict[int, ListedMeasurement] | Unanswered:
        """Return statuses by id. One is missing if RIPE does not list it yet, has none, or hides it from this key."""

    def in_flight(self, key: str) -> int | Unanswered:
        """Return how many measurements of the account RIPE lists as running."""

    def credits(self, key: str) -> Credits | Unanswered: ...
    def stop(self, key: str, measurement_id: int) -> Stopped | Unanswered:
        """Stop a measurement.

        Repeating it does no harm. Refused with the scope ``request``: there is none of this id.
        """

    def results(
        self, key: str, measurement_id: int, take: Callable[[bytes], None], *, bytes_max: int
    ) -> Delivered | Unanswered:
        """Pass each result to ``take`` as it comes, one JSON object a line, up to ``bytes_max`` in all.

        If it ends Unanswered, the results passed so far are a beginning: the next call starts over. Exceptions of
        ``take`` are raised.
        """

    def probes(self, ids: Sequence[int]) -> list[dict[str, Any]] | Unanswered:
        """Return RIPE's own documents of these probes, at most 500; unknown probes are left out. Needs no key."""

    def participants(self, key: str, measurement_id: int) -> list[int] | Unanswered:
        """Return the probes that RIPE has assigned to a measurement. Without a key only of a public one."""

    def check_key(self, key: str) -> KeyCheck | Unanswered:
        """Try what a pool needs, without effect: reads, an order without content, a stop of no measurement.

        Unanswered: RIPE gave no verdict, try again.
        """

    def interrupt(self) -> None:
        """End the current call within a second, as Lost, and every later one at once. From any thread."""

    def close(self) -> None: ...
