"""Jobs: how far they are, what they cost, and what needs a look."""

from __future__ import annotations

from paceline.shells.api.http.answers import Answer
from paceline.shells.api.http.context import Call
from paceline.shells.api.http.route import Group, Route
from paceline.shells.dashboard.asking import Api, together
from paceline.shells.dashboard.rendering import Place, page
from paceline.shells.dashboard.views.finding import asked_of, whose_of
from paceline.shells.dashboard.words import number

PAGES = Group("Dashboard")
ROWS = 50
STATES = ("queued", "parked", "sending", "unknown", "ongoing", "done", "failed", "cancelled")


@Route(PAGES, "GET", "/ui/jobs", {200: "text/html"}, page=True, query=("whose", "cursor"))
async def list_jobs(call: Call) -> Answer:
    """Jobs, newest first, and what is left of the day's credits."""
    api, asked, whose = Api(call), asked_of(call, "whose", "cursor"), whose_of(call)
    mine = {"user": api.user.id} if whose == "mine" else {}
    listed, budget = await together(
        api.get("/v1/jobs", {"limit": ROWS, "cursor": asked["cursor"], **mine}),
        api.get("/v1/users/{user}/budget", user="me"),
    )
    return await page(
        call,
        "jobs.html",
        Place("jobs", "Jobs"),
        whose=whose,
        items=listed["items"],
        budget=budget,
        asked=asked,
        next_cursor=listed["next_cursor"],
    )


@Route(PAGES, "GET", "/ui/jobs/{job}", {200: "text/html"}, page=True, query=("state", "from"))
async def show_job(call: Call) -> Answer:
    """One job: progress, cost, and its measurements with account and reason."""
    api, asked = Api(call), asked_of(call, "state", "from")
    job = await api.get("/v1/jobs/{job}", {"measurements": "true"}, job=call.params["job"])
    why = None if job["finished"] else await api.find("/v1/jobs/{job}/why", job=call.params["job"])
    found = [one for one in job["measurements"] if asked["state"] in ("", one["state"])]
    start = int(asked["from"]) if asked["from"].isdigit() and len(asked["from"]) < 9 else 0
    return await page(
        call,
        "job.html",
        Place("jobs", job["title"] or job["job"], (("Jobs", "/ui/jobs"),)),
        job=job,
        why=why,
        total=sum(job["counts"].values()),
        shown=found[start : start + ROWS],
        found=len(found),
        start=start,
        rows=ROWS,
        asked=asked,
        states=STATES,
        heading=_heading(job["counts"], finished=job["finished"], success=job["success"]),
    )


def _heading(counts: dict[str, int], *, finished: bool, success: bool) -> str:
    total = sum(counts.values())
    if finished:
        return "All measurements are done." if success else "It has ended, and not all went well."
    return f"{number(counts['done'])} of {number(total)} measurements are done."
