"""Page of accounts: what is left of each meter, and the keys."""

from __future__ import annotations

from typing import Any

from paceline.core.instants import to_datetime, to_text
from paceline.core.jobs.meters import DAY_MS
from paceline.shells.api.http.answers import ApiAnswer
from paceline.shells.api.http.context import ApiCall
from paceline.shells.dashboard import pictures
from paceline.shells.dashboard.asking import Api
from paceline.shells.dashboard.rendering import PageGroup, PagePlace, page
from paceline.shells.dashboard.words import count, moment

PAGES = PageGroup("Dashboard")
FORECAST_DAYS_MAX = 3_650
"""A balance that lasts longer gets no forecast."""
FORECAST_STEP_MS = 600_000
"""Forecasts are rounded to this."""
METERS = (("concurrent", "Slots"), ("daily_results", "Results, 24 h"), ("daily_credits", "Credits, 24 h"))
SENDS = ("ready", "full", "closed")
"""States of accounts whose limits count, because they send now or will."""


@PAGES.page("/ui/accounts", access="admin")
async def list_accounts(call: ApiCall) -> ApiAnswer:
    """Shows accounts with their meters, how long their balances last, and the keys."""
    api = Api(call)
    listed = await api.get("/v1/accounts", {"limit": 1_000})
    items = [one | {"lasts": _lasts(one)} for one in listed["items"]]
    return await page(
        call,
        "accounts.html",
        PagePlace("accounts", "Accounts"),
        items=items,
        meters=METERS,
        totals={name: meter_total(items, name) for name, _ in METERS},
        pool=pool_forecast(items, api.now_ms),
        heading=_heading(items, api.now_ms),
    )


def meter_total(accounts: list[dict[str, Any]], name: str) -> dict[str, int]:
    """Returns one meter of all accounts that can send, added up."""
    meters = [one["usage"][name] for one in accounts if one["state"] in SENDS]
    fields = ("spent", "held", "foreign", "limit", "left")
    return {"accounts": len(meters), **{field: sum(meter[field] for meter in meters) for field in fields}}


def pool_forecast(accounts: list[dict[str, Any]], now_ms: int) -> dict[str, Any] | None:
    """Returns the balance of all usable accounts, and when it ends at the use of the last 24 hours.

    ``ends`` is the earliest end, if all that is held is spent; ``latest`` is the end if none of it is. Either is None
    if it is not within ten years. Returns None if no balance is known.
    """
    known = [one["usage"] for one in accounts if one["enabled"] and one["usage"]["balance"] is not None]
    if not known:
        return None
    left = sum(usage["balance"]["left"] for usage in known)
    slow = sum(usage["daily_credits"][name] for usage in known for name in ("spent", "foreign"))
    fast = slow + sum(usage["daily_credits"]["held"] for usage in known)
    return {
        "left": left,
        "used": fast,
        "ends": _ends(left, fast, now_ms),
        "latest": _ends(left, slow, now_ms),
        "chart": pictures.forecast_chart(left, (slow, fast), to_datetime(now_ms)),
    }


def _ends(left: int, a_day: int, now_ms: int) -> str | None:
    days = left / a_day if a_day > 0 else FORECAST_DAYS_MAX
    at_ms = now_ms + int(days * DAY_MS)
    return None if days >= FORECAST_DAYS_MAX else to_text(at_ms - at_ms % FORECAST_STEP_MS)  # or each look would differ


def _lasts(account: dict[str, Any]) -> str:
    """Returns the words for a balance without a foreseeable end."""
    meter = account["usage"]["daily_credits"]
    return "lasts for years" if meter["spent"] + meter["held"] + meter["foreign"] else "not used"


def _heading(items: list[dict[str, Any]], now_ms: int) -> dict[str, str]:
    """Returns the heading: the account that runs out first, if within a day; else the accounts that cannot send."""
    ready = sum(one["state"] == "ready" for one in items)
    ending = [(one["usage"]["balance_ends"], one["id"]) for one in items if one["enabled"]]
    soon = [pair for pair in ending if pair[0] and moment(pair[0]).timestamp() * 1_000 < now_ms + DAY_MS]
    if soon:
        at, name = min(soon)
        text = f"{name} runs out of credits within a day, about {moment(at):%H:%M} UTC."
        return {"text": text, "icon": "late", "tone": "t-warn"}
    if not items:
        return {"text": "There is no account yet.", "icon": "", "tone": ""}
    if ready == len(items):
        text = "The account is ready." if ready == 1 else f"All {ready} accounts are ready."
        return {"text": text, "icon": "ok", "tone": "t-ok"}
    return {
        "text": f"{count(len(items) - ready, 'account')} of {len(items)} cannot send now.",
        "icon": "late",
        "tone": "t-warn",
    }
