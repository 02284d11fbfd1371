"""State changes of a measurement: begun, answered, cancelled, ended; and what an end adds to its job.

      submit          begin           Sent            ending
    ─────────► queued ─────► sending ─────► ongoing ─────────► done, failed, cancelled
               ▲  │ ▲           │ Unsure      ▲
          due  │  │ └───────────┤ NotSent     │ Sent
               │  ▼             ▼             │
              parked ◄─────── unknown ────────┘

``Rejected`` fails a measurement from ``sending`` or ``unknown``. A cancelled one ends at once if it is queued or
parked; otherwise it is to be stopped, and ends instead of going back to the queue.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple, assert_never

from paceline.core.jobs import values
from paceline.core.jobs.cost import Cost, daily_actual
from paceline.core.jobs.measurement import MeasurementState
from paceline.core.jobs.meters import NEVER_MS, Hold, Meter, Short, close
from paceline.core.jobs.names import ATTEMPTS_MAX

WAITING: frozenset[MeasurementState] = frozenset({"queued", "parked"})
OUT: frozenset[MeasurementState] = frozenset({"sending", "unknown"})
"""States in which a send is in progress, or its result is not known."""
RUNNING: frozenset[MeasurementState] = frozenset({"ongoing"})
ENDED: frozenset[MeasurementState] = frozenset({"done", "failed", "cancelled"})
LIVE: frozenset[MeasurementState] = frozenset({*WAITING, *OUT, "ongoing"})
CANCELLED = "cancelled"
LOST = "its sender stopped before it had an answer"
WOKEN_MAX = 1_000
"""Maximum number of parked measurements that go back into the queue in one look."""


class Runs(NamedTuple):
    """The measurement runs at RIPE under these ids; its slot is held."""

    atlas_ids: tuple[int, ...]


class IsUnknown(NamedTuple):
    """The measurement is looked up at ``next_ms``. All its holds stay."""

    reason: str
    next_ms: int
    lookups: int


class GoesBack(NamedTuple):
    """The measurement waits again, and its account is refunded in full."""

    state: Literal["queued", "parked"]
    reason: str
    next_ms: int | None


class EndsUnsent(NamedTuple):
    """The measurement ends and cost nothing: its holds are refunded in full, to its user and to its account."""

    state: values.EndState
    reason: str


Answered = Runs | IsUnknown | GoesBack | EndsUnsent


def after_answer(outcome: values.SendOutcome, *, lookups: int, stopping: bool) -> Answered:
    """Return the next state of a measurement that is out. ``lookups`` and ``stopping`` are the stored values."""
    match outcome:
        case values.Sent():
            return Runs(outcome.atlas_ids)
        case values.Unsure():
            return IsUnknown(outcome.reason, outcome.look_ms, max(lookups, outcome.lookups))
        case values.NotSent() if stopping:
            return EndsUnsent("cancelled", CANCELLED)
        case values.NotSent():
            return GoesBack("queued" if outcome.next_ms is None else "parked", outcome.reason, outcome.next_ms)
        case values.Rejected():
            return EndsUnsent("failed", outcome.reason)
        case _:
            assert_never(outcome)


def may_answer(state: str, *, is_attempt: bool) -> bool:
    """Return whether an answer counts: the measurement is out, at the attempt that is answered for (fencing)."""
    return is_attempt and state in OUT


def refuse_begin(
    *, attempt: int, reason: str, sending: int, sending_max: int, usable: bool
) -> values.Busy | EndsUnsent | Literal["unusable"] | None:
    """Return why a queued measurement is not sent now; None: it may be, if its account has room.

    ``usable``: account and key can still be used. ``attempt`` and ``reason`` are those of the last send.
    """
    if not usable:
        return "unusable"
    if sending >= sending_max:
        return values.Busy()
    if attempt >= ATTEMPTS_MAX:
        return EndsUnsent("failed", f"refused {ATTEMPTS_MAX} times; last: {reason}")
    return None


def short_of_balance(account: str, cost: Cost, free: int | None) -> Short | None:
    """Return the shortage of the account's credit balance at RIPE; None: there is none, or the balance is not known."""
    if free is None or cost.daily_credits <= free:
        return None
    left = max(free, 0)
    return Short(f"account/{account}/balance", cost.daily_credits, left, left, NEVER_MS)


