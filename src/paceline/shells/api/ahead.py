"""Route of the next hours: the work that starts in each, and what the limits allow."""

from __future__ import annotations

from paceline.errors import NotFound
from paceline.shells.api.http.answers import ApiAnswer, json_answer
from paceline.shells.api.http.auth import owner_of, viewer_of
from paceline.shells.api.http.context import ApiCall
from paceline.shells.api.http.pages import query
from paceline.shells.api.http.route import RouteGroup
from paceline.steps.access import get_user
from paceline.steps.ahead.report import AheadView, ahead, check_hours

AHEAD = RouteGroup("Service")


@AHEAD.get("/v1/ahead", AheadView, query=("hours", "user"), problems=(NotFound,), waits=True)
async def show_ahead(call: ApiCall) -> ApiAnswer:
    """The next hours in windows: firings, calls and sends against capacity, and the worst minutes.

    Covers all users for an admin who names none, else one user.
    """
    api = call.api
    asked = query(call.query_string, "hours", "user")
    hours, owner = check_hours(asked.get("hours")), viewer_of(call.user)
    if "user" in asked:
        owner = (await api.read(get_user, api.store, owner_of(call.user, asked["user"]))).id
    places = api.system.ahead_places
    return json_answer(200, await api.work(ahead, api.store, places, user=owner, hours=hours, now_ms=api.now_ms()))
