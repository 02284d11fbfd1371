"""Dead letters: listed, put back in order and paced, or discarded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from paceline.core.batches.values import CallRun, DeadChoice
from paceline.core.ids import parse_call_run_id
from paceline.errors import FieldProblem, InvalidInput
from paceline.ports import BatchStore, Store
from paceline.ports.queued import HasDeadQueues
from paceline.steps.monitors.react import react_to_all

PASS_RUNS = 1_000
PASSES_MAX = 10_000
RUNS_MAX = 10_000
MESSAGES_MAX = 1_000
"""Maximum number of messages of each dead queue in one act."""
GAP_MS = 1_000
"""Time between redriven dead letters of one provider; longer if its rate requires that."""


class DeadPage(NamedTuple):
    runs: list[CallRun]
    next_after: int | None


class Replay(NamedTuple):
    """Result of replaying dead queues. ``queues``: how many messages of each were redriven."""

    redriven: int
    dropped: int
    left: int
    queues: dict[str, int]


def choose(
    store: BatchStore,
    *,
    runs: Sequence[str] | None = None,
    provider: str | None = None,
    batch: str | None = None,
    date: str | None = None,
) -> DeadChoice:
    """Return a choice of dead letters.

    Something must be named: nobody redrives everything by leaving a field out.
    """
    if runs is None and provider is None and batch is None:
        raise InvalidInput.of(FieldProblem("", 'name "runs", a "provider", or a "batch" (with a "date")'))
    if date is not None and batch is None:
        raise InvalidInput.of(FieldProblem("/date", 'name the "batch" whose date is meant'))
    handles = _handles(store, runs) if runs is not None else None
    return DeadChoice(handles=handles, provider=provider, batch=batch, date=date)


def refuse_beside_queues(**named: object) -> None:
    """Raise InvalidInput if runs are chosen along with dead queues, whose messages are no runs."""
    if wrong := [name for name, value in named.items() if value is not None]:
        raise InvalidInput.of(*(FieldProblem(f"/{name}", 'not with "queues": leave it out') for name in wrong))


def list_dead(store: BatchStore, choice: DeadChoice, *, after: int, limit: int) -> DeadPage:
    return DeadPage(*store.dead(choice, after=after, limit=limit))


def redrive(store: BatchStore, choice: DeadChoice, *, now_ms: int, gap_ms: int = GAP_MS) -> int:
    """Redrive every chosen dead letter that has ended by now, once; a run that dies again meanwhile stays dead."""
    total = 0
    for _ in range(PASSES_MAX):
        done = store.redrive(choice, gap_ms=gap_ms, now_ms=now_ms, limit=PASS_RUNS)
        total += done
        if done < PASS_RUNS:
            break
    return total


def replay(store: Store, *, now_ms: int, messages_max: int = MESSAGES_MAX) -> Replay:
    """Send messages of dead queues again, each once. Changes are reacted to before their messages are deleted."""
    if not isinstance(store, HasDeadQueues):
        return Replay(0, 0, 0, {})
    done = store.replay_dead(now_ms=now_ms, limit=messages_max, react=lambda: react_to_all(store, now_ms=now_ms))
    return Replay(
        redriven=sum(one.redriven for one in done.values()),
        dropped=sum(one.dropped for one in done.values()),
        left=sum(one.left for one in done.values()),
        queues={name: one.redriven for name, one in done.items()},
    )


def discard(store: BatchStore, choice: DeadChoice) -> int:
    total = 0
    for _ in range(PASSES_MAX):
        done = store.discard(choice, limit=PASS_RUNS)
        total += done
        if done < PASS_RUNS:
            break
    return total


def _handles(store: BatchStore, runs: Sequence[str]) -> tuple[int, ...]:
    """Return the handles of the runs.

    Missing runs are passed over, so that a repeated request does no harm.
    """
    if len(runs) > RUNS_MAX:
        raise InvalidInput.of(FieldProblem("/runs", f"at most {RUNS_MAX} runs"))
    handles: list[int] = []
    problems: list[FieldProblem] = []
    for index, text in enumerate(runs):
        name = parse_call_run_id(text)
        if name is None:
            problems.append(FieldProblem(f"/runs/{index}", 'write a run as "batch/record@2026-11-15"'))
        elif (run := store.find_call_run(name.batch, name.record, name.date)) is not None:
            handles.append(run.handle)
    if problems:
        raise InvalidInput.of(*problems)
    return tuple(handles)
