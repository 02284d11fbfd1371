"""The service itself: is it alive, is it ready, what does it count; and what an admin sees of it all."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from paceline.errors import StoreUnavailable
from paceline.shells.api.answers import Answer, json_answer, text_answer
from paceline.shells.api.documents import Alive, LoopView, Ready
from paceline.shells.api.pages import Page, make_cursor, page_query, position_of
from paceline.shells.api.parts import Call, Parts
from paceline.shells.api.problems import NotReady
from paceline.shells.metrics import CONTENT_TYPE
from paceline.steps.report import scheduler_view, status_view

REFRESH_S_MAX = 0.4
"""With the wait for a trial write, /metrics answers within two seconds."""


async def healthz(call: Call) -> Answer:
    del call
    return json_answer(200, Alive())


async def readyz(call: Call) -> Answer:
    """Whether the store can be written and every loop turns; answered within two seconds, whatever hangs."""
    parts = call.parts
    await parts.readiness.check()
    loops = parts.hooks.loops()
    if stuck := [loop for loop in loops if not loop.turning]:
        names = ", ".join(f"{loop.name} ({loop.age_s:.0f} s since its last turn)" for loop in stuck)
        raise NotReady(f"Not turning: {names}. Look at the log; restart if it does not recover.")
    views = [LoopView(loop.name, loop.turning, round(loop.age_s, 3)) for loop in loops]
    return json_answer(200, Ready("ready", views))


async def metrics(call: Call) -> Answer:
    parts = call.parts
    try:
        # A trial write is paid for on AWS: there, one that succeeded counts for longer.
        await parts.readiness.check(counts_s=parts.system.keep_ms / 1_000)
        parts.hooks.metrics.set_store_up(1)
    except StoreUnavailable:
        parts.hooks.metrics.set_store_up(0)
    # A store that hangs must not keep the figures that there are from whoever asks.
    await parts.readiness.look(lambda: _refresh(parts), wait_s=REFRESH_S_MAX)
    return text_answer(200, parts.hooks.metrics.render(), CONTENT_TYPE)


async def status(call: Call) -> Answer:
    parts = call.parts
    return json_answer(200, await asyncio.to_thread(status_view, parts.store, now_ms=parts.now_ms()))


async def list_schedulers(call: Call) -> Answer:
    parts = call.parts
    query = page_query(call.query_string, limit_max=call.parts.system.settings.page_max)
    after = int(position_of(query.cursor, "schedulers", 0))
    rows = await asyncio.to_thread(
        parts.store.schedulers, after_generation=after, limit=query.limit + 1, now_ms=parts.now_ms()
    )
    page = rows[: query.limit]
    cursor = make_cursor("schedulers", page[-1].entry.generation) if len(rows) > query.limit else None
    return json_answer(200, Page([scheduler_view(row) for row in page], cursor))


def _refresh(parts: Parts) -> None:
    """Gauges are read when they are asked for; anybody may ask, so not more than once a second, on AWS a minute."""
    figures = parts.hooks.metrics
    if not figures.take_refresh(parts.now_ms(), every_ms=parts.system.keep_ms):
        return
    figures.set_loop_ages((loop.name, loop.age_s) for loop in parts.hooks.loops())
    with suppress(StoreUnavailable):
        figures.set_status(parts.store.status(), now_ms=parts.now_ms())
