"""Pages of batches and dead letters."""

from __future__ import annotations

from typing import Any

from paceline.shells.api.http.answers import ApiAnswer
from paceline.shells.api.http.context import ApiCall
from paceline.shells.dashboard.asking import Api, together
from paceline.shells.dashboard.rendering import PageGroup, PagePlace, page
from paceline.shells.dashboard.views.finding import asked_of, named_day, with_share

PAGES = PageGroup("Dashboard")
ROWS = 50
BATCHES = 100
RUNNING_MAX = 1_000
DAYS_SHOWN = 3


@PAGES.page("/ui/batches", "cursor", access="admin")
async def list_batches(call: ApiCall) -> ApiAnswer:
    """Shows batches, the progress of their running days, and their newest days."""
    api, asked = Api(call), asked_of(call, "cursor")
    listed, running = await together(
        api.get("/v1/batches", {"limit": BATCHES, "cursor": asked["cursor"]}),
        api.get("/v1/days", {"limit": RUNNING_MAX}),
    )
    days = {day["batch"]: with_share(day, api.now_ms) for day in running["items"]}
    await together(*(_add_days(api, one, days.get(one["id"])) for one in listed["items"]))
    return await page(
        call,
        "batches.html",
        PagePlace("batches", "Batches"),
        asked=asked,
        **listed,
    )


@PAGES.page("/ui/dead", "provider", "batch", "date", "cursor", access="admin")
async def list_dead(call: ApiCall) -> ApiAnswer:
    """Shows dead letters: calls that were given up and wait for a person."""
    api, asked = Api(call), asked_of(call, "provider", "batch", "date", "cursor")
    listed, status = await together(api.get("/v1/dead", {"limit": ROWS, **asked}), api.get("/v1/status"))
    return await page(
        call,
        "dead.html",
        PagePlace("dead", "Dead letters"),
        asked=asked,
        total=status["dead_letters"],
        **listed,
    )


async def _add_days(api: Api, batch: dict[str, Any], running: dict[str, Any] | None) -> None:
    """Adds ``running``, the day whose window began last, if it is planned, and ``days``, the newest other days."""
    found = await api.get("/v1/batches/{batch}/days", {"limit": DAYS_SHOWN + 1}, batch=batch["id"])
    others = [named_day(day) for day in found["items"] if running is None or day["date"] != running["date"]]
    batch["running"], batch["days"] = running, others[:DAYS_SHOWN]
