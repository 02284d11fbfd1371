"""One run: what is known of it, and why it is as it is."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from paceline.shells.api.http.answers import Answer
from paceline.shells.api.http.context import Call
from paceline.shells.api.http.route import Group, Route
from paceline.shells.dashboard.asking import Api
from paceline.shells.dashboard.rendering import Place, page

PAGES = Group("Dashboard")


@Route(PAGES, "GET", "/ui/runs/{run}/why", {200: "text/html"}, page=True)
async def show_why(call: Call) -> Answer:
    """One run of a monitor or of a batch, with its reason."""
    run = await Api(call).get("/v1/runs/{run}", run=call.params["run"])
    if "monitor" in run:
        monitor = f"/ui/monitors/{quote(run['user'], safe='')}/{quote(run['monitor'], safe='')}"
        crumbs = (("Monitors", "/ui/monitors"), (run["monitor"], monitor))
        place = Place("monitors", "Run", crumbs)
    else:
        place = Place("batches", "Run", (("Batches", "/ui/batches"), (run["batch"], "/ui/batches")))
    return await page(call, "why.html", place, run=run, heading=_heading(run))


def _heading(run: dict[str, Any]) -> str:
    name = run.get("record") or run.get("monitor")
    reason = run["reason"]
    match run["state"]:
        case "ok" | "done":
            return f"{name} went well."
        case "failed" | "unknown" | "dead" | "skipped":
            return f"{name} ended: {reason}." if reason else f"{name} ended without a run."
        case "out":
            return f"{name} is running."
        case _:
            return f"{name} waits: {reason}." if reason else f"{name} waits for its time."
