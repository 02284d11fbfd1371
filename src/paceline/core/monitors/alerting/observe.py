"""Meaning of an outcome for the target of its monitor."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, assert_never

from paceline.core.monitors.alerting.record import Observed
from paceline.core.monitors.checks import Check, HttpCheck, TlsCheck
from paceline.core.monitors.outcome import Dead, Done, Outcome, Retry, Unknown
from paceline.core.monitors.values import Settlement


def verdict(outcome: Outcome) -> bool | None:
    """Return whether the target did well; None: the outcome does not say.

    A run that was given up after its attempts counts as a failure: somebody should look. A run that is unknown, or that
    was ended by an edit, says nothing.
    """
    match outcome:
        case Done():
            return outcome.ok
        case Dead():
            return None if outcome.edited else False
        case Retry() | Unknown():
            return None
        case _:
            assert_never(outcome)


def all_but_good(settlements: Iterable[Settlement]) -> list[Settlement]:
    """Return the settlements that are not good outcomes: nearly always none."""
    return [item for item in settlements if not (isinstance(item.outcome, Done) and item.outcome.ok)]


def observe(item: Settlement, *, counter: int, check: Check) -> Observed | None:
    """Return the observation that follows from the outcome; None: it says nothing about the target."""
    ok = verdict(item.outcome)
    if ok is None:
        return None
    seen = Observed(counter, ok, item.outcome.reason, item.ended_ms)
    if ok or not isinstance(item.outcome, Done):
        return seen
    days_left, not_after = _certificate(item.outcome.detail)
    wanted = days_wanted(check)
    if wanted is None or days_left is None or days_left >= wanted:
        return seen
    return seen._replace(certificate=not_after, days_left=days_left)


def days_wanted(check: Check) -> int | None:
    """Return for how many days the check wants the certificate to last; None: the check does not look at it."""
    match check:
        case TlsCheck():
            return check.days_wanted
        case HttpCheck():
            return check.expect.days_left
        case _:
            return None


def _certificate(detail: dict[str, Any]) -> tuple[int | None, str]:
    days_left, not_after = detail.get("days_left"), detail.get("not_after")
    return (days_left, not_after) if isinstance(days_left, int) and isinstance(not_after, str) else (None, "")
