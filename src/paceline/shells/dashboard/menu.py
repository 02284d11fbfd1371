"""The menu beside every page, and the figures in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from paceline.shells.api.http.context import ApiCall
from paceline.shells.dashboard.asking import Api, together
from paceline.shells.dashboard.views.finding import COUNTED, find_monitors
from paceline.shells.dashboard.words import number


class MenuEntry(NamedTuple):
    """A line of the menu."""

    name: str
    address: str
    icon: str
    word: str
    admins: bool


MENU = (
    MenuEntry("overview", "/", "n-over", "Overview", admins=False),
    MenuEntry("monitors", "/ui/monitors", "n-mon", "Monitors", admins=False),
    MenuEntry("providers", "/ui/providers", "n-prov", "Providers", admins=True),
    MenuEntry("batches", "/ui/batches", "n-bat", "Batches", admins=True),
    MenuEntry("jobs", "/ui/jobs", "n-job", "Jobs", admins=False),
    MenuEntry("accounts", "/ui/accounts", "n-acc", "Accounts", admins=True),
    MenuEntry("dead", "/ui/dead", "n-dead", "Dead letters", admins=True),
    MenuEntry("users", "/ui/users", "n-user", "Users", admins=False),
    MenuEntry("channels", "/ui/channels", "n-chan", "Channels", admins=False),
)


async def menu_marks(call: ApiCall) -> Mapping[str, str]:
    """Returns the figures that need attention, by entry of the menu.

    They are cached, because every page asks for them.
    """
    found: Mapping[str, str] = await call.api.kept.get(
        f"menu {call.user.id} {call.user.role}", lambda: _marks(Api(call))
    )
    return found


async def _marks(api: Api) -> Mapping[str, str]:
    admin = api.user.role == "admin"
    failing = find_monitors(api, "all" if admin else "mine", {"health": "failing", "limit": COUNTED})
    marks = {}
    if admin:
        monitors, status = await together(failing, api.get("/v1/status"))
        if status["dead_letters"]:
            marks["dead"] = number(status["dead_letters"])
    else:
        monitors = await failing
    if monitors["items"]:
        marks["monitors"] = f"{len(monitors['items'])}{'+' if monitors['next_cursor'] else ''}"
    return marks
