"""Accounts: what is left of each meter, and the keys."""

from __future__ import annotations

from typing import Any

from paceline.shells.api.http.answers import Answer
from paceline.shells.api.http.context import Call
from paceline.shells.api.http.route import Group, Route
from paceline.shells.dashboard.asking import Api
from paceline.shells.dashboard.rendering import Place, page
from paceline.shells.dashboard.words import count

PAGES = Group("Dashboard")
METERS = (("concurrent", "Slots"), ("daily_results", "Results today"), ("daily_credits", "Credits today"))


@Route(PAGES, "GET", "/ui/accounts", {200: "text/html"}, access="admin", page=True)
async def list_accounts(call: Call) -> Answer:
    """Accounts with their meters and keys."""
    listed = await Api(call).get("/v1/accounts", {"limit": 1_000})
    items = listed["items"]
    return await page(
        call, "accounts.html", Place("accounts", "Accounts"), items=items, meters=METERS, heading=_heading(items)
    )


def _heading(items: list[dict[str, Any]]) -> str:
    ready = sum(one["state"] == "ready" for one in items)
    if not items:
        return "There is no account yet."
    if ready == len(items):
        return "The account is ready." if ready == 1 else f"All {ready} accounts are ready."
    return f"{count(len(items) - ready, 'account')} of {len(items)} cannot send now."
