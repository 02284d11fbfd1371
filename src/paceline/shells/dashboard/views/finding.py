"""Queries that several pages use: whose things are shown, and which monitors need attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paceline.shells.api.http.context import ApiCall
from paceline.shells.api.http.pages import query
from paceline.shells.dashboard.asking import Api, together
from paceline.shells.dashboard.words import moment

COUNTED = 100
COUNTED_HEALTHS = ("failing", "late", "paused")
SHOWN = 10
PAGES_MAX = 4


def whose_of(call: ApiCall) -> str:
    """Returns ``mine`` or ``all``; admins see everybody's things unless the address says otherwise."""
    asked = dict(part.split("=", 1) for part in call.query_string.decode("latin-1").split("&") if "=" in part)
    if call.user.role != "admin":
        return "mine"
    return "mine" if asked.get("whose") == "mine" else "all"


def asked_of(call: ApiCall, *names: str) -> dict[str, str]:
    """Returns the query parameters of a page as texts, empty if not given."""
    given = query(call.query_string, *names)
    return {name: given.get(name, "") for name in names}


async def find_monitors(api: Api, whose: str, query: Mapping[str, str | int]) -> Any:
    """Returns a page of monitors: the user's own, or everybody's."""
    if whose == "all":
        return await api.get("/v1/monitors", query)
    own = {name: value for name, value in query.items() if name != "user"}
    return await api.get("/v1/users/{user}/monitors", own, user="me")


async def fill_page(api: Api, whose: str, query: Mapping[str, str | int], rows: int) -> Any:
    """Returns a page of this many monitors.

    A list looks at a limited number of monitors, and may find few among them: then the next pages are read. After
    PAGES_MAX requests the page stays short.
    """
    found = await find_monitors(api, whose, {**query, "limit": rows})
    for _ in range(PAGES_MAX - 1):
        cursor, missing = found["next_cursor"], rows - len(found["items"])
        if not cursor or not missing:
            break
        more = await find_monitors(api, whose, {**query, "limit": missing, "cursor": cursor})
        found = {"items": [*found["items"], *more["items"]], "next_cursor": more["next_cursor"]}
    return found


async def count_monitors(api: Api, whose: str, query: Mapping[str, str | int]) -> dict[str, Any]:
    """Counts the monitors, and those that fail, are late or paused, up to COUNTED of each."""
    named = str(query.get("user", "")) or ("me" if whose == "mine" else "")
    total = api.get("/v1/users/{user}", user=named) if named else api.get("/v1/status")
    found, *pages = await together(
        total, *(find_monitors(api, whose, {**query, "health": name, "limit": COUNTED}) for name in COUNTED_HEALTHS)
    )
    counts = {name: len(one["items"]) for name, one in zip(COUNTED_HEALTHS, pages, strict=True)}
    more = {name for name, one in zip(COUNTED_HEALTHS, pages, strict=True) if one["next_cursor"]}
    return {"total": found["monitors"], "more": more, "pages": dict(zip(COUNTED_HEALTHS, pages, strict=True)), **counts}


async def attention_monitors(api: Api, whose: str) -> dict[str, Any]:
    """Returns counts by health, and the first failing or late monitors, each with the reason of its newest run."""
    counts = await count_monitors(api, whose, {})
    wrong = [one for name in ("failing", "late") for one in counts["pages"][name]["items"]][:SHOWN]
    await together(*(add_newest_run(api, one) for one in wrong))
    return counts | {"items": wrong}


async def add_newest_run(api: Api, monitor: dict[str, Any]) -> None:
    """Adds ``newest``: the newest run that has ended, else the newest that waits, else None."""
    runs = await api.get("/v1/users/{user}/monitors/{id}/runs", {"limit": 5}, user=monitor["user"], id=monitor["id"])
    ended = [run for run in runs["items"] if run["outcome"]]
    monitor["newest"] = next(iter(ended or runs["items"]), None)


def with_share(day: dict[str, Any], now_ms: int) -> dict[str, Any]:
    """Adds to a running day where its plan stands, in percent while its window lasts, and what is left."""
    on = moment(day["start"]).timestamp() * 1_000 <= now_ms <= moment(day["end"]).timestamp() * 1_000
    totals = day["totals"]
    return day | {
        "stands": round(100 * day["planned"] / day["runs"], 1) if on and day["runs"] else None,
        "left": sum(totals[state] for state in ("waiting", "out", "retry", "aside")),
        "gave_up": totals["failed"] + totals["unknown"],
    }


def named_day(day: dict[str, Any]) -> dict[str, Any]:
    """Returns the day with its name in addresses."""
    return day | {"name": f"{day['date']}~{day['rerun']}" if day["rerun"] else day["date"]}
