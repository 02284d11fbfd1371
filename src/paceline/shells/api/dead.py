"""Dead letters: runs that failed for good, or of which nobody knows; to be looked at, redriven or discarded."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from paceline.ports import DeadChoice
from paceline.shells.api.answers import Answer, json_answer
from paceline.shells.api.documents import DeadBody, Discarded, RedriveBody, Redriven, Replayed
from paceline.shells.api.pages import Page, make_cursor, page_query, position_of
from paceline.shells.api.parts import Call
from paceline.steps import redrive
from paceline.steps.days import call_run_view


async def list_dead(call: Call) -> Answer:
    parts = call.parts
    asked = page_query(call.query_string, "provider", "batch", "date", limit_max=parts.system.settings.page_max)
    given = asked.given
    choice = DeadChoice(provider=given.get("provider"), batch=given.get("batch"), date=given.get("date"))
    scope = f"dead {choice.provider} {choice.batch} {choice.date}"
    after = int(position_of(asked.cursor, scope, 0))
    runs, following = await asyncio.to_thread(redrive.list_dead, parts.store, choice, after=after, limit=asked.limit)
    cursor = None if following is None else make_cursor(scope, following)
    return json_answer(200, Page([call_run_view(run) for run in runs], cursor))


async def redrive_dead(call: Call) -> Answer:
    parts = call.parts
    body: RedriveBody = call.body
    if body.queues:
        redrive.refuse_beside_queues(**_named(body))
        done = await asyncio.to_thread(redrive.replay, parts.store, now_ms=parts.now_ms())
        return json_answer(200, Replayed(*done))
    choice = await asyncio.to_thread(_choice, call)
    count = await asyncio.to_thread(redrive.redrive, parts.store, choice, now_ms=parts.now_ms())
    parts.hooks.wake()
    return json_answer(200, Redriven(count))


async def discard_dead(call: Call) -> Answer:
    choice = await asyncio.to_thread(_choice, call)
    return json_answer(200, Discarded(await asyncio.to_thread(redrive.discard, call.parts.store, choice)))


def _choice(call: Call) -> DeadChoice:
    return redrive.choose(call.parts.store, **_named(call.body))


def _named(body: DeadBody) -> dict[str, Any]:
    """What the body names."""
    given = {name: getattr(body, name) for name in ("runs", "provider", "batch", "date")}
    return {name: value for name, value in given.items() if value is not msgspec.UNSET}