def is_usable(*, enabled: bool, closed_until_ms: int, key_enabled: bool, quarantine: str, now_ms: int) -> bool:
    """Return whether an account can send with a key now: either may have changed since it was chosen."""
    return enabled and closed_until_ms <= now_ms and key_enabled and not quarantine


def is_given_up(state: str, intent_ms: int, *, intent_before_ms: int) -> bool:
    """Return whether a send without an answer becomes unknown: its sender died, or was held up for too long."""
    return state == "sending" and intent_ms < intent_before_ms


def cancel(state: MeasurementState) -> Literal["end", "stop"] | None:
    """Return what a cancel does: end an unsent measurement, stop one that is out or runs; None: it had ended."""
    if state in ENDED:
        return None
    return "end" if state in WAITING else "stop"


class Settled(NamedTuple):
    """``credits``: the user's charge. ``overrun``: the use beyond what was held, which nobody pays."""

    credits: int
    overrun: int


def settle(held: int, used: int) -> Settled:
    """Return how the user's hold for a measurement is closed."""
    closed = close(Hold("", {"day": held}, 0), {"day": used}, {"day": Meter("day", held, "day", held=held)}, now_ms=0)
    return Settled(closed.meters["day"].spent, closed.overrun.get("day", 0))


def account_actual(cost: Cost, *, credits_spent: int, results: int) -> tuple[int, int, int]:
    """Return the amounts that are settled on the account's meters: slots, results and credits of the day.

    All three are closed together, once RIPE no longer counts the measurement as running: until then it may still
    deliver the most.
    """
    day_credits, day_results = daily_actual(cost, credits_spent=credits_spent, results=results)
    return 0, day_results, day_credits


def spent_before(cost: Cost, *, settled: int, delivered: int) -> tuple[int, int]:
    """Return the credits and results that an ended measurement was settled on; the maximum if they were not counted."""
    return (cost.credits, cost.results) if settled >= cost.credits else (settled, delivered)


def job_sums(state: values.EndState, *, was: str, held: int, settled: int, definitions: int) -> dict[str, int]:
    """Return what an end adds to the counts and sums of its job."""
    sums = {f"{name}{one}": 0 for name in ("", "definitions_") for one in ENDED}
    sums |= {state: 1, f"definitions_{state}": definitions}
    sums |= {"open": -1, "waiting": -1 if was in WAITING else 0, "settled": settled, "refunded": held - settled}
    return sums


def wanted_states(states: Collection[MeasurementState]) -> frozenset[MeasurementState]:
    """Return the states that a list is asked for; an empty choice means all."""
    return frozenset(states) or LIVE | ENDED


def count_definitions(counts: Mapping[str, int], wanted: frozenset[MeasurementState]) -> tuple[int, bool]:
    """Return how many definitions are in these states, by the counts of a job or the sums of several jobs' counts.

    The second value is True if the counts cannot tell some states that have not ended apart; those must be counted in
    addition.
    """
    ended = sum(counts[f"definitions_{state}"] for state in ENDED & wanted)
    if wanted >= LIVE:
        return ended + counts["definitions"] - sum(counts[f"definitions_{state}"] for state in ENDED), False
    return ended, bool(wanted & LIVE)


def with_progress(
    known: values.AtlasMeasurement, reported: tuple[int, int] | None, scheduled: int | None
) -> values.AtlasMeasurement:
    """Return a definition with RIPE's newest status and counts; None: RIPE said nothing.

    Results do not go away, so a lower count is an older answer.
    """
    status, delivered = (known.status, known.delivered) if reported is None else reported
    scheduled = known.scheduled if scheduled is None else scheduled
    return values.AtlasMeasurement(known.atlas_id, status, max(known.delivered, delivered), scheduled)
