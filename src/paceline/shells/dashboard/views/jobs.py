"""Pages of jobs: their progress, their cost, and what needs attention."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from paceline.shells.api.http.answers import ApiAnswer
from paceline.shells.api.http.context import ApiCall
from paceline.shells.dashboard import result_figures
from paceline.shells.dashboard.asking import Api, together
from paceline.shells.dashboard.rendering import PageGroup, PagePlace, page
from paceline.shells.dashboard.views.finding import asked_of, whose_of
from paceline.shells.dashboard.words import count, number

PAGES = PageGroup("Dashboard")
ROWS = 50
STATES = ("failed", "unknown", "parked", "sending", "ongoing", "queued", "done", "cancelled")
"""States in the order of the page: those that need attention come first."""
RESULTS_BYTES_MAX = 4_000_000
RESULTS_S_MAX = 20.0
"""Longest time to read results for the pictures: RIPE is asked for one measurement after the other."""


@PAGES.page("/ui/jobs", "whose", "cursor")
async def list_jobs(call: ApiCall) -> ApiAnswer:
    """Shows jobs, newest first, and what is left of the day's credits."""
    api, asked, whose = Api(call), asked_of(call, "whose", "cursor"), whose_of(call)
    mine = {"user": api.user.id} if whose == "mine" else {}
    listed, budget = await together(
        api.get("/v1/jobs", {"limit": ROWS, "cursor": asked["cursor"], **mine}),
        api.get("/v1/users/{user}/budget", user="me"),
    )
    return await page(
        call,
        "jobs.html",
        PagePlace("jobs", "Jobs"),
        whose=whose,
        budget=budget,
        asked=asked,
        **listed,
    )


@PAGES.page("/ui/jobs/{job}", "state", "from")
async def show_job(call: ApiCall) -> ApiAnswer:
    """Shows one job: progress, place in the queue, cost, results, and its measurements with account and reason."""
    api, asked = Api(call), asked_of(call, "state", "from")
    job = await api.get("/v1/jobs/{job}", {"measurements": "true"}, job=call.params["job"])
    why = None if job["finished"] else await api.find("/v1/jobs/{job}/why", job=call.params["job"])
    found = [one for one in job["measurements"] if asked["state"] in ("", one["state"])]
    found.sort(key=lambda one: (STATES.index(one["state"]), one["index"]))
    start = int(asked["from"]) if asked["from"].isdigit() and len(asked["from"]) < 9 else 0
    return await page(
        call,
        "job.html",
        PagePlace("jobs", job["title"] or job["job"], (("Jobs", "/ui/jobs"),)),
        job=job,
        why=why,
        total=sum(job["counts"].values()),
        sent=any(one["atlas_ids"] for one in job["measurements"]),
        delivered=sum(one["results"] for one in job["measurements"]),
        shown=[one | {"reason": _reason(one)} for one in found[start : start + ROWS]],
        found=len(found),
        start=start,
        rows=ROWS,
        asked=asked,
        states=STATES,
        heading=_heading(job["counts"], finished=job["finished"], success=job["success"]),
    )


@PAGES.page("/ui/jobs/{job}/results")
async def show_results(call: ApiCall) -> ApiAnswer:
    """Shows the latencies of a job's results as small pictures.

    The job's page loads this later, because RIPE is slow.
    """
    api, name = Api(call), call.params["job"]
    job = await api.get("/v1/jobs/{job}", {"measurements": "false"}, job=name)
    read, more = await call.api.kept.get(f"results {api.user.id} {name}", lambda: _read_results(api, name))
    crumbs = (("Jobs", "/ui/jobs"), (job["title"] or name, f"/ui/jobs/{quote(name, safe='')}"))
    return await page(
        call,
        "results.html",
        PagePlace("jobs", "Results", crumbs),
        job=job,
        figures=result_figures.figures(read),
        height=result_figures.HEIGHT,
        more=more,
    )


async def _read_results(api: Api, job: str) -> tuple[Any, bool]:
    path = "/v1/jobs/{job}/results"
    lines, more = await api.lines(path, bytes_max=RESULTS_BYTES_MAX, within_s=RESULTS_S_MAX, job=job)
    return result_figures.read_lines(lines), more


def _reason(measurement: dict[str, Any]) -> str:
    """Returns why the measurement is in its state, or how many results have come if there is no reason."""
    if measurement["reason"] or measurement["state"] not in ("ongoing", "done"):
        return str(measurement["reason"])
    came = count(measurement["results"], "result") if measurement["results"] else "no result yet"
    return f"{came} from {count(measurement['probes'], 'probe')}"


def _heading(counts: dict[str, int], *, finished: bool, success: bool) -> str:
    total = sum(counts.values())
    if finished:
        return "All measurements are done." if success else "It has ended, but not everything succeeded."
    return f"{number(counts['done'])} of {number(total)} measurements are done."
