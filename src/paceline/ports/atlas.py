"""The edge towards RIPE Atlas: one question at a time, and every answer a value, also that there was none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from paceline.core.atlas import Answer, Lost, Refused
from paceline.core.measurement import Measurement

Unanswered = Refused | Lost
"""RIPE said no, and whom that concerns; or no answer came that can be read, and the question can be asked again."""


class Listed(NamedTuple):
    """A measurement as RIPE's lists show it, some seconds late."""

    id: int
    status: int
    description: str = ""
    tags: tuple[str, ...] = ()
    stop_s: int | None = None
    """When it ended or is to end, in seconds since 1970."""
    scheduled: int | None = None
    """How many probes were given the work; None or 0 before it has begun."""
    credits_per_result: int | None = None
    """RIPE's own price. Whether a one-off's has the factor 2 in it is not known."""
    results_per_day: int | None = None


class Credits(NamedTuple):
    """RIPE books in batches, hours late: what it says was spent is the least that was."""

    balance: int
    spent_day: int
    results_day: int
    limit_day: int | None = None


class Stopped(NamedTuple):
    """RIPE took the order to stop."""


class Delivered(NamedTuple):
    """How many results there were; ``whole`` is False if there are more than were asked for."""

    results: int
    bytes: int
    whole: bool


class KeyCheck(NamedTuple):
    """``problems`` names what the key lacks, and is empty if it can be used. ``words`` are RIPE's own.

    ``unverified`` names what it needs and could not be tried: RIPE shows it only to keys that may list keys.
    """

    problems: tuple[str, ...]
    words: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()


class Atlas(Protocol):
    """One thread drives it, one call at a time, each within its deadline; ``interrupt`` is for the others.

    ``key`` is the secret itself. It is in no answer, reason or error, also where RIPE repeats it.
    """

    def create(self, key: str, measurement: Measurement, body: bytes) -> Answer:
        """Sends it once, never twice. ``body`` is the measurement with its marks.

        Refused is certain: nothing was created, or nothing even left this machine. All else is Lost.
        """

    def find_by_marker(self, key: str, tag: str) -> tuple[Listed, ...] | Unanswered:
        """All that the key's account has with this tag, in order of id. Empty is certain only after RIPE's lag."""

    def running_by_marker(self, key: str, tag: str) -> tuple[Listed, ...] | Unanswered:
        """Those of them that run or are to run."""

    def statuses(self, key: str, ids: Sequence[int]) -> dict[int, Listed] | Unanswered:
        """By id. One that is missing is not in RIPE's list yet, is not there, or is not for this key to see."""

    def in_flight(self, key: str) -> int | Unanswered:
        """How many measurements of the account RIPE's list counts as running."""

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
