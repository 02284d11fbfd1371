"""Chain of reasons why a run waits, or why it went as it did: what each link says, and who can change it."""

from __future__ import annotations

from typing import Literal, NamedTuple

LinkName = Literal[
    "due",
    "order",
    "place",
    "rate",
    "pause",
    "breaker",
    "retry_after",
    "turn",
    "budget",
    "account",
    "target",
    "provider",
    "lease",
]
NOBODY = "nobody: it passes by itself"
OVER = "nobody: it is over"
START_DAEMON = "an operator: start one with `paceline up` or `paceline worker`"


class Link(NamedTuple):
    """One reason. ``until_ms`` None: it is not known, or lasts until somebody does what ``change`` says.

    A link whose ``until_ms`` has passed is over: it says what the run waited for before.
    """

    link: LinkName
    text: str
    since_ms: int | None = None
    until_ms: int | None = None
    change: str = NOBODY


class Eta(NamedTuple):
    """Earliest and latest start of a waiting run. Equal: exactly then."""

    from_ms: int
    to_ms: int


class Why(NamedTuple):
    """A run's state, the reasons in the order in which they are checked, and when it starts if that is known.

    ``run``: its id; None: there is no run, and the reasons say why.
    """

    run: str | None
    state: str
    chain: tuple[Link, ...]
    eta: Eta | None = None


def holds(link: Link, *, now_ms: int) -> bool:
    """Return whether the reason still holds."""
    return link.until_ms is None or link.until_ms > now_ms


def counted(amount: int, most: int, one: str, many: str) -> str:
    """Return "1 earlier call", "12 earlier calls", or "more than 1,000 earlier calls"."""
    if amount > most:
        return f"more than {most:,} {many}"
    return f"{amount:,} {one if amount == 1 else many}"


def took(ms: int) -> str:
    """Return a length of time for people: "0.8 s", "12 s", "9 min", "3 h"."""
    seconds = ms / 1_000
    if seconds < 10:
        return f"{seconds:.1f} s"
    for size, word in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {word}"
    return f"{seconds:.0f} s"
