"""Routes that explain a run, a monitor that does not fire, a record that did not run, and a job that is not done."""

from __future__ import annotations

from paceline.shells.api.http.answers import ApiAnswer, json_answer
from paceline.shells.api.http.auth import viewer_of
from paceline.shells.api.http.context import ApiCall
from paceline.shells.api.http.route import RouteGroup
from paceline.shells.api.outgoing import canonical_call_run, canonical_run
from paceline.steps.batches.batches import get_batch
from paceline.steps.monitors.define import get_monitor
from paceline.steps.views.job_report import find_job
from paceline.steps.why import runs, why_not
from paceline.steps.why.view import WhyView

WHY = RouteGroup("Why")


@WHY.get("/v1/runs/{run}/why", WhyView)
async def explain_run(call: ApiCall) -> ApiAnswer:
    """Explains why a run waits or how it went: the chain of reasons, and when it starts.

    Takes a monitor's run, a measurement `job/index`, a refused job `user/refused#number`, or, for admins, a batch's
    run.
    """
    api, viewer, text = call.api, viewer_of(call.user), call.params["run"]
    run = (viewer is None and canonical_call_run(text)) or canonical_run(text)
    view = await api.work(runs.explain_run, api.store, run, viewer=viewer, now_ms=api.now_ms())
    return json_answer(200, view)


@WHY.get("/v1/users/{user}/monitors/{id}/why", WhyView)
async def explain_monitor(call: ApiCall) -> ApiAnswer:
    """Explains why a monitor does not fire: by a run that waits, else by its next firing."""
    api = call.api
    monitor = await api.read(get_monitor, api.store, call.owner, call.params["id"])
    return json_answer(200, await api.work(why_not.explain_monitor, api.store, monitor, now_ms=api.now_ms()))


@WHY.get("/v1/batches/{batch}/records/{record}/why", WhyView, access="admin")
async def explain_record(call: ApiCall) -> ApiAnswer:
    """Explains why a record did not run today: by its run of the day, or why there is none."""
    api, params = call.api, call.params
    batch = await api.read(get_batch, api.store, params["batch"])
    view = await api.work(why_not.explain_record, api.store, batch, params["record"], now_ms=api.now_ms())
    return json_answer(200, view)


@WHY.get("/v1/jobs/{job}/why", WhyView)
async def explain_job(call: ApiCall) -> ApiAnswer:
    """Explains why a job is not done: by its first measurement that waits or runs."""
    api, viewer = call.api, viewer_of(call.user)
    job = await api.read(find_job, api.store, viewer, call.params["job"])
    view = await api.work(why_not.explain_job, api.store, job, viewer=viewer, now_ms=api.now_ms())
    return json_answer(200, view)
