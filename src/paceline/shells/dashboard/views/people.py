"""Pages of users, tokens and channels."""

from __future__ import annotations

from typing import Any

from paceline.shells.api.http.answers import ApiAnswer
from paceline.shells.api.http.context import ApiCall
from paceline.shells.dashboard.asking import Api, together
from paceline.shells.dashboard.rendering import PageGroup, PagePlace, page
from paceline.shells.dashboard.views.finding import asked_of

PAGES = PageGroup("Dashboard")
ROWS = 50


@PAGES.page("/ui/users", "user", "cursor")
async def list_users(call: ApiCall) -> ApiAnswer:
    """Shows users, for admins, and the tokens of the signed-in user or of the one asked for."""
    api, asked = Api(call), asked_of(call, "user", "cursor")
    name = asked["user"] or api.user.id
    user, tokens = await together(
        api.get("/v1/users/{user}", user=name), api.get("/v1/users/{user}/tokens", {"limit": 100}, user=name)
    )
    listed: dict[str, Any] = {"items": [user], "next_cursor": None}
    if api.user.role == "admin":
        listed = await api.get("/v1/users", {"limit": ROWS, "cursor": asked["cursor"]})
    return await page(
        call,
        "users.html",
        PagePlace("users", "Users"),
        **listed,
        chosen=user,
        tokens=tokens["items"],
        asked=asked,
    )


@PAGES.page("/ui/channels", "user", "cursor")
async def list_channels(call: ApiCall) -> ApiAnswer:
    """Shows channels, silences in force and alerts, of the signed-in user or of the one asked for."""
    api, asked = Api(call), asked_of(call, "user", "cursor")
    name = asked["user"] or api.user.id
    channels, silences, alerts = await together(
        api.get("/v1/users/{user}/channels", {"limit": 1_000}, user=name),
        api.get("/v1/users/{user}/silences", {"limit": 1_000}, user=name),
        api.get("/v1/users/{user}/alerts", {"limit": ROWS, "cursor": asked["cursor"]}, user=name),
    )
    return await page(
        call,
        "channels.html",
        PagePlace("channels", "Channels"),
        name=name,
        channels=channels["items"],
        silences=silences["items"],
        alerts=alerts["items"],
        next_cursor=alerts["next_cursor"],
        asked=asked,
    )
