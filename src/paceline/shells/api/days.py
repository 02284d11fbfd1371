"""Routes of a batch's days: plan, rerun, report, list, list their runs, and export."""

from __future__ import annotations

from typing import cast, get_args

import msgspec

from paceline.core.batches.batch import Day, day_at
from paceline.errors import FieldProblem, InvalidInput, LimitReached
from paceline.shells import lists
from paceline.shells.api.documents import PlanAnswer, PlanBody, RerunAnswer, RerunBody
from paceline.shells.api.http.answers import ApiAnswer, Stream, json_answer, stream_answer, tagged_answer
from paceline.shells.api.http.context import ApiCall
from paceline.shells.api.http.pages import query, truth
from paceline.shells.api.http.route import READ_HEADERS, RouteGroup
from paceline.shells.cursors import make_cursor, position_of
from paceline.shells.lists import ListPage
from paceline.steps.batches import batches, export
from paceline.steps.batches.plan import plan_day
from paceline.steps.batches.preview import Preview, preview
from paceline.steps.batches.rerun import rerun
from paceline.steps.views import days
from paceline.steps.views.days import CallRunView, DayReport, DaySummary, ProviderDay
from paceline.steps.views.running_days import RunningDay, running_days

_MEDIA = {"ndjson": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}
DAYS = RouteGroup("Batches", access="admin")
_RUNNING = "running days"
_DAYS = "/v1/batches/{batch}/days"
_DAY = f"{_DAYS}/{{date}}"


@DAYS.post(
    "/v1/batches/{batch}/plan", (PlanAnswer, Preview), body=PlanBody, body_needed=False, query=("dry_run",), waits=True
)
async def plan_batch(call: ApiCall) -> ApiAnswer:
    """Plans a day: each active record gets one run, however often you plan it.

    A plan of a million runs takes a while, page by page; other writes come in between.
    """
    body: PlanBody = call.body
    api = call.api
    batch = await api.read(batches.get_batch, api.store, call.params["batch"])
    date = days.check_date(body.date) if body.date is not msgspec.UNSET else day_at(batch.spec, api.now_ms())
    if truth(query(call.query_string, "dry_run"), "dry_run", default=False):
        return json_answer(200, await api.work(preview, api.store, batch, date, now_ms=api.now_ms()))
    report = await api.work(plan_day, api.store, batch, date, now_ms=api.now_ms())
    api.hooks.wake()
    return json_answer(200, PlanAnswer(report.enqueued, report.already, report.skipped))


@DAYS.get_page("/v1/days", RunningDay, headers=READ_HEADERS, waits=True)
async def list_running_days(call: ApiCall) -> ApiAnswer:
    """The running days in order of batch: the progress of each, and when it ends."""
    api = call.api
    asked = call.page()
    after = position_of(asked.cursor, _RUNNING, "")
    found = await api.read(api.store.batches, after=after, limit=asked.limit + 1)
    shown = found[: asked.limit]
    key = f"days {asked.limit} {after}"
    shared = api.of_user(key)  # a turn of its own: those who wait for it are not behind the asker's other requests
    views = await api.kept.get(key, lambda: shared.work(running_days, api.store, shown, now_ms=api.now_ms()))
    cursor = make_cursor(_RUNNING, shown[-1].id) if len(found) > asked.limit else None
    return tagged_answer(ListPage(views, cursor), call.headers)


@DAYS.get_page(_DAYS, DaySummary, headers=READ_HEADERS)
async def list_days(call: ApiCall) -> ApiAnswer:
    """The batch's days, newest first."""
    api = call.api
    batch = await api.read(batches.get_batch, api.store, call.params["batch"])
    return tagged_answer(await api.listed(call.page(), lists.list_days, batch), call.headers)


@DAYS.get(_DAY, DayReport, headers=READ_HEADERS, waits=True)
async def show_day(call: ApiCall) -> ApiAnswer:
    """The day: totals by state and provider, evenness, histogram."""
    return tagged_answer(await call.api.work(lists.show_day, call.api.system, await _day(call)), call.headers)


@DAYS.get_page(f"{_DAY}/providers", ProviderDay, headers=READ_HEADERS, waits=True)
async def list_day_providers(call: ApiCall) -> ApiAnswer:
    """The day's providers in order of id, each with its totals and how even its runs are."""
    day = await _day(call)
    return tagged_answer(await call.api.listed(call.page(), lists.list_day_providers, day), call.headers)


@DAYS.post(f"{_DAY}/rerun", RerunAnswer, body=RerunBody, problems=(LimitReached,), waits=True)
async def rerun_day(call: ApiCall) -> ApiAnswer:
    """Runs the day's ended runs again, each once, however often you ask."""
    api, body = call.api, call.body
    batch = await api.read(batches.get_batch, api.store, call.params["batch"])
    done = await api.work(
        rerun,
        api.store,
        batch,
        days.check_date(call.params["date"]).isoformat(),
        state=None if body.state is msgspec.UNSET else body.state,
        records=None if body.records is msgspec.UNSET else body.records,
        now_ms=api.now_ms(),
    )
    api.hooks.wake()
    return json_answer(200, RerunAnswer(done.enqueued, done.rerun))


@DAYS.get_page(f"{_DAY}/runs", CallRunView, headers=READ_HEADERS, query=("state", "provider"))
async def list_day_runs(call: ApiCall) -> ApiAnswer:
    """The day's runs with their results."""
    day = await _day(call)
    asked = call.page("state", "provider")
    filters = {name: asked.given.get(name) for name in ("state", "provider")}
    return tagged_answer(await call.api.listed(asked, lists.list_day_runs, day, **filters), call.headers)


@DAYS.get(f"{_DAY}/export", "application/x-ndjson, text/csv", query=("format", "state", "provider"), waits=True)
async def export_day(call: ApiCall) -> Stream:
    """The day's runs as a file, streamed."""
    day = await _day(call)
    asked = query(call.query_string, "format", "state", "provider")
    form = asked.get("format", "ndjson")
    if form not in get_args(export.Format):
        raise InvalidInput.of(FieldProblem("/query/format", "ndjson or csv"))
    pages = await call.api.work(
        export.export_day,
        call.api.store,
        day,
        form=cast("export.Format", form),
        state=asked.get("state"),
        provider=asked.get("provider"),
    )
    name = f'attachment; filename="{day.batch}-{day.date}.{form}"'
    disposition = (b"content-disposition", name.encode())
    return stream_answer(pages, _MEDIA[form], disposition, threads=call.api.work_threads)


async def _day(call: ApiCall) -> Day:
    store, params = call.api.store, call.params
    return await call.api.read(lambda: days.get_day(store, batches.get_batch(store, params["batch"]), params["date"]))
