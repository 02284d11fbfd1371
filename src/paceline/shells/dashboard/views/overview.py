"""The overview: whether all is well, and if not, what is wrong, why, and since when."""

from __future__ import annotations

from typing import Any

from paceline.shells.api.http.answers import ApiAnswer
from paceline.shells.api.http.context import ApiCall
from paceline.shells.dashboard.asking import Api, together
from paceline.shells.dashboard.pictures import ahead_chart
from paceline.shells.dashboard.rendering import PageGroup, PagePlace, page
from paceline.shells.dashboard.views.accounts import meter_total, pool_forecast
from paceline.shells.dashboard.views.finding import attention_monitors, whose_of, with_share
from paceline.shells.dashboard.words import count, joined, number, sentence

PAGES = PageGroup("Dashboard")
JOBS_SHOWN = 5
DAYS_SHOWN = 20
DEAD_LOOKED_AT = 500
PROVIDERS_LOOKED_AT = 1_000


@PAGES.page("/", "whose")
async def show_overview(call: ApiCall) -> ApiAnswer:
    """Shows whether all is well, what is wrong and why, and how the work goes on."""
    api = Api(call)
    whose = whose_of(call)
    mine = {"user": api.user.id} if whose == "mine" else {}
    monitors, ahead, jobs, budget = await together(
        attention_monitors(api, whose),
        api.get("/v1/ahead", mine),
        api.get("/v1/jobs", {"limit": JOBS_SHOWN, **mine}),
        api.get("/v1/users/{user}/budget", user="me"),
    )
    values: dict[str, Any] = {"whose": whose, "monitors": monitors, "jobs": jobs["items"], "budget": budget}
    values |= {"ahead": ahead, "chart": ahead_chart(ahead) if ahead["parts"] else None}
    values |= await _of_admins(api) if api.user.role == "admin" else {"status": None}
    heading = _heading(values)
    return await page(call, "overview.html", PagePlace("overview", "Overview"), heading=heading, **values)


async def _of_admins(api: Api) -> dict[str, Any]:
    status, providers, accounts, dead, days = await together(
        api.get("/v1/status"),
        api.get("/v1/providers", {"limit": PROVIDERS_LOOKED_AT}),
        api.get("/v1/accounts"),
        api.get("/v1/dead", {"limit": DEAD_LOOKED_AT}),
        api.get("/v1/days", {"limit": DAYS_SHOWN}),
    )
    closed = [one for one in providers["items"] if one["standing"]["state"] == "closed"]
    return {
        "status": status,
        "closed": closed,
        "providers_paused": sum(one["standing"]["state"] == "paused" for one in providers["items"]),
        "accounts": accounts["items"],
        "aside": [one for one in accounts["items"] if one["state"] == "quarantined"],
        "credits": meter_total(accounts["items"], "daily_credits"),
        "pool": pool_forecast(accounts["items"], api.now_ms),
        "dead": _groups(dead["items"]),
        "days": [with_share(day, api.now_ms) for day in days["items"]],
    }


def _groups(dead: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns dead letters by provider and reason, the largest groups first."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for run in dead:
        key = (run["provider"], run["reason"])
        group = found.setdefault(key, {"provider": key[0], "reason": key[1], "runs": 0, "oldest": run["due"]})
        group["runs"] += 1
        group["oldest"] = min(group["oldest"], run["due"])
    return sorted(found.values(), key=lambda group: -group["runs"])


def _heading(values: dict[str, Any]) -> dict[str, str]:
    """Returns the heading: a sentence about the state."""
    monitors, status = values["monitors"], values["status"]
    wrong = []
    if monitors["failing"]:
        wrong.append(f"{_some(monitors, 'failing')} failing")
    if status and values["closed"]:
        wrong.append(f"{count(len(values['closed']), 'provider is', 'providers are')} closed")
    if monitors["late"]:
        wrong.append(f"{_some(monitors, 'late')} late")
    if status and values["aside"]:
        wrong.append(f"{count(len(values['aside']), 'account is', 'accounts are')} quarantined")
    if not monitors["total"]:
        second = "There is no monitor yet."
    elif monitors["more"]:
        second = f"There are {count(monitors['total'], 'monitor')}."
    else:
        fine = monitors["total"] - sum(monitors[name] for name in ("failing", "late", "paused"))
        rest = [f"{number(monitors['paused'])} paused"] if monitors["paused"] else []
        second = sentence(joined([*rest, f"{number(fine)} of {count(monitors['total'], 'monitor')} fine"]) + ".")
    if not wrong:
        return {"icon": "ok", "tone": "t-ok", "text": "Everything is on time.", "more": second}
    return {"icon": "bad", "tone": "t-bad", "text": f"{sentence(joined(wrong))}.", "more": second}


def _some(monitors: dict[str, Any], health: str) -> str:
    """Returns "3 monitors are", or "100+ monitors are" if there are more than were counted."""
    if health in monitors["more"]:
        return f"{number(monitors[health])}+ monitors are"
    return count(monitors[health], "monitor is", "monitors are")
