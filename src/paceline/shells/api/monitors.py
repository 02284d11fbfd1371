"""Routes of monitors: put, read, edit, pause, resume, remove, put many, and list their runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from urllib.parse import quote

import msgspec

from paceline.core.monitors.check_secrets import hides
from paceline.core.monitors.definition import Monitor, MonitorSpec
from paceline.core.monitors.values import PutMonitor, PutResult, RemoveMonitor
from paceline.core.parsing import decode_part
from paceline.errors import FieldProblem, InvalidInput, LimitReached, PacelineError, RevisionMismatch
from paceline.shells import lists
from paceline.shells.api.documents import BulkAnswer, BulkBody, BulkResult
from paceline.shells.api.http import etags
from paceline.shells.api.http.answers import ApiAnswer, Header, empty_answer, json_answer
from paceline.shells.api.http.batched_writes import Put
from paceline.shells.api.http.context import ApiCall, ApiContext
from paceline.shells.api.http.group_commit import Batch
from paceline.shells.api.http.problems import problem_of
from paceline.shells.api.http.route import EDIT_HEADERS, READ_HEADERS, RouteGroup
from paceline.steps import access
from paceline.steps.alerts.channels import KnownChannels
from paceline.steps.monitors import define
from paceline.steps.monitors.phases import allot_list
from paceline.steps.views.report import MonitorView, RunView, monitor_view

BULK_CHUNK = 250
"""Items of one commit: a quarter of a group commit's room, so that other users' writes come in between."""
_ITEM = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ID = msgspec.json.Decoder(str)
_NOT_YET = BulkResult(None, "refused")
MONITORS = RouteGroup("Monitors")
_MONITORS = "/v1/users/{user}/monitors"
_MONITOR = f"{_MONITORS}/{{id}}"


@MONITORS.put(_MONITOR, MonitorView, document="MonitorBody", hot=True, problems=(LimitReached,))
async def put_monitor(call: ApiCall) -> ApiAnswer:
    """Creates the monitor (201) or replaces it (200)."""
    owner, monitor_id = call.owner, call.params["id"]
    put = define.parse_put(owner, monitor_id, call.body, call.api.limits)
    guard = etags.guard_of(call.headers)
    if guard is etags.NO_GUARD and not hides(put.spec.check):
        sealed = await call.api.read(call.api.seal, put) if put.spec.alert.channels else call.api.seal(put)
        done = await call.api.do(call.api.writes.put, sealed)
    else:
        done = await _put_guarded(call.api, put, guard)
    if not done.created:
        return _shown(200, done.monitor, done.view)
    path = f"/v1/users/{owner}/monitors/{quote(monitor_id, safe='')}"
    return _shown(201, done.monitor, done.view, (b"location", path.encode()))


@MONITORS.get(_MONITOR, MonitorView, headers=READ_HEADERS)
async def show_monitor(call: ApiCall) -> ApiAnswer:
    """The monitor with its schedule and health."""
    api = call.api
    monitor = await api.read(define.get_monitor, api.store, call.owner, call.params["id"])
    if unchanged := etags.not_modified(call.headers, monitor):
        return unchanged
    return _shown(200, monitor, await api.read(monitor_view, api.store, monitor, now_ms=api.now_ms()))


@MONITORS.patch(_MONITOR, MonitorView, document="MonitorPatchBody", headers=EDIT_HEADERS, problems=(RevisionMismatch,))
async def edit_monitor(call: ApiCall) -> ApiAnswer:
    """Changes some fields (JSON merge patch, RFC 7396)."""
    patch, limits, vault = call.body, call.api.limits, call.api.system.vault
    return await _edit(call, lambda spec: define.merge_patch(spec, patch, limits, vault))


@MONITORS.delete(_MONITOR, headers=EDIT_HEADERS, problems=(RevisionMismatch,))
async def remove_monitor(call: ApiCall) -> ApiAnswer:
    """Removes the monitor; it does not fire any more."""
    api, owner, monitor_id = call.api, call.owner, call.params["id"]
    guard = etags.guard_of(call.headers)

    async def attempt() -> bool | None:
        remove = RemoveMonitor(owner, monitor_id)
        if guard is not etags.NO_GUARD:
            monitor = await api.read(define.get_monitor, api.store, owner, monitor_id)
            seen = etags.expected_revision(guard, monitor, monitor_id)
            remove = RemoveMonitor(owner, monitor_id, seen, expected_generation=monitor.generation)
        with suppress(RevisionMismatch):
            await api.do(api.writes.remove, remove)
            return True
        return None

    await etags.edit_together(f"Monitor {monitor_id!r}", attempt)
    return empty_answer(204)


@MONITORS.post(f"{_MONITOR}/pause", MonitorView, headers=EDIT_HEADERS, problems=(RevisionMismatch,))
async def pause_monitor(call: ApiCall) -> ApiAnswer:
    """Pauses the monitor; it keeps its counter."""
    return await _edit(call, lambda spec: define.set_paused(spec, paused=True))


@MONITORS.post(f"{_MONITOR}/resume", MonitorView, headers=EDIT_HEADERS, problems=(RevisionMismatch,))
async def resume_monitor(call: ApiCall) -> ApiAnswer:
    """Resumes the monitor at once."""
    return await _edit(call, lambda spec: define.set_paused(spec, paused=False))


@MONITORS.get_page(f"{_MONITOR}/runs", RunView)
async def list_monitor_runs(call: ApiCall) -> ApiAnswer:
    """The monitor's runs, newest first."""
    api = call.api
    monitor = await api.read(define.get_monitor, api.store, call.owner, call.params["id"])
    return json_answer(200, await api.listed(call.page(), lists.list_monitor_runs, monitor))


