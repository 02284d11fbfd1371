"""Routes that list monitors, start an extra run, and show the times of the next firings."""

from __future__ import annotations

from paceline.core.monitors.lists.query import parse_query
from paceline.errors import FieldProblem, InvalidInput, NotFound, OwnerDisabled
from paceline.shells import lists
from paceline.shells.api.http.answers import ApiAnswer, json_answer
from paceline.shells.api.http.auth import owner_of
from paceline.shells.api.http.context import ApiCall
from paceline.shells.api.http.pages import PageQuery, query, truth
from paceline.shells.api.http.route import RouteGroup
from paceline.shells.lists import ListPage
from paceline.steps import access
from paceline.steps.monitors.run_now import TIMES_DEFAULT, TIMES_MAX, RunNowView, UpcomingView, run_now, upcoming
from paceline.steps.views.report import MonitorView
from paceline.steps.views.uptime import with_figures

MONITOR_QUERIES = RouteGroup("Monitors")
_MONITORS = "/v1/users/{user}/monitors"
_MONITOR = f"{_MONITORS}/{{id}}"
_FILTERS = ("tag", "health", "kind", "q", "sort")
_ASKED = (*_FILTERS, "figures")


@MONITOR_QUERIES.get_page(_MONITORS, MonitorView, query=_ASKED)
async def list_monitors(call: ApiCall) -> ApiAnswer:
    """The user's monitors, filtered and sorted."""
    owner = (await call.api.read(access.get_user, call.api.store, call.owner)).id
    return await _list(call, call.page(*_ASKED), owner)


@MONITOR_QUERIES.get_page("/v1/monitors", MonitorView, access="admin", query=("user", *_ASKED), problems=(NotFound,))
async def list_all_monitors(call: ApiCall) -> ApiAnswer:
    """The monitors of all users, filtered and sorted."""
    asked = call.page("user", *_ASKED)
    owner = None
    if user := asked.given.get("user"):
        owner = (await call.api.read(access.get_user, call.api.store, owner_of(call.user, user))).id
    return await _list(call, asked, owner)


@MONITOR_QUERIES.post(f"{_MONITOR}/run", {202: RunNowView}, problems=(OwnerDisabled,))
async def run_monitor(call: ApiCall) -> ApiAnswer:
    """Checks now, once; the cadence does not change."""
    api, owner, monitor_id = call.api, call.owner, call.params["id"]

    def run() -> RunNowView:
        return run_now(api.store, owner, monitor_id, now_ms=api.now_ms(), catch_up=api.system.catch_up)

    view = await api.write(run)
    api.hooks.arrivals.notify()
    return json_answer(202, view)


@MONITOR_QUERIES.get(f"{_MONITOR}/next", UpcomingView, query=("count",))
async def list_next_times(call: ApiCall) -> ApiAnswer:
    """The next times of the monitor, if nothing is edited."""
    api, text = call.api, query(call.query_string, "count").get("count", str(TIMES_DEFAULT))
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise InvalidInput.of(FieldProblem("/query/count", f"a whole number from 1 to {TIMES_MAX}"))
    view = await api.read(upcoming, api.store, call.owner, call.params["id"], count=int(text), now_ms=api.now_ms())
    return json_answer(200, view)


async def _list(call: ApiCall, asked: PageQuery, owner: str | None) -> ApiAnswer:
    api = call.api
    query = parse_query(owner=owner, **{name: asked.given.get(name) for name in _FILTERS})
    page = await api.listed(asked, lists.list_monitors, query)
    if truth(asked.given, "figures", default=False):
        page = ListPage(await api.work(with_figures, api.store, page.items, now_ms=api.now_ms()), page.next_cursor)
    return json_answer(200, page)
