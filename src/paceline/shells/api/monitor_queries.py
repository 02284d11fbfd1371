"""Monitors: lists of them, a check now, and the times of the next firings."""

from __future__ import annotations

from paceline.errors import FieldProblem, InvalidInput, OwnerDisabled
from paceline.shells.api.http.answers import Answer, json_answer
from paceline.shells.api.http.context import Call
from paceline.shells.api.http.pages import query
from paceline.shells.api.http.route import Group, Route
from paceline.steps.monitors.run_now import TIMES_DEFAULT, TIMES_MAX, RunNowView, UpcomingView, run_now, upcoming

MONITOR_QUERIES = Group("Monitors")
_MONITOR = "/v1/users/{user}/monitors/{id}"


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
