"""Reruns of a day's ended runs, made once however often somebody asks; core.batches.reruns has the rules."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, cast

from paceline.core.batches import reruns
from paceline.core.batches.batch import Batch, Day
from paceline.core.batches.calls import CallState
from paceline.core.batches.day_plan import PAGE_RUNS, plan_window
from paceline.core.batches.provider import policy_of
from paceline.core.batches.redrive import redrive_gap_ms
from paceline.core.batches.run_keys import RECORD_MASK
from paceline.core.batches.values import CallRun, DeadChoice, Placements
from paceline.errors import FieldProblem, InvalidInput, LimitReached, NotFound
from paceline.ports import BatchStore

PAGE = 1_000
RECORDS_MAX = 10_000


class Rerun(NamedTuple):
    """Result of a rerun.

    ``enqueued``: by this call. ``rerun``: the number of the round; 0 if nothing was to run again.
    """

    enqueued: int
    rerun: int


class _Rounds(NamedTuple):
    """The day and its reruns up to now, oldest first, and the number of the round that this rerun adds to."""

    ended: list[Day]
    number: int


def rerun(
    store: BatchStore,
    batch: Batch,
    date: str,
    *,
    state: str | None = None,
    records: Sequence[str] | None = None,
    now_ms: int,
) -> Rerun:
    """Run records again whose newest run is in a state, or named records; runs that have not ended are left alone."""
    if (state is None) == (records is None):
        raise InvalidInput.of(FieldProblem("", 'name either a "state" or "records"'))
    rounds = _rounds(store, batch, reruns.split_round(date)[0])
    if state is not None:
        chosen = _in_state(store, rounds.ended, _ended_state(state))
    else:
        chosen = _of_records(store, batch, rounds.ended, records or ())
    again = list(_again(store, batch, chosen))
    if not again:
        return Rerun(0, 0)
    return Rerun(_enqueue(store, batch, rounds, again, now_ms=now_ms), rounds.number)


def _rounds(store: BatchStore, batch: Batch, date: str) -> _Rounds:
    there: list[Day] = []
    for number in range(reruns.RERUNS_MAX + 1):
        day = store.day(batch, reruns.round_name(date, number))
        if day is None:
            break
        there.append(day)
    if not there:
        raise NotFound(f"Batch {batch.id!r} has no day {date}. It is there once it is planned.")
    if len(there) > 1 and _is_open(store, there[-1]):
        return _Rounds(there[:-1], len(there) - 1)
    if len(there) > reruns.RERUNS_MAX:
        raise LimitReached(f"Day {date} of batch {batch.id!r} was rerun {reruns.RERUNS_MAX} times, which is the most.")
    return _Rounds(there, len(there))


def _is_open(store: BatchStore, day: Day) -> bool:
    """Return whether the round has open runs or is being filled: the first ones made may have ended by then."""
    return day.state == "planning" or any(count.state not in reruns.ENDED_STATES for count in store.day_counts(day))


def _ended_state(text: str) -> CallState:
    if text not in reruns.ENDED_STATES:
        raise InvalidInput.of(FieldProblem("/state", f"one of {', '.join(reruns.ENDED_STATES)}"))
    return cast("CallState", text)


def _in_state(store: BatchStore, rounds: Sequence[Day], state: CallState) -> Iterator[CallRun]:
    """Yield the newest run of each record, if it is in the state."""
    for index, day in enumerate(rounds):
        after: int | None = 0
        while after is not None:
            page, after = store.day_runs(day, state=state, provider=None, after=after, limit=PAGE)
            newest = {run.handle & RECORD_MASK for run in page}
            for later in rounds[index + 1 :]:
                newest = store.unplanned(later, list(newest)) if newest else newest
            yield from (run for run in page if run.handle & RECORD_MASK in newest)


def _of_records(store: BatchStore, batch: Batch, rounds: Sequence[Day], names: Sequence[str]) -> Iterator[CallRun]:
    if len(names) > RECORDS_MAX:
        raise InvalidInput.of(FieldProblem("/records", f"at most {RECORDS_MAX} records"))
    found = {name: _newest(store, batch, rounds, name) for name in dict.fromkeys(names)}
    if missing := [index for index, name in enumerate(names) if found[name] is None]:
        detail = f"it has no run on {rounds[0].date}"
        raise InvalidInput.of(*(FieldProblem(f"/records/{index}", detail) for index in missing))
    yield from (run for run in found.values() if run is not None and run.state in reruns.ENDED_STATES)


def _newest(store: BatchStore, batch: Batch, rounds: Sequence[Day], name: str) -> CallRun | None:
    runs = (store.find_call_run(batch.id, name, day.date) for day in reversed(rounds))
    return next((run for run in runs if run is not None), None)


def _again(store: BatchStore, batch: Batch, runs: Iterable[CallRun]) -> Iterator[tuple[reruns.Again, int | None]]:
    """Yield each run to make, with the handle of its run if that is a dead letter.

    It runs at the provider where it ran; if that was removed, at the one that its record names; without one it is left
    out. The runs themselves are not kept: a day may have a million.
    """
    numbers: dict[str, int | None] = {}
    for run in runs:
        if run.provider not in numbers:
            there = store.provider(run.provider)
            numbers[run.provider] = there.number if there else None
        number = numbers[run.provider]
        if number is None and (record := store.record(batch, run.record)) is not None:
            there = store.provider(record.provider)
            number = there.number if there else None
        if number is not None:
            yield reruns.Again(number, run.due_ms, run.handle & RECORD_MASK), run.handle if run.dead else None


def _enqueue(
    store: BatchStore, batch: Batch, rounds: _Rounds, again: Sequence[tuple[reruns.Again, int | None]], *, now_ms: int
) -> int:
    """Make the runs of the round, which is open meanwhile. Return how many.

    If it is cut short, the next call makes the rest, and each run is made once.
    """
    date = rounds.ended[0].date
    counts = Counter(one.provider for one, _ in again)
    room = plan_window(batch.spec, dt.date.fromisoformat(date), now_ms=now_ms)
    length_ms = rounds.ended[0].end_ms - rounds.ended[0].start_ms
    room_ms = max(room.end_ms - now_ms, length_ms // 4)
    gaps_ms = [_rate_gap_ms(store, provider) for provider in counts]
    window = reruns.rerun_window(list(counts.values()), gaps_ms, room_ms=room_ms, now_ms=now_ms)
    end_ms = max(window.end_ms, now_ms + length_ms)  # as long as the day, or a run would be late too soon
    day = store.open_day(batch, reruns.round_name(date, rounds.number), start_ms=now_ms, end_ms=end_ms)
    placed = reruns.place_again([one for one, _ in again], window)
    enqueued = 0
    for first in range(0, len(placed.records), PAGE_RUNS):
        page = Placements(*(column[first : first + PAGE_RUNS] for column in placed))
        enqueued += store.plan_late_records(day, page).enqueued
    store.close_day(day)
    dead = [handle for _, handle in again if handle is not None]
    for first in range(0, len(dead), PAGE):  # the new run takes their place
        store.discard(DeadChoice(handles=tuple(dead[first : first + PAGE])), limit=PAGE)
    return enqueued


def _rate_gap_ms(store: BatchStore, number: int) -> int:
    provider = store.provider(number)
    return redrive_gap_ms(0, policy_of(provider.spec)) if provider is not None else 1
