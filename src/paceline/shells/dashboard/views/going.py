"""The search box in the bar: goes from the id of anything to its page."""

from __future__ import annotations

from urllib.parse import quote

from paceline.shells.api.http.answers import ApiAnswer, empty_answer
from paceline.shells.api.http.context import ApiCall
from paceline.shells.dashboard.asking import Api
from paceline.shells.dashboard.rendering import PageGroup, address
from paceline.shells.dashboard.views.finding import asked_of
from paceline.shells.dashboard.words import moment

PAGES = PageGroup("Dashboard")
TEXT_CHARS_MAX = 200
SEARCHED = 50
DAYS_LOOKED_AT = 10


@PAGES.page("/ui/go", "to", answers={303: None})
async def go_to(call: ApiCall) -> ApiAnswer:
    """Goes to the page of a run, monitor, job, provider or batch by its id, else to a search of monitors."""
    text = asked_of(call, "to")["to"].strip()[:TEXT_CHARS_MAX]
    found = await _found(Api(call), text) if text else "/ui/monitors"
    return empty_answer(303, (b"location", (found or address("/ui/monitors", q=text)).encode()))


async def _found(api: Api, text: str) -> str | None:
    """Returns the address of the first thing that has this id. Longer forms of ids are tried first."""
    if "/" in text and await api.find("/v1/runs/{run}", run=text):
        return f"/ui/runs/{_q(text)}/why"
    owner, _, name = text.rpartition("/")
    if await api.find("/v1/users/{user}/monitors/{id}", user=owner or "me", id=name):
        return f"/ui/monitors/{_q(owner or api.user.id)}/{_q(name)}"
    if await api.find("/v1/jobs/{job}", {"measurements": "false"}, job=text):
        return f"/ui/jobs/{_q(text)}"
    return await _found_of_admins(api, text) if api.user.role == "admin" else None


async def _found_of_admins(api: Api, text: str) -> str | None:
    if await api.find("/v1/providers/{provider}", provider=text):
        return address("/ui/providers", id=text)
    if await api.find("/v1/batches/{batch}", batch=text):
        days = (await api.get("/v1/batches/{batch}/days", {"limit": DAYS_LOOKED_AT}, batch=text))["items"]
        begun = [day for day in days if moment(day["start"]).timestamp() * 1_000 <= api.now_ms]
        return f"/ui/batches/{_q(text)}/{begun[0]['date']}" if begun else "/ui/batches"
    others = await api.get("/v1/monitors", {"q": text, "limit": SEARCHED})
    named = [one for one in others["items"] if one["id"] == text]
    return f"/ui/monitors/{_q(named[0]['user'])}/{_q(text)}" if len(named) == 1 else None


def _q(text: str) -> str:
    return quote(text, safe="")
