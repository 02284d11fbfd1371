"""Outcomes of runs, and the states a run can be in.

waiting ──► out ──► ok | failed | dead | unknown        terminal: recorded once, never changed
  ▲  ▲       │
  │  │       ├──► retry ──► out                         the same run, the next attempt, its place kept
  │  │       └──► out                                   the lease ran out: claimed again, fenced
  │  └ parked     behind an earlier run of its monitor
  └─── later      a missed run, caught up at its own moment;  held: its owner is disabled
"""

from __future__ import annotations

from typing import Any, Literal, assert_never

import msgspec

TerminalState = Literal["ok", "failed", "dead", "unknown"]
OpenState = Literal["later", "parked", "held", "retry", "out"]
RunState = Literal["waiting", "later", "parked", "held", "retry", "out", "ok", "failed", "dead", "unknown"]

REASON_CHARS_MAX = 500
DETAIL_BYTES_MAX = 16_384


class Done(msgspec.Struct, frozen=True, gc=False):
    """The run was carried out; ``ok`` says whether its result was as expected."""

    ok: bool
    reason: str = ""
    latency_ms: float | None = None
    code: int | None = None
    """Status of the target itself, such as an HTTP status code."""
    detail: dict[str, Any] = {}


class Retry(msgspec.Struct, frozen=True):
    """Not carried out yet: the same run comes again, not before ``not_before_ms``."""

    reason: str
    not_before_ms: int


class Dead(msgspec.Struct, frozen=True):
    """The run was given up. ``edited``: because of an edit, which says nothing about the target."""

    reason: str
    edited: bool = False


class Unknown(msgspec.Struct, frozen=True):
    """The run may have been carried out or not, and repeating it could do harm."""

    reason: str


Outcome = Done | Retry | Dead | Unknown


def terminal_state(outcome: Done | Dead | Unknown) -> TerminalState:
    match outcome:
        case Done():
            return "ok" if outcome.ok else "failed"
        case Dead():
            return "dead"
        case Unknown():
            return "unknown"
        case _:
            assert_never(outcome)
