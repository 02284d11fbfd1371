"""Routes of the service itself: liveness, readiness, metrics, and the status that an admin sees."""

from __future__ import annotations

from contextlib import suppress

from paceline.errors import StoreDamaged, StoreUnavailable
from paceline.shells.api.documents import Alive, LoopView, Ready
from paceline.shells.api.http.answers import ApiAnswer, json_answer, text_answer
from paceline.shells.api.http.context import ApiCall, ApiContext
from paceline.shells.api.http.problems import NotReady
from paceline.shells.api.http.route import RouteGroup
from paceline.shells.cursors import position_of
from paceline.shells.daemon.metrics import CONTENT_TYPE
from paceline.shells.lists import first_of
from paceline.steps.views.report import SchedulerView, scheduler_view
from paceline.steps.views.service_report import ServiceStatus, service_status

REFRESH_S_MAX = 0.4
"""Longest wait for new figures. Together with the wait for a trial write, /metrics answers within two seconds."""
SERVICE = RouteGroup("Service")


@SERVICE.get_page("/v1/schedulers", SchedulerView, access="admin")
async def list_schedulers(call: ApiCall) -> ApiAnswer:
    """All entries of the scheduler, in order of generation."""
    api = call.api
    asked = call.page()
    after = position_of(asked.cursor, "schedulers", 0)
    rows = await api.work(api.store.schedulers, after_generation=after, limit=asked.limit + 1, now_ms=api.now_ms())
    page = first_of(rows, asked, "schedulers", at=lambda row: row.entry.generation, view=scheduler_view)
    return json_answer(200, page)


@SERVICE.get("/v1/status", ServiceStatus, access="admin")
async def show_status(call: ApiCall) -> ApiAnswer:
    """Counts and ages of everything."""
    api = call.api
    store_url = api.system.settings.store
    return json_answer(200, await api.work(service_status, api.store, store_url, now_ms=api.now_ms()))


@SERVICE.get("/healthz", Alive, access="open")
async def show_health(call: ApiCall) -> ApiAnswer:
    """Liveness: the process answers."""
    del call
    return json_answer(200, Alive())


@SERVICE.get("/readyz", Ready, access="open", problems=(StoreUnavailable, StoreDamaged, NotReady))
async def show_readiness(call: ApiCall) -> ApiAnswer:
    """Readiness: the store can be written and every loop turns.

    Answers within two seconds, even if something hangs.
    """
    api = call.api
    await api.readiness.check()
    loops = api.hooks.loops()
    if stuck := [loop for loop in loops if not loop.turning]:
        names = ", ".join(f"{loop.name} ({loop.age_s:.0f} s since its last turn)" for loop in stuck)
        raise NotReady(
            f"These loops are stuck or have ended: {names}. Look at the log; restart if they do not recover."
        )
    views = [LoopView(loop.name, loop.turning, round(loop.age_s, 3)) for loop in loops]
    return json_answer(200, Ready("ready", views))


@SERVICE.get("/metrics", "text/plain", access="open")
async def show_metrics(call: ApiCall) -> ApiAnswer:
    """Metrics for Prometheus."""
    api = call.api
    try:
        # On AWS each trial write costs money: there, a successful one counts for longer.
        await api.readiness.check(counts_s=api.system.traits.keep_ms / 1_000)
        api.hooks.metrics.set_store_up(1)
    except StoreUnavailable:
        api.hooks.metrics.set_store_up(0)
    # A store that hangs must not delay the figures that are already known.
    await api.readiness.look(lambda: _refresh(api), wait_s=REFRESH_S_MAX)
    return text_answer(200, api.hooks.metrics.render(), CONTENT_TYPE)


def _refresh(api: ApiContext) -> None:
    """Reads the gauges from the store, at most once a second (on AWS once a minute), since anybody may ask."""
    figures = api.hooks.metrics
    if not figures.take_refresh(api.now_ms(), every_ms=api.system.traits.keep_ms):
        return
    figures.set_loop_ages((loop.name, loop.age_s) for loop in api.hooks.loops())
    with suppress(StoreUnavailable):
        figures.set_status(api.store.status(), now_ms=api.now_ms())
