"""Dead letters: runs that failed for good, or of which nobody knows; to be looked at, redriven or discarded."""

from __future__ import annotations

from typing import Any

import msgspec

from paceline.core.batches.values import DeadChoice
from paceline.shells import cursors
from paceline.shells.api.documents import DeadBody, Discarded, RedriveBody, Redriven, Replayed
from paceline.shells.api.http.answers import Answer, json_answer
from paceline.shells.api.http.context import Call
from paceline.shells.api.http.pages import Page, make_cursor, page_query, position_of
from paceline.shells.api.http.route import Group, Route
from paceline.steps.batches import redrive
from paceline.steps.views.days import CallRunView, call_run_view

DEAD = Group("Dead letters")


@Route(
    DEAD, "GET", "/v1/dead", {200: Page[CallRunView]}, access="admin", paged=True, query=("provider", "batch", "date")
)
async def list_dead_letters(call: Call) -> Answer:
    """Runs that failed for good or are unknown, by provider and due time."""
    api = call.api
    asked = page_query(call.query_string, "provider", "batch", "date", limit_max=api.system.settings.page_max)
    given = asked.given
    choice = DeadChoice(provider=given.get("provider"), batch=given.get("batch"), date=given.get("date"))
    scope = cursors.dead_letters(provider=choice.provider, batch=choice.batch, date=choice.date)
    after = int(position_of(asked.cursor, scope, 0))
    runs, following = await api.work(redrive.list_dead, api.store, choice, after=after, limit=asked.limit)
    cursor = None if following is None else make_cursor(scope, following)
    return json_answer(200, Page([call_run_view(run) for run in runs], cursor))


@Route(DEAD, "POST", "/v1/dead/redrive", {200: (Redriven, Replayed)}, access="admin", body=RedriveBody)
async def redrive_dead_letters(call: Call) -> Answer:
    """Puts dead letters back, in order and paced, each once; or sends messages of dead queues again."""
    api = call.api
    body: RedriveBody = call.body
    if body.queues:
        redrive.refuse_beside_queues(**_named(body))
        done = await api.work(redrive.replay, api.store, now_ms=api.now_ms())
        return json_answer(200, Replayed(*done))
    choice = await api.work(_choice, call)
    count = await api.work(redrive.redrive, api.store, choice, now_ms=api.now_ms())
    api.hooks.wake()
    return json_answer(200, Redriven(count))


@Route(DEAD, "POST", "/v1/dead/discard", {200: Discarded}, access="admin", body=DeadBody)
async def discard_dead_letters(call: Call) -> Answer:
    """Lets dead letters rest; their results stay."""
    choice = await call.api.work(_choice, call)
    return json_answer(200, Discarded(await call.api.work(redrive.discard, call.api.store, choice)))


def _choice(call: Call) -> DeadChoice:
    return redrive.choose(call.api.store, **_named(call.body))


def _named(body: DeadBody) -> dict[str, Any]:
    """What the body names."""
    given = {name: getattr(body, name) for name in ("runs", "provider", "batch", "date")}
    return {name: value for name, value in given.items() if value is not msgspec.UNSET}
