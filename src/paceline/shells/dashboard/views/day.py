"""Page of one day of a batch: whether it is even and on plan, when it ends, who is behind, and its runs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from paceline.core.batches.progress import day_progress
from paceline.core.instants import to_datetime, to_text
from paceline.shells.api.http.answers import ApiAnswer
from paceline.shells.api.http.context import ApiCall
from paceline.shells.dashboard import pictures
from paceline.shells.dashboard.asking import Api, together
from paceline.shells.dashboard.rendering import PageGroup, PagePlace, page
from paceline.shells.dashboard.views.finding import asked_of, named_day
from paceline.shells.dashboard.words import count, milliseconds, moment

PAGES = PageGroup("Dashboard")
ROWS = 50
CHART_HEIGHT = 140
DAYS_LOOKED_AT = 100
STANDINGS_MAX = 20
"""The state of at most this many of the day's providers is asked for."""
STATES = ("failed", "unknown", "retry", "out", "waiting", "aside", "done", "skipped")
LEFT = ("waiting", "out", "retry", "aside")


@PAGES.page("/ui/batches/{batch}/{date}", "state", "provider", "cursor", access="admin")
async def show_day(call: ApiCall) -> ApiAnswer:
    """Shows one day of a batch: how even it is, its progress, when it ends, and its runs."""
    api, names = Api(call), {"batch": call.params["batch"], "date": call.params["date"]}
    asked = asked_of(call, "state", "provider", "cursor")
    batch, day, runs, days = await together(
        api.get("/v1/batches/{batch}", batch=names["batch"]),
        api.get("/v1/batches/{batch}/days/{date}", None, **names),
        api.get("/v1/batches/{batch}/days/{date}/runs", {"limit": ROWS, **asked}, **names),
        api.get("/v1/batches/{batch}/days", {"limit": DAYS_LOOKED_AT}, batch=names["batch"]),
    )
    standings = await _standings(api, day["providers"][:STANDINGS_MAX])
    now = to_datetime(api.now_ms)
    progress = _progress(day, day, api.now_ms, paused=batch["paused"])
    lanes = [one | _lane(one, day, batch, standings.get(one["provider"]), api.now_ms) for one in day["providers"]]
    return await page(
        call,
        "day.html",
        PagePlace("batches", names["date"], (("Batches", "/ui/batches"), (names["batch"], "/ui/batches"))),
        batch=batch,
        day=day,
        progress=progress,
        lanes=lanes,
        runs=[run | {"reason": _reason(run, standings.get(run["provider"]), now)} for run in runs["items"]],
        next_cursor=runs["next_cursor"],
        asked=asked,
        states=STATES,
        beside=_beside(days["items"], names["date"]),
        chart=_chart(day, api.now_ms),
        heading=_heading(day),
    )


async def _standings(api: Api, providers: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the standing of each provider; removed providers have none."""
    names = [one["provider"] for one in providers]
    found = await together(*(api.find("/v1/providers/{provider}", provider=name) for name in names))
    return {name: one["standing"] for name, one in zip(names, found, strict=True) if one is not None}


def _progress(part: dict[str, Any], day: dict[str, Any], now_ms: int, *, paused: bool) -> dict[str, Any]:
    """Returns the progress of the day, or of one provider's part: ``planned``, ``behind``, ``left`` and ``eta``.

    ``stands``: how far the plan should be now, in percent, while the day's window lasts.
    """
    start_ms, end_ms = (int(moment(day[name]).timestamp() * 1_000) for name in ("start", "end"))
    left = sum(part["totals"][state] for state in LEFT)
    found = day_progress(runs=part["runs"], left=left, start_ms=start_ms, end_ms=end_ms, now_ms=now_ms)
    ends = None if paused or found.ends_ms is None else found.ends_ms
    return {
        "planned": found.planned,
        "behind": found.behind,
        "left": left,
        "late": bool(found.behind > max(1, part["runs"] / 100)),
        "stands": round(100 * (now_ms - start_ms) / max(end_ms - start_ms, 1), 2)
        if start_ms <= now_ms <= end_ms
        else None,
        "eta": ends and {"from": to_text(ends[0]), "to": to_text(ends[1])},
    }


def _lane(
    part: dict[str, Any], day: dict[str, Any], batch: dict[str, Any], standing: dict[str, Any] | None, now_ms: int
) -> dict[str, Any]:
    """Returns a provider's progress, and its standing if it is not open."""
    held = standing if standing is not None and standing["state"] != "open" else None
    return _progress(part, day, now_ms, paused=batch["paused"] or held is not None) | {"held": held}


def _reason(run: dict[str, Any], standing: dict[str, Any] | None, now: datetime) -> str:
    """Returns why the run is in its state.

    The list has no reason for a waiting run, so its due time gives the reason.
    """
    if run["state"] == "done" and not run["reason"]:
        return f"answered {run['status_code'] or ''} in {milliseconds(run['latency_ms'])}".replace("  ", " ")
    if run["reason"] or run["state"] not in LEFT:
        return str(run["reason"])
    if run["state"] == "out":
        return "its provider is being called"
    if standing is not None and standing["state"] == "paused":
        return "its provider is paused"
    if standing is not None and standing["state"] == "closed":
        return f"its provider is closed: {standing['reason']}"
    return "its time has not come" if moment(run["due"]) > now else "waits for its turn at its provider"


def _beside(days: list[dict[str, Any]], date: str) -> dict[str, str]:
    """Returns the days before and after this one, if they are planned."""
    names = [named_day(day)["name"] for day in days]
    at = names.index(date) if date in names else -1
    found = {}
    if at > 0:
        found["after"] = names[at - 1]
    if 0 <= at < len(names) - 1:
        found["before"] = names[at + 1]
    return found


def _heading(day: dict[str, Any]) -> str:
    totals, dead = day["totals"], day["totals"]["failed"] + day["totals"]["unknown"]
    left = sum(totals[state] for state in LEFT)
    gave_up = f", {count(dead, 'run')} gave up" if dead else ""
    if left:
        return f"{count(left, 'run')} of {day['runs']:,} still to do{gave_up}."
    return f"All {count(day['runs'], 'run')} ended{gave_up}." if day["runs"] else "Nothing was planned."


def _chart(day: dict[str, Any], now_ms: int) -> dict[str, Any]:
    """Returns the plan of the day in windows: past ones, those to come, and the place of now."""
    values = [window["runs"] for window in day["histogram"]]
    start, end = moment(day["start"]), moment(day["end"])
    top = pictures.nice_top(max(values, default=0))
    share = (now_ms / 1_000 - start.timestamp()) / max((end - start).total_seconds(), 1)
    passed = min(max(int(share * len(values)) + 1, 0), len(values)) if share >= 0 else 0
    return {
        "height": CHART_HEIGHT,
        "come": pictures.bars([*values[:passed], *[0] * (len(values) - passed)], top, CHART_HEIGHT),
        "bars": pictures.bars([*[0] * passed, *values[passed:]], top, CHART_HEIGHT),
        "windows": max(len(values), 1),
        "values": pictures.value_ticks(top, CHART_HEIGHT),
        "times": pictures.time_ticks(start, end),
        "now": round(100 * share, 2) if 0 <= share <= 1 else None,
        "least": min(values, default=0),
        "most": max(values, default=0),
    }
