"""Pages of all providers, with state, rate and queue, and of one with its queue, latency and limits."""

from __future__ import annotations

from typing import Any

from paceline.shells.api.http.answers import ApiAnswer
from paceline.shells.api.http.context import ApiCall
from paceline.shells.dashboard import pictures
from paceline.shells.dashboard.asking import Api, Query, together
from paceline.shells.dashboard.rendering import PageGroup, PagePlace, page
from paceline.shells.dashboard.views.finding import asked_of
from paceline.shells.dashboard.views.latencies import latency_chart
from paceline.shells.dashboard.words import count, joined, sentence

PAGES = PageGroup("Dashboard")
ROWS = 50
DAYS_LOOKED_AT = 10
CALLS_LOOKED_AT = 200
CALLS_SHOWN = 10
BLOCKS_MAX = 8
"""More places than this are written as a number and not drawn."""
_ORDER = {"closed": 0, "paused": 1, "open": 2}
_ORDERS = {
    "spread": "spread evenly over the day",
    "imported": "as the records were imported",
    "priority": "by the priority of the records",
}


@PAGES.page("/ui/providers", "cursor", "id", access="admin")
async def list_providers(call: ApiCall) -> ApiAnswer:
    """Shows providers: state, breaker, rate, queue, order and latency.

    With ``id``, shows one, and what waits for it.
    """
    api, asked = Api(call), asked_of(call, "cursor", "id")
    if asked["id"]:
        return await _show_provider(call, api, asked)
    listed = await api.get("/v1/providers", {"limit": ROWS, "cursor": asked["cursor"], "figures": "true"})
    items = sorted(listed["items"], key=lambda one: _ORDER.get(one["standing"]["state"], 9))
    return await page(
        call,
        "providers.html",
        PagePlace("providers", "Providers"),
        items=[one | _row(one) for one in items],
        asked=asked,
        next_cursor=listed["next_cursor"],
        heading=_heading(items),
        more=_more(items),
    )


async def _show_provider(call: ApiCall, api: Api, asked: dict[str, str]) -> ApiAnswer:
    found, days = await together(
        api.get("/v1/providers/{provider}", provider=asked["id"]), api.get("/v1/days", {"limit": DAYS_LOOKED_AT})
    )
    waiting, done = await together(
        _calls(api, days["items"], found["id"], "waiting"), _calls(api, days["items"], found["id"], "done")
    )
    done.sort(key=lambda run: run["ended_at"] or "", reverse=True)
    waiting.sort(key=lambda run: run["due"])
    return await page(
        call,
        "provider.html",
        PagePlace("providers", found["id"], (("Providers", "/ui/providers"),)),
        one=found | _row(found),
        order=_ORDERS.get(found["order"], found["order"]),
        waiting=waiting[:CALLS_SHOWN],
        sampled=len(waiting) >= CALLS_LOOKED_AT,
        days=[day for day in days["items"] if any(run["batch"] == day["batch"] for run in (*waiting, *done))],
        chart=latency_chart([run | {"state": "ok"} for run in done]),
    )


async def _calls(api: Api, days: list[dict[str, Any]], provider: str, state: str) -> list[dict[str, Any]]:
    """Returns calls of the provider in this state, some of each running day."""
    asked: Query = {"limit": CALLS_LOOKED_AT, "provider": provider, "state": state}
    path = "/v1/batches/{batch}/days/{date}/runs"
    pages = await together(*(api.get(path, asked, batch=day["batch"], date=day["date"]) for day in days))
    return [run for one in pages for run in one["items"]]


def _row(provider: dict[str, Any]) -> dict[str, Any]:
    """Returns the provider with its places as blocks, how near the breaker is, and the order in a word."""
    places, taken = provider["max_in_flight"], provider["standing"]["in_flight"]
    blocks = [index < taken for index in range(places)] if places <= BLOCKS_MAX else []
    failures, allowed = provider["standing"]["failures"], provider["breaker"]["failures"]
    return {
        "blocks": blocks,
        "taken": pictures.meter(("fa", taken), of=places),
        "breaker_text": f"{count(failures, 'bad call')} in a row of {allowed}" if failures else "",
    }


def _heading(items: list[dict[str, Any]]) -> str:
    states = [one["standing"]["state"] for one in items]
    parts = [
        f"{count(states.count(state), 'provider is', 'providers are')} {state}"
        for state in ("closed", "paused")
        if state in states
    ]
    if not parts:
        return "All providers are open." if items else "There is no provider yet."
    return f"{sentence(joined(parts))}."


def _more(items: list[dict[str, Any]]) -> str:
    """Returns the line below the heading: how many are open, and how much waits."""
    opened = sum(one["standing"]["state"] == "open" for one in items)
    waiting = sum(one["standing"]["waiting"] for one in items)
    others = f"The other {count(opened, 'is', 'are')} open. " if 0 < opened < len(items) else ""
    return f"{others}{count(waiting, 'call waits for its', 'calls wait for their')} time or turn."
