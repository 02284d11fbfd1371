"""Pages of all monitors, and of one."""

from __future__ import annotations

from paceline.core.instants import to_datetime
from paceline.shells.api.http.answers import ApiAnswer
from paceline.shells.api.http.context import ApiCall
from paceline.shells.dashboard import pictures
from paceline.shells.dashboard.asking import Api, together
from paceline.shells.dashboard.rendering import PageGroup, PagePlace, address, page
from paceline.shells.dashboard.views.finding import (
    add_newest_run,
    asked_of,
    count_monitors,
    fill_page,
    whose_of,
)
from paceline.shells.dashboard.views.latencies import days_chart, latency_chart

PAGES = PageGroup("Dashboard")
ROWS = 50
RUNS_SHOWN = 20
RUNS_DRAWN = 500
TIMES_SHOWN = 5
DAYS_HEIGHT = 34
_FILTERS = ("tag", "health", "kind", "q", "sort")
_LIST_QUERY = ("whose", "user", *_FILTERS, "cursor")
HEALTHS = ("failing", "late", "new", "paused", "ok")
KINDS = ("http", "tcp", "tls", "dns", "outgoing")
SORTS = {"health": "Failing first", "next_due": "Next run", "id": "Name"}
USERS_OFFERED = 100
RANGES = {"7d": 7, "30d": 30, "90d": 90}
"""Days of the latency chart, by the word in the address; without a word it shows the newest runs."""


@PAGES.page("/ui/monitors", *_LIST_QUERY)
async def list_monitors(call: ApiCall) -> ApiAnswer:
    """Shows monitors, failing first, searched and filtered."""
    api, asked, whose = Api(call), asked_of(call, *_LIST_QUERY), whose_of(call)
    wanted = {name: asked[name] for name in (*_FILTERS, "cursor")} | {"sort": asked["sort"] or "health"}
    listed, counts, users = await together(
        fill_page(api, whose, {"figures": "true", "user": asked["user"], **wanted}, ROWS),
        count_monitors(api, whose, {"user": asked["user"]}),
        _users(api, whose),
    )
    items = listed["items"]
    await together(*(add_newest_run(api, one) for one in items if one["health"] in ("failing", "late")))
    kept = {name: value for name, value in asked.items() if name != "cursor"}
    return await page(
        call,
        "monitors.html",
        PagePlace("monitors", "Monitors"),
        whose=whose,
        asked=asked,
        items=items,
        counts=counts,
        users=users,
        healths={name: address("/ui/monitors", **kept | {"health": name}) for name in ("", *HEALTHS)},
        kinds=KINDS,
        sorts=SORTS,
        filtered=any(asked[name] for name in ("user", "tag", "health", "kind", "q")),
        whole=_whole(whose, asked),
        following=address("/ui/monitors", **kept, cursor=listed["next_cursor"]) if listed["next_cursor"] else "",
        first=address("/ui/monitors", **kept) if asked["cursor"] else "",
    )


def _whole(whose: str, asked: dict[str, str]) -> str:
    """Returns the API's list of all monitors of this filter; the script reads all its pages."""
    path = "/v1/monitors" if whose == "all" else "/v1/users/me/monitors"
    names = ("tag", "health", "kind", "q", *(("user",) if whose == "all" else ()))
    return address(path, sort="id", **{name: asked[name] for name in names})


async def _users(api: Api, whose: str) -> list[str]:
    """Returns the first users, for an admin to choose from."""
    if whose == "mine":
        return []
    return [one["id"] for one in (await api.get("/v1/users", {"limit": USERS_OFFERED}))["items"]]


@PAGES.page("/ui/monitors/{user}/{id}", "cursor", "range")
async def show_monitor(call: ApiCall) -> ApiAnswer:
    """Shows one monitor: its health, latency, runs with reasons, next times and definition."""
    api, names = Api(call), {"user": call.params["user"], "id": call.params["id"]}
    asked = asked_of(call, "cursor", "range")
    of_runs = "/v1/users/{user}/monitors/{id}/runs"
    monitor, drawn, runs, upcoming, silences, uptime = await together(
        api.get("/v1/users/{user}/monitors/{id}", None, **names),
        api.get(of_runs, {"limit": RUNS_DRAWN}, **names),
        api.get(of_runs, {"limit": RUNS_SHOWN, "cursor": asked["cursor"]}, **names),
        api.get("/v1/users/{user}/monitors/{id}/next", {"count": TIMES_SHOWN}, **names),
        api.get("/v1/users/{user}/silences", None, user=names["user"]),
        api.get("/v1/users/{user}/monitors/{id}/uptime", None, **names),
    )
    return await page(
        call,
        "monitor.html",
        PagePlace("monitors", monitor["id"], (("Monitors", "/ui/monitors"),)),
        monitor=monitor,
        runs=runs["items"],
        next_cursor=runs["next_cursor"],
        asked=asked,
        newest=next((run for run in drawn["items"] if run["outcome"] not in (None, "ok")), None),
        good=next((run for run in drawn["items"] if run["outcome"] == "ok"), None),
        upcoming=upcoming,
        silences=[one for one in silences["items"] if one["monitor"] == monitor["id"] or one["tag"] in monitor["tags"]],
        chart=days_chart(uptime["days"], RANGES[asked["range"]], api.now_ms)
        if asked["range"] in RANGES
        else latency_chart(drawn["items"]),
        ranges=RANGES,
        uptime=uptime,
        days=pictures.status_days(uptime["days"], to_datetime(api.now_ms).date(), DAYS_HEIGHT),
        days_height=DAYS_HEIGHT,
    )
