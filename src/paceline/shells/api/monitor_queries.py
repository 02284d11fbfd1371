"""Monitors: lists of them, a check now, and the times of the next firings."""

from __future__ import annotations

from paceline.core.monitors.lists.query import parse_query, read_mark, write_mark
from paceline.errors import FieldProblem, InvalidInput, NotFound, OwnerDisabled
from paceline.shells import cursors
from paceline.shells.api.http.answers import Answer, json_answer
from paceline.shells.api.http.auth import owner_of
from paceline.shells.api.http.context import Call
from paceline.shells.api.http.pages import Page, PageQuery, make_cursor, page_query, position_of, query, truth
from paceline.shells.api.http.route import Group, Route
from paceline.steps import access
from paceline.steps.monitors.find import find_monitors
from paceline.steps.monitors.run_now import TIMES_DEFAULT, TIMES_MAX, RunNowView, UpcomingView, run_now, upcoming
from paceline.steps.views.report import MonitorView
from paceline.steps.views.uptime import with_figures

MONITOR_QUERIES = Group("Monitors")
_MONITORS = "/v1/users/{user}/monitors"
_MONITOR = f"{_MONITORS}/{{id}}"
_FILTERS = ("tag", "health", "kind", "q", "sort")
_ASKED = (*_FILTERS, "figures")


@Route(MONITOR_QUERIES, "GET", _MONITORS, {200: Page[MonitorView]}, paged=True, query=_ASKED)
async def list_monitors(call: Call) -> Answer:
    """The user's monitors, filtered and in order."""
    owner = (await call.api.read(access.get_user, call.api.store, call.owner)).id
    return await _list(call, page_query(call.query_string, *_ASKED, limit_max=_limit_max(call)), owner)


@Route(
    MONITOR_QUERIES,
    "GET",
    "/v1/monitors",
    {200: Page[MonitorView]},
    access="admin",
    paged=True,
    query=("user", *_ASKED),
    problems=(NotFound,),
)
async def list_all_monitors(call: Call) -> Answer:
    """The monitors of all users, filtered and in order."""
    asked = page_query(call.query_string, "user", *_ASKED, limit_max=_limit_max(call))
    owner = None
    if user := asked.given.get("user"):
        owner = (await call.api.read(access.get_user, call.api.store, owner_of(call.user, user))).id
    return await _list(call, asked, owner)


@Route(MONITOR_QUERIES, "POST", f"{_MONITOR}/run", {202: RunNowView}, problems=(OwnerDisabled,))
async def run_monitor(call: Call) -> Answer:
    """Checks now, once; the cadence is untouched."""
    api, owner, monitor_id = call.api, call.owner, call.params["id"]

    def run() -> RunNowView:
        return run_now(api.store, owner, monitor_id, now_ms=api.now_ms(), catch_up=api.system.catch_up)

    view = await api.write(run)
    api.hooks.arrivals.notify()
    return json_answer(202, view)


@Route(MONITOR_QUERIES, "GET", f"{_MONITOR}/next", {200: UpcomingView}, query=("count",))
async def list_next_times(call: Call) -> Answer:
    """When the monitor fires next, if nothing is edited."""
    api, text = call.api, query(call.query_string, "count").get("count", str(TIMES_DEFAULT))
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise InvalidInput.of(FieldProblem("/query/count", f"a whole number from 1 to {TIMES_MAX}"))
    view = await api.read(upcoming, api.store, call.owner, call.params["id"], count=int(text), now_ms=api.now_ms())
    return json_answer(200, view)


def _limit_max(call: Call) -> int:
    return call.api.system.settings.page_max


async def _list(call: Call, asked: PageQuery, owner: str | None) -> Answer:
    api = call.api
    query = parse_query(owner=owner, **{name: asked.given.get(name) for name in _FILTERS})
    scope = cursors.monitors_of(query)
    mark = read_mark(str(position_of(asked.cursor, scope, "")))
    found = await api.work(find_monitors, api.store, query, mark, limit=asked.limit, now_ms=api.now_ms())
    following = None if found.following is None else make_cursor(scope, write_mark(found.following))
    views = found.views
    if truth(asked.given, "figures", default=False):
        views = await api.work(with_figures, api.store, views, now_ms=api.now_ms())
    return json_answer(200, Page(views, following))
