"""Accounts: what is left of each meter, and the keys."""

from __future__ import annotations

from typing import Any

from paceline.core.instants import to_text
from paceline.core.jobs.meters import DAY_MS
from paceline.shells.api.http.answers import Answer
from paceline.shells.api.http.context import Call
from paceline.shells.api.http.route import Group, Route
from paceline.shells.dashboard.asking import Api
from paceline.shells.dashboard.rendering import Place, page
from paceline.shells.dashboard.words import count

PAGES = Group("Dashboard")
DAYS_TOLD = 3_650
"""What lasts longer is not told."""
METERS = (("concurrent", "Slots"), ("daily_results", "Results today"), ("daily_credits", "Credits today"))


@Route(PAGES, "GET", "/ui/accounts", {200: "text/html"}, access="admin", page=True)
async def list_accounts(call: Call) -> Answer:
    """Accounts with their meters and keys."""
    api = Api(call)
    listed = await api.get("/v1/accounts", {"limit": 1_000})
    items = listed["items"]
    return await page(
        call,
        "accounts.html",
        Place("accounts", "Accounts"),
        items=items,
        meters=METERS,
        pool=_pool(items, api.now_ms),
        heading=_heading(items),
    )


def _pool(items: list[dict[str, Any]], now_ms: int) -> dict[str, Any] | None:
    """The balance of all accounts that can be used, what they use a day, and when it ends; None: nothing is known."""
    known = [one["usage"] for one in items if one["enabled"] and one["usage"]["balance"] is not None]
    left = sum(usage["balance"]["left"] for usage in known)
    used = sum(usage["daily_credits"][name] for usage in known for name in ("spent", "held", "foreign"))
    days = left / used if used > 0 else DAYS_TOLD
    if days >= DAYS_TOLD:
        return None
    return {"left": left, "used": used, "ends": to_text(now_ms + int(days * DAY_MS))}


def _heading(items: list[dict[str, Any]]) -> str:
    ready = sum(one["state"] == "ready" for one in items)
    if not items:
        return "There is no account yet."
    if ready == len(items):
        return "The account is ready." if ready == 1 else f"All {ready} accounts are ready."
    return f"{count(len(items) - ready, 'account')} of {len(items)} cannot send now."
