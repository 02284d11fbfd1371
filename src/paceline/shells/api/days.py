"""A batch's days: their reports, their runs, and the export of both."""

from __future__ import annotations

import asyncio
from typing import cast, get_args

from paceline.core.batch import Day
from paceline.errors import FieldProblem, InvalidInput
from paceline.shells.api.answers import Answer, Stream, json_answer, stream_answer
from paceline.shells.api.pages import Page, make_cursor, page_query, position_of, query
from paceline.shells.api.parts import Call
from paceline.steps import batches, days, export

_MEDIA = {"ndjson": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}


async def list_days(call: Call) -> Answer:
    store = call.parts.store
    batch = batches.get_batch(store, call.params["batch"])
    asked = page_query(call.query_string, limit_max=call.parts.system.settings.page_max)
    scope = f"days {batch.number}"
    before = str(position_of(asked.cursor, scope, "")) or None
    found = store.days(batch, before=before, limit=asked.limit + 1)
    cursor = make_cursor(scope, found[asked.limit - 1].date) if len(found) > asked.limit else None
    return json_answer(200, Page([days.day_summary(day) for day in found[: asked.limit]], cursor))


async def show_day(call: Call) -> Answer:
    return json_answer(200, await asyncio.to_thread(days.day_report, call.parts.store, _day(call)))


async def list_day_runs(call: Call) -> Answer:
    day = _day(call)
    asked = page_query(call.query_string, "state", "provider", limit_max=call.parts.system.settings.page_max)
    state, provider = asked.given.get("state"), asked.given.get("provider")
    scope = f"day runs {day.number} {state} {provider}"
    views, following = await asyncio.to_thread(
        days.day_runs,
        call.parts.store,
        day,
        state=state,
        provider=provider,
        after=int(position_of(asked.cursor, scope, 0)),
        limit=asked.limit,
    )
    return json_answer(200, Page(views, None if following is None else make_cursor(scope, following)))


async def export_day(call: Call) -> Stream:
    day = _day(call)
    asked = query(call.query_string, "format", "state", "provider")
    form = asked.get("format", "ndjson")
    if form not in get_args(export.Format):
        raise InvalidInput.of(FieldProblem("/query/format", "ndjson or csv"))
    pages = await asyncio.to_thread(
        export.export_day,
        call.parts.store,
        day,
        form=cast("export.Format", form),
        state=asked.get("state"),
        provider=asked.get("provider"),
    )
    name = f'attachment; filename="{day.batch}-{day.date}.{form}"'
    return stream_answer(pages, _MEDIA[form], (b"content-disposition", name.encode()))


def _day(call: Call) -> Day:
    store = call.parts.store
    return days.get_day(store, batches.get_batch(store, call.params["batch"]), call.params["date"])
