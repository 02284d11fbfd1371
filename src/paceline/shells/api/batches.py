"""Batches: put, read, pause, resume; and the plan of a day."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

from paceline.core.batch import Batch
from paceline.errors import FieldProblem, InvalidInput, RevisionMismatch
from paceline.ports import BatchPut
from paceline.shells.api.answers import Answer, Header, empty_answer, json_answer
from paceline.shells.api.documents import PlanAnswer, PlanBody
from paceline.shells.api.etags import NO_GUARD, etag_of, expected_revision, guard_of, matches
from paceline.shells.api.monitors import TRIES_MAX
from paceline.shells.api.pages import Page, make_cursor, page_query, position_of, query
from paceline.shells.api.parts import Call, Parts
from paceline.steps import batches
from paceline.steps.days import check_date
from paceline.steps.plan import plan_day
from paceline.steps.preview import preview
from paceline.steps.report import batch_view

_TRUTH = {"true": True, "false": False}


async def put_batch(call: Call) -> Answer:
    parts, batch_id = call.parts, call.params["batch"]
    put = await parts.write(lambda: _put_now(call, batch_id))
    parts.hooks.wake()
    assert put.batch is not None
    if put.disposition != "created":
        return _shown(parts, 200, put.batch)
    return _shown(parts, 201, put.batch, (b"location", f"/v1/batches/{quote(batch_id, safe='')}".encode()))


async def show_batch(call: Call) -> Answer:
    batch = batches.get_batch(call.parts.store, call.params["batch"])
    seen = guard_of(call.headers).if_none_match
    if seen is not None and matches(seen, batch, weak=True):
        return empty_answer(304, (b"etag", etag_of(batch).encode()))
    return _shown(call.parts, 200, batch)


async def list_batches(call: Call) -> Answer:
    parts = call.parts
    asked = page_query(call.query_string, limit_max=parts.system.settings.page_max)
    after = str(position_of(asked.cursor, "batches", ""))
    found = parts.store.batches(after=after, limit=asked.limit + 1)
    cursor = make_cursor("batches", found[asked.limit - 1].id) if len(found) > asked.limit else None
    return json_answer(200, Page([batch_view(one, now_ms=parts.now_ms()) for one in found[: asked.limit]], cursor))


async def pause_batch(call: Call) -> Answer:
    return await _set_paused(call, paused=True)


async def resume_batch(call: Call) -> Answer:
    return await _set_paused(call, paused=False)


async def plan_batch(call: Call) -> Answer:
    """A plan of a million runs takes a while, page by page; other writes come in between."""
    body: PlanBody = call.body
    parts = call.parts
    batch = batches.get_batch(parts.store, call.params["batch"])
    date = check_date(body.date)
    if _dry_run(call.query_string):
        return json_answer(200, await asyncio.to_thread(preview, parts.store, batch, date, now_ms=parts.now_ms()))
    report = await asyncio.to_thread(plan_day, parts.store, batch, date, now_ms=parts.now_ms())
    parts.hooks.wake()
    return json_answer(200, PlanAnswer(report.enqueued, report.already, report.skipped))


def _put_now(call: Call, batch_id: str) -> BatchPut:
    """In the writing thread. The guard is judged on what is there now, and written only onto that."""
    parts, guard = call.parts, guard_of(call.headers)
    for _ in range(TRIES_MAX):
        now = parts.store.batch(batch_id) if guard is not NO_GUARD else None
        expected = expected_revision(guard, now, batch_id, word="batch")
        try:
            return batches.put_batch(
                parts.store, batch_id, call.body, expected_revision=expected, now_ms=parts.now_ms()
            )
        except RevisionMismatch:
            continue
    raise RevisionMismatch(f"Batch {batch_id!r} is being changed by others all the time. Try again.")


async def _set_paused(call: Call, *, paused: bool) -> Answer:
    parts, batch_id = call.parts, call.params["batch"]
    put = await parts.write(
        lambda: batches.set_batch_paused(parts.store, batch_id, paused=paused, now_ms=parts.now_ms())
    )
    parts.hooks.wake()
    assert put.batch is not None
    return _shown(parts, 200, put.batch)


def _dry_run(query_string: bytes) -> bool:
    asked = query(query_string, "dry_run").get("dry_run", "false")
    if asked not in _TRUTH:
        raise InvalidInput.of(FieldProblem("/query/dry_run", "true or false"))
    return _TRUTH[asked]


def _shown(parts: Parts, status: int, batch: Batch, *headers: Header) -> Answer:
    return json_answer(status, batch_view(batch, now_ms=parts.now_ms()), (b"etag", etag_of(batch).encode()), *headers)
