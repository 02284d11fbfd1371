"""Delivers a call: decides which failures are tried again, when, and whether the request may have been done.

Written as a plan, so that both transports do the same. The rule: a request that may have arrived is sent again only if
doing it twice has the same effect as once. A request that surely did not arrive may always be sent again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from paceline_client.answers import Reply
from paceline_client.calls import Call, Plan, Send, Sleep
from paceline_client.problems import ClientError, NoAnswer, Problem, problem_of

T = TypeVar("T")
TRIES_DEFAULT = 4
_UNSURE = frozenset({502, 503, 504})
"""A proxy or a store gave up: the request may or may not have been done."""
_REFUSED = 429
"""Refused before anything was done."""


@dataclass(frozen=True, slots=True)
class Retries:
    """Limits of retries.

    ``tries_max`` includes the first try. Pauses are random up to a bound that doubles from ``base_s`` to ``cap_s``.
    """

    tries_max: int = TRIES_DEFAULT
    base_s: float = 0.25
    cap_s: float = 8.0
    retry_after_s_max: float = 60.0
    """If an answer asks to wait longer than this, it is raised."""


def deliver(call: Call[T], retries: Retries, chance: Callable[[], float] = random.random) -> Plan[T]:
    """Sends the call until it is answered, refused, or tried often enough; returns the result of its reader."""
    unsure, tried = False, 0
    while True:
        got: Reply | NoAnswer = yield Send(call)
        tried += 1
        if isinstance(got, Reply) and got.status < 400:
            return call.answer.read(got)
        error = got if isinstance(got, NoAnswer) else problem_of(got.status, got.headers, got.body)
        if unsure and call.method == "DELETE" and isinstance(got, Reply) and got.status == 404:
            return call.answer.read(got)  # an earlier try has removed it
        unsure = unsure or error.may_have_counted or (isinstance(error, Problem) and error.status in _UNSURE)
        error.may_have_counted = unsure
        pause_s = _pause_s(call, error, tried, retries, chance)
        if pause_s is None:
            raise error
        yield Sleep(pause_s)


def _pause_s(
    call: Call[T], error: ClientError, tried: int, retries: Retries, chance: Callable[[], float]
) -> float | None:
    """Returns how long to wait before the next try; None if there is none."""
    if tried >= retries.tries_max or not _may_try_again(call, error):
        return None
    pause_s = chance() * float(min(retries.cap_s, retries.base_s * 2**tried))
    asked_s = error.retry_after_s if isinstance(error, Problem) else None
    if asked_s is None:
        return pause_s
    return None if asked_s > retries.retry_after_s_max else asked_s + min(pause_s, retries.base_s)


def _may_try_again(call: Call[T], error: ClientError) -> bool:
    if not isinstance(error, Problem):
        return call.may_repeat or not error.may_have_counted
    if error.status == _REFUSED:
        return call.lines is None or call.lines.again
    return error.status in _UNSURE and call.may_repeat
