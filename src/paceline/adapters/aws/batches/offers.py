"""Offers of outgoing runs in ``work.fifo``: a program that reads SQS finds its work there.

A message says that a run may start; the claim by the run's id decides. If a message is sent twice within five
minutes, SQS delivers it once. A lost message is replaced by the next pass: nothing depends on a single one.
"""

from __future__ import annotations

from collections.abc import Collection

from paceline.adapters.aws.batches.claims import Claiming, LaneRead, ready_work
from paceline.adapters.aws.batches.lanes import LaneItem, lanes_of
from paceline.adapters.aws.batches.parts import BatchParts
from paceline.adapters.aws.batches.unwanted_runs import Wishes
from paceline.adapters.aws.client.tables import WORK_FIFO
from paceline.core.batches.claim import PASSES_MAX
from paceline.core.batches.provider import KnownPolicy
from paceline.core.batches.records.request import RecordRequest, attempt_values, fill_in
from paceline.errors import StoreUnavailable
from paceline.ports.queue_messages import Letter, WorkMessage, work_letter

OFFERS_MAX = 100
"""Runs of one provider that are offered at once; its workers have to claim some before more are offered."""


def offer_work(store: BatchParts, providers: Collection[int], *, now_ms: int) -> set[int]:
    """Offer workers the runs that may start. Return those of the providers whose runs are for workers."""
    theirs = {number for number, lane in lanes_of(store.db, providers).items() if lane.outgoing}
    letters = [letter for number in sorted(theirs) for letter in _letters(store, number, now_ms=now_ms)]
    if letters:
        try:
            store.queues.send(WORK_FIFO, letters)
        except StoreUnavailable:
            return theirs  # the store is unchanged, and the next pass offers them again
    return theirs


def offer_ready_work(store: BatchParts, *, now_ms: int) -> int:
    """Offer workers all runs that may start. Return the number of providers."""
    ready = ready_work(store, until_ms=now_ms)
    return len(offer_work(store, [number for number, _ in ready], now_ms=now_ms))


def _letters(store: BatchParts, number: int, *, now_ms: int) -> list[Letter]:
    """Return the messages of one provider, in order. Unwanted runs are removed first, as a claim would do."""
    claiming = Claiming(store, [number], now_ms=now_ms, lease_ms=0, kind="outgoing", only=None)
    for _ in range(PASSES_MAX):
        lanes, known = claiming.open_lanes(claiming.ready_lanes(limit=1))
        if not lanes:
            break
        look, wishes = _look(store, claiming, lanes[0], known[number], now_ms=now_ms)
        if claiming.is_unwanted(look, wishes):
            claiming.take_out(look)
        elif starts := claiming.decide(look, wishes).starts:
            name = store.facts.policies.names(store.db, [number])[number]
            return [_letter(look, due_ms, wishes, name) for due_ms in sorted(start.handle for start in starts)]
        else:
            claiming.open(look, wishes)  # starts no run, but writes when to look again
            break
    return []


def _look(
    store: BatchParts, claiming: Claiming, lane: LaneItem, known: KnownPolicy, *, now_ms: int
) -> tuple[LaneRead, Wishes]:
    look = claiming.look(lane, known, OFFERS_MAX)
    return look, store.facts.wishes(store.db, [run.run for run in look.runs if run.at_ms <= now_ms])


def _letter(look: LaneRead, due_ms: int, wishes: Wishes, provider: str) -> Letter:
    run = next(run for run in look.runs if run.due_ms == due_ms)
    record, day = wishes.records[run.run], wishes.day(run.run)
    values = attempt_values(day.batch, record["name"], day.date, due_ms=due_ms, attempt=run.attempt + 1)
    request = fill_in(RecordRequest(record["endpoint"], record.get("body")), record.get("options"), values)
    work = WorkMessage(
        id=record["name"],
        provider=provider,
        endpoint=request.endpoint,
        body=request.body,
        run=values.run,
        due=values.due,
        attempt=run.attempt + 1,
    )
    return work_letter(work)
