"""The edge towards RIPE Atlas: one question at a time, and every answer a value, also that there was none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from paceline.core.jobs.atlas import Answer
from paceline.core.jobs.atlas_replies import Credits, Delivered, KeyCheck, Listed, Stopped, Unanswered
from paceline.core.jobs.measurement import Measurement


class Atlas(Protocol):
    """RIPE Atlas as one thread calls it, one call at a time, each within its deadline. Other threads may ``interrupt``.

    ``key`` is the secret itself. It is in no answer, reason or error, also where RIPE repeats it.
    """

    def create(self, key: str, measurement: Measurement, body: bytes) -> Answer:
        """Sends it once, never twice. ``body`` is the measurement with its marks.

        Refused is certain: nothing was created, or nothing even left this machine. All else is Lost.
        """

    def find_by_marker(self, key: str, tag: str) -> tuple[Listed, ...] | Unanswered:
        """Returns all of the key's account with this tag, in order of id. Empty is certain only after RIPE's lag."""

    def running_by_marker(self, key: str, tag: str) -> tuple[Listed, ...] | Unanswered:
        """Returns those with this tag that run or are scheduled."""

    def statuses(self, key: str, ids: Sequence[int]) -> dict[int, Listed] | Unanswered:
        """Returns statuses by id. One is missing if RIPE does not list it yet, has none, or hides it from this key."""

    def in_flight(self, key: str) -> int | Unanswered:
        """Returns how many measurements of the account RIPE lists as running."""

    def credits(self, key: str) -> Credits | Unanswered: ...
    def stop(self, key: str, measurement_id: int) -> Stopped | Unanswered:
        """Doing it twice does no harm. Refused with the scope ``request``: there is none of this id."""

    def results(
        self, key: str, measurement_id: int, take: Callable[[bytes], None], *, bytes_max: int
    ) -> Delivered | Unanswered:
        """Hands each result to ``take`` as it comes, one JSON object a line, up to ``bytes_max`` in all.

        If it ends Unanswered, what was taken is a beginning: the next time starts over. What ``take`` raises is raised.
        """

    def probes(self, ids: Sequence[int]) -> list[dict[str, Any]] | Unanswered:
        """RIPE's own documents of these probes, 500 at most; those that it does not know are left out. Needs no key."""

    def participants(self, key: str, measurement_id: int) -> list[int] | Unanswered:
        """The probes that RIPE has given a measurement. Without a key only of one that is public."""

    def check_key(self, key: str) -> KeyCheck | Unanswered:
        """Tries what a pool needs, without effect: reads, an order without content, a stop of no measurement.

        Unanswered: RIPE gave no verdict, try again.
        """

    def interrupt(self) -> None:
        """Ends the call under way within a second, as Lost, and every later one at once. From any thread."""

    def close(self) -> None: ...
