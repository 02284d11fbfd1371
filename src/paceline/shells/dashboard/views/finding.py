"""What several pages ask: whose things are shown, and which monitors need attention."""

from __future__ import annotations

from typing import Any

from paceline.shells.api.http.context import Call
from paceline.shells.api.http.pages import query
from paceline.shells.dashboard.asking import Api, together
from paceline.shells.dashboard.words import moment

LOOKED_AT = 1_000
SHOWN = 10


def whose_of(call: Call) -> str:
    """``mine`` or ``all``; an admin sees everybody's unless the address says otherwise."""
    asked = dict(part.split("=", 1) for part in call.query_string.decode("latin-1").split("&") if "=" in part)
    if call.user.role != "admin":
        return "mine"
    return "mine" if asked.get("whose") == "mine" else "all"


def asked_of(call: Call, *names: str) -> dict[str, str]:
    """The query parameters of a page, each a text, empty where it was not given."""
    given = query(call.query_string, *names)
    return {name: given.get(name, "") for name in names}


async def attention_monitors(api: Api, whose: str) -> dict[str, Any]:
    """Counts by health, and the first monitors that fail or are late, each with the reason of its newest run."""
    del whose
    found = await api.get("/v1/users/{user}/monitors", {"limit": LOOKED_AT}, user="me")
    items = found["items"]
    wrong = [one for one in items if one["health"] in ("failing", "late")]
    wrong.sort(key=lambda one: one["health"] != "failing")
    await together(*(add_newest_run(api, one) for one in wrong[:SHOWN]))
    return {
        "items": wrong[:SHOWN],
        "total": len(items),
        **{name: sum(one["health"] == name for one in items) for name in ("failing", "late", "paused", "new", "ok")},
    }


async def add_newest_run(api: Api, monitor: dict[str, Any]) -> None:
    """Adds ``newest``: the newest run that has ended, or that waits if none has; None: there is none."""
    runs = await api.get("/v1/users/{user}/monitors/{id}/runs", {"limit": 5}, user=monitor["user"], id=monitor["id"])
    ended = [run for run in runs["items"] if run["outcome"]]
    monitor["newest"] = next(iter(ended or runs["items"]), None)


def with_share(day: dict[str, Any], now_ms: int) -> dict[str, Any]:
    """Adds to a running day where its plan stands, in percent while its window is on, and what is left."""
    on = moment(day["start"]).timestamp() * 1_000 <= now_ms <= moment(day["end"]).timestamp() * 1_000
    totals = day["totals"]
    return day | {
        "stands": round(100 * day["planned"] / day["runs"], 1) if on and day["runs"] else None,
        "left": sum(totals[state] for state in ("waiting", "out", "retry", "aside")),
        "gave_up": totals["failed"] + totals["unknown"],
    }
