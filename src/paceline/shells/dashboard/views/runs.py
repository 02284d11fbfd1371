"""Page of one run: why it waits or went as it did, and what else is known of it."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from urllib.parse import quote

from paceline.core.ids import parse_call_run_id, parse_run_id
from paceline.core.instants import to_datetime
from paceline.shells.api.http.answers import ApiAnswer
from paceline.shells.api.http.context import ApiCall
from paceline.shells.dashboard.asking import Api
from paceline.shells.dashboard.rendering import PageGroup, PagePlace, page
from paceline.shells.dashboard.words import moment

PAGES = PageGroup("Dashboard")
ENDED = ("ok", "done", "failed", "unknown", "dead", "skipped", "cancelled")
_CHIPS = {"ok": "good", "planned": "waiting"}
TITLES = {
    "due": "Its time",
    "order": "Order",
    "place": "Place",
    "rate": "Rate",
    "pause": "Pause",
    "breaker": "Breaker",
    "retry_after": "Next try",
    "turn": "Turn",
    "budget": "Budget",
    "account": "Account",
    "target": "Target",
    "provider": "Provider",
    "lease": "Who has it",
}


@PAGES.page("/ui/runs/{run}/why")
async def show_why(call: ApiCall) -> ApiAnswer:
    """Shows one run, firing or measurement, with its chain of reasons and when it starts."""
    api, name = Api(call), call.params["run"]
    why = await api.get("/v1/runs/{run}/why", run=name)
    run = await api.find("/v1/runs/{run}", run=name)
    links = _links(why, to_datetime(api.now_ms))
    return await page(
        call,
        "why.html",
        _place(why["run"]),
        why=why,
        run=run,
        links=links,
        heading=_heading(why, links, _short(why["run"]), run["reason"] if run else ""),
        state=_CHIPS.get(why["state"], why["state"]),
    )


def _place(run: str) -> PagePlace:
    """Returns the place of the page: below its monitor, its batch or its job."""
    if (check := parse_run_id(run)) is not None:
        address = f"/ui/monitors/{quote(check.owner, safe='')}/{quote(check.monitor, safe='')}"
        return PagePlace("monitors", "Why", (("Monitors", "/ui/monitors"), (check.monitor, address)))
    if (called := parse_call_run_id(run)) is not None:
        address = f"/ui/batches/{quote(called.batch, safe='')}/{quote(called.date, safe='')}"
        crumbs = (("Batches", "/ui/batches"), (f"{called.batch}, {called.date}", address))
        return PagePlace("batches", "Why", crumbs)
    job = run.partition("/")[0]
    return PagePlace("jobs", "Why", (("Jobs", "/ui/jobs"), (job, f"/ui/jobs/{quote(job, safe='')}")))


def _short(run: str) -> str:
    """Returns the run's short name for a heading: its monitor, its record, or the number of the measurement."""
    if (check := parse_run_id(run)) is not None:
        return check.monitor
    if (called := parse_call_run_id(run)) is not None:
        return called.record
    return f"Measurement {run.partition('/')[2]}"


def _links(why: dict[str, Any], now: datetime) -> list[dict[str, Any]]:
    """Returns the chain with a title for each link, and whether it is over, holds now, or comes later.

    ``change`` is split into parts: every second part is a command or the name of a setting.
    """
    found: list[dict[str, Any]] = []
    for link in why["chain"]:
        over = link["until"] is not None and moment(link["until"]) <= now
        ended = why["state"] in ENDED
        held = any(one["mark"] in ("holds", "time") for one in found)
        mark = "over" if over or ended else "then" if held else "time" if link["link"] == "due" else "holds"
        change = list(enumerate(link["change"].split("`")))
        found.append(link | {"title": TITLES[link["link"]], "mark": mark, "change": change})
    return found


def _heading(why: dict[str, Any], links: list[dict[str, Any]], name: str, reason: str) -> str:
    """Returns the heading, which says what a person wants to know first. ``reason`` is the run's own, if it has one."""
    holds = next((link for link in links if link["mark"] in ("holds", "time")), links[-1])
    match why["state"]:
        case "ok" | "done":
            return f"{name} went well."
        case "failed" | "unknown" | "dead" | "skipped" | "cancelled":
            return f"{name} ended: {reason}." if reason else f"{name} ended as {why['state']}."
        case "out" | "sending" | "ongoing":
            return f"{name} is running."
        case _:
            return f"{name} waits for its time." if holds["link"] == "due" else f"{name} waits. {holds['text']}"
