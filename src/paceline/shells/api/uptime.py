"""Route of a monitor's uptime, as JSON or as CSV."""

from __future__ import annotations

from paceline.errors import FieldProblem, InvalidInput
from paceline.shells.api.http.answers import ApiAnswer, json_answer, text_answer
from paceline.shells.api.http.context import ApiCall
from paceline.shells.api.http.pages import query
from paceline.shells.api.http.route import RouteGroup
from paceline.steps.monitors.define import get_monitor
from paceline.steps.views.uptime import UptimeView, days_csv, uptime_view

UPTIME = RouteGroup("Uptime")


@UPTIME.get("/v1/users/{user}/monitors/{id}/uptime", (UptimeView, "text/csv"), query=("format",))
async def show_uptime(call: ApiCall) -> ApiAnswer:
    """Shares of good time, latencies and incidents of the last 90 days, or the days as CSV."""
    form = query(call.query_string, "format").get("format", "json")
    if form not in ("json", "csv"):
        raise InvalidInput.of(FieldProblem("/query/format", "json or csv"))
    api = call.api
    monitor = await api.read(get_monitor, api.store, call.owner, call.params["id"])
    view = await api.work(uptime_view, api.store, monitor, now_ms=api.now_ms())
    return json_answer(200, view) if form == "json" else text_answer(200, days_csv(view), "text/csv; charset=utf-8")