@MONITORS.put_many(_MONITORS, BulkAnswer, body=BulkBody, body_bytes_max=sys.maxsize)
async def put_monitors(call: ApiCall) -> ApiAnswer:
    """Puts many monitors; answers with a disposition for each."""
    api, owner = call.api, call.owner
    await api.read(access.get_user, api.store, owner)
    puts, results = await api.work(_parse_bulk, api, owner, call.body)
    done = await _put_chunks(api, api.writes.put_known_lists, [put for _, put in puts])
    left = [at for at, result in enumerate(done) if result.disposition == "unplaced"]
    # Phases are allotted to all of the request together, however many commits it takes.
    placed = await api.work(allot_list, api.store, [puts[at][1] for at in left], now_ms=api.now_ms())
    for at, result in zip(left, await _put_chunks(api, api.writes.put_lists, placed), strict=True):
        done[at] = result
    for (index, put), result in zip(puts, done, strict=True):
        results[index] = _bulk_result(api, put, result)
    return json_answer(200, BulkAnswer(results))


async def _put_chunks(
    api: ApiContext, write: Batch[Sequence[PutMonitor], list[PutResult]], puts: Sequence[PutMonitor]
) -> list[PutResult]:
    done: list[PutResult] = []
    for start in range(0, len(puts), BULK_CHUNK):
        chunk = puts[start : start + BULK_CHUNK]
        done += await api.do(write, chunk, weight=len(chunk))
    return done


async def _put_guarded(api: ApiContext, put: PutMonitor, guard: etags.RequestGuard) -> Put:
    """Puts the monitor if the stored one satisfies the conditional headers; retries if somebody wrote in between."""

    async def attempt() -> Put | None:
        monitor = await api.read(api.store.monitor, put.owner, put.id)
        expected = etags.expected_revision(guard, monitor, put.id)
        generation = None if monitor is None else monitor.generation
        guarded = msgspec.structs.replace(put, expected_revision=expected, expected_generation=generation)
        sealed = await api.read(api.seal, guarded)
        with suppress(RevisionMismatch):
            return await api.do(api.writes.put, sealed)
        return None

    return await etags.edit_together(f"Monitor {put.id!r}", attempt)


async def _edit(call: ApiCall, change: Callable[[MonitorSpec], MonitorSpec]) -> ApiAnswer:
    owner, monitor_id, guard = call.owner, call.params["id"], etags.guard_of(call.headers)
    monitor, view = await call.api.write(lambda: _edit_now(call.api, owner, monitor_id, change, guard))
    return _shown(200, monitor, view)


def _edit_now(
    api: ApiContext,
    owner: str,
    monitor_id: str,
    change: Callable[[MonitorSpec], MonitorSpec],
    guard: etags.RequestGuard,
) -> tuple[Monitor, MonitorView]:
    """Edits the monitor if the stored one satisfies the conditional headers. Runs in a writing thread."""
    seen = etags.expected_revision(guard, define.get_monitor(api.store, owner, monitor_id), monitor_id)
    now_ms = api.now_ms()
    result = define.edit_monitor(
        api.store,
        owner,
        monitor_id,
        change,
        expected_revision=None if guard.if_match == "*" else seen,
        now_ms=now_ms,
        **api.writes.limits,
    )
    assert result.monitor is not None
    if result.disposition != "unchanged":
        api.hooks.wake()
    return result.monitor, monitor_view(api.store, result.monitor, now_ms=now_ms)


def _parse_bulk(api: ApiContext, owner: str, body: BulkBody) -> tuple[list[tuple[int, PutMonitor]], list[BulkResult]]:
    """Returns the valid puts with their index, and a result for each item.

    If an id is repeated, its first item counts.
    """
    items_max = api.system.settings.bulk_max
    if len(body.items) > items_max:
        raise InvalidInput.of(FieldProblem("/items", f"at most {items_max} items; send the rest in another request"))
    puts: list[tuple[int, PutMonitor]] = []
    results: list[BulkResult] = [_NOT_YET] * len(body.items)
    seen: set[str] = set()
    known: KnownChannels = {}
    for index, raw in enumerate(body.items):
        pointer = f"/items/{index}"
        monitor_id: str | None = None
        try:
            document = decode_part(_ITEM, bytes(raw), pointer)
            if "id" not in document:
                raise InvalidInput.of(FieldProblem(f"{pointer}/id", "this field is required"))
            monitor_id = decode_part(_ID, bytes(document.pop("id")), f"{pointer}/id")
            if monitor_id in seen:
                raise InvalidInput.of(FieldProblem(f"{pointer}/id", "this id is already in the list; give it once"))
            put = define.parse_put(owner, monitor_id, msgspec.json.encode(document), api.limits, pointer=pointer)
            put = api.seal(put, pointer=pointer, known=known)
        except PacelineError as error:
            results[index] = BulkResult(monitor_id, "refused", problem_of(error))
            continue
        seen.add(monitor_id)
        puts.append((index, put))
    return puts, results


def _bulk_result(api: ApiContext, put: PutMonitor, result: PutResult) -> BulkResult:
    match result.disposition:
        case "created" | "replaced" | "unchanged" as disposition:
            return BulkResult(put.id, disposition)
        case _:
            error = define.put_error(result, put, **api.writes.limits)
            assert error is not None
            return BulkResult(put.id, "refused", problem_of(error))


def _shown(status: int, monitor: Monitor, view: MonitorView, *headers: Header) -> ApiAnswer:
    return json_answer(status, view, etags.etag_header(monitor), *headers)
