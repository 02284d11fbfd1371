"""Routes of dead letters, runs that failed for good or are unknown: list, redrive, discard."""

from __future__ import annotations

from typing import Any

import msgspec

from paceline.core.batches.values import DeadChoice
from paceline.shells import lists
from paceline.shells.api.documents import DeadBody, Discarded, RedriveBody, Redriven, ReplayAnswer
from paceline.shells.api.http.answers import ApiAnswer, json_answer
from paceline.shells.api.http.context import ApiCall
from paceline.shells.api.http.route import RouteGroup
from paceline.steps.batches import redrive
from paceline.steps.views.days import CallRunView

_FILTERS = ("provider", "batch", "date")
DEAD = RouteGroup("Dead letters", access="admin")


@DEAD.get_page("/v1/dead", CallRunView, query=_FILTERS)
async def list_dead_letters(call: ApiCall) -> ApiAnswer:
    """Runs that failed for good or are unknown, by provider and due time."""
    asked = call.page(*_FILTERS)
    given = asked.given
    choice = DeadChoice(provider=given.get("provider"), batch=given.get("batch"), date=given.get("date"))
    return json_answer(200, await call.api.listed(asked, lists.list_dead_letters, choice))


@DEAD.post("/v1/dead/redrive", (Redriven, ReplayAnswer), body=RedriveBody)
async def redrive_dead_letters(call: ApiCall) -> ApiAnswer:
    """Redrives dead letters, in order and at a limited pace, each once; or sends messages of dead queues again."""
    api = call.api
    body: RedriveBody = call.body
    if body.queues:
        redrive.refuse_beside_queues(**_named(body))
        done = await api.work(redrive.replay, api.store, now_ms=api.now_ms())
        return json_answer(200, ReplayAnswer(*done))
    choice = await api.work(_choice, call)
    count = await api.work(redrive.redrive, api.store, choice, now_ms=api.now_ms())
    api.hooks.wake()
    return json_answer(200, Redriven(count))


@DEAD.post("/v1/dead/discard", Discarded, body=DeadBody)
async def discard_dead_letters(call: ApiCall) -> ApiAnswer:
    """Discards dead letters; their results stay."""
    choice = await call.api.work(_choice, call)
    return json_answer(200, Discarded(await call.api.work(redrive.discard, call.api.store, choice)))


def _choice(call: ApiCall) -> DeadChoice:
    return redrive.choose(call.api.store, **_named(call.body))


def _named(body: DeadBody) -> dict[str, Any]:
    """Returns the fields that the body gives, without those it leaves out."""
    given = {name: getattr(body, name) for name in ("runs", *_FILTERS)}
    return {name: value for name, value in given.items() if value is not msgspec.UNSET}
