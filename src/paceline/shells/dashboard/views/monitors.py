"""The list of monitors, and the page of one."""

from __future__ import annotations

from typing import Any

from paceline.shells.api.http.answers import Answer
from paceline.shells.api.http.context import Call
from paceline.shells.api.http.route import Group, Route
from paceline.shells.dashboard import pictures
from paceline.shells.dashboard.asking import Api, together
from paceline.shells.dashboard.rendering import Place, page
from paceline.shells.dashboard.views.finding import add_newest_run, asked_of, whose_of
from paceline.shells.dashboard.words import moment

PAGES = Group("Dashboard")
ROWS = 50
RUNS_SHOWN = 20
RUNS_DRAWN = 500
CHART_HEIGHT = 160
_LIST_QUERY = ("whose", "cursor")


@Route(PAGES, "GET", "/ui/monitors", {200: "text/html"}, page=True, query=_LIST_QUERY)
async def list_monitors(call: Call) -> Answer:
    """Monitors with health, schedule and reason."""
    api, asked = Api(call), asked_of(call, *_LIST_QUERY)
    listed, user = await together(
        api.get("/v1/users/{user}/monitors", {"limit": ROWS, "cursor": asked["cursor"]}, user="me"),
        api.get("/v1/users/{user}", user="me"),
    )
    items = listed["items"]
    await together(*(add_newest_run(api, one) for one in items if one["health"] in ("failing", "late")))
    return page(
        call,
        "monitors.html",
        Place("monitors", "Monitors"),
        whose=whose_of(call),
        asked=asked,
        items=items,
        total=user["monitors"],
        next_cursor=listed["next_cursor"],
    )


@Route(
    PAGES,
    "GET",
    "/ui/monitors/{user}/{id}",
    {200: "text/html"},
    page=True,
    query=("whose", "cursor", "outcome"),
)
async def show_monitor(call: Call) -> Answer:
    """One monitor: its health, latency, runs with reasons, and definition."""
    api, names = Api(call), {"user": call.params["user"], "id": call.params["id"]}
    asked = asked_of(call, "whose", "cursor", "outcome")
    monitor, drawn, runs = await together(
        api.get("/v1/users/{user}/monitors/{id}", None, **names),
        api.get("/v1/users/{user}/monitors/{id}/runs", {"limit": RUNS_DRAWN}, **names),
        api.get("/v1/users/{user}/monitors/{id}/runs", {"limit": RUNS_SHOWN, "cursor": asked["cursor"]}, **names),
    )
    ended = [run for run in drawn["items"] if run["outcome"]]
    return page(
        call,
        "monitor.html",
        Place("monitors", monitor["id"], (("Monitors", "/ui/monitors"),)),
        whose=whose_of(call),
        monitor=monitor,
        runs=runs["items"],
        next_cursor=runs["next_cursor"],
        asked=asked,
        streak=_streak(ended),
        chart=_chart(drawn["items"], api.now_ms),
    )


def _streak(ended: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The failures in a row up to the newest run, newest first: how many, since when, and the last good run."""
    bad = list[dict[str, Any]]()
    for run in ended:
        if run["outcome"] == "ok":
            return {"runs": len(bad), "newest": bad[0], "began": bad[-1]["ended_at"], "good": run} if bad else None
        bad.append(run)
    return {"runs": len(bad), "newest": bad[0], "began": bad[-1]["ended_at"], "good": None} if bad else None


def _chart(runs: list[dict[str, Any]], now_ms: int) -> dict[str, Any] | None:
    """The latency of the newest runs, drawn from the oldest of them until now."""
    del now_ms
    timed = [run for run in runs if run["ended_at"]]
    if len(timed) < 2:
        return None
    start, end = moment(timed[-1]["ended_at"]), moment(timed[0]["ended_at"])
    if end <= start:
        return None
    points, failed = pictures.latency_points(timed, start, end)
    values = sorted(value for _, value in points)
    top = pictures.nice_top(values[-1]) if values else 1.0
    return {
        "height": CHART_HEIGHT,
        "line": pictures.line(points, top, CHART_HEIGHT),
        "failed": failed,
        "values": pictures.value_ticks(top, CHART_HEIGHT),
        "times": pictures.time_ticks(start, end),
        "median": values[len(values) // 2] if values else None,
        "p95": values[int(len(values) * 0.95)] if values else None,
        "runs": len(timed),
    }
