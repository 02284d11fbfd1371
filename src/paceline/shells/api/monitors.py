"""Monitors: put, read, edit, pause, resume, remove, in bulk, and their runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from urllib.parse import quote

import msgspec

from paceline.core.check_secrets import hides
from paceline.core.definition import Monitor, MonitorSpec
from paceline.core.parsing import decode_part
from paceline.errors import FieldProblem, InvalidInput, PacelineError, RevisionMismatch
from paceline.ports import PutMonitor, PutResult, RemoveMonitor
from paceline.shells.api.answers import Answer, Header, empty_answer, json_answer
from paceline.shells.api.documents import BulkAnswer, BulkBody, BulkResult
from paceline.shells.api.etags import NO_GUARD, Guard, etag_of, expected_revision, guard_of, matches
from paceline.shells.api.pages import Page, make_cursor, page_query, position_of
from paceline.shells.api.parts import Call, Parts
from paceline.shells.api.problems import problem_of
from paceline.shells.api.writes import Put
from paceline.steps import access, define
from paceline.steps.report import MonitorView, monitor_runs, monitor_view, monitor_views

TRIES_MAX = 8
"""How often a guarded write looks again when somebody else wrote in between and the guard still holds."""
BULK_CHUNK = 250
"""Each is a commit of its own, and other users' writes come in between: a quarter of the room of one turn."""
_ITEM = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ID = msgspec.json.Decoder(str)
_NOT_YET = BulkResult(None, "refused")


async def put_monitor(call: Call) -> Answer:
    owner, monitor_id = call.owner, call.params["id"]
    put = define.parse_put(owner, monitor_id, call.body, call.parts.limits)
    guard = guard_of(call.headers)
    if guard is NO_GUARD and not hides(put.spec.check):
        done = await call.parts.do(call.parts.writes.put, call.parts.seal(put))
    else:
        done = await _put_guarded(call.parts, put, guard)
    if not done.created:
        return _shown(200, done.monitor, done.view)
    path = f"/v1/users/{owner}/monitors/{quote(monitor_id, safe='')}"
    return _shown(201, done.monitor, done.view, (b"location", path.encode()))


async def show_monitor(call: Call) -> Answer:
    parts = call.parts
    monitor = define.get_monitor(parts.store, call.owner, call.params["id"])
    seen = guard_of(call.headers).if_none_match
    if seen is not None and matches(seen, monitor, weak=True):
        return empty_answer(304, (b"etag", etag_of(monitor).encode()))
    return _shown(200, monitor, monitor_view(parts.store, monitor, now_ms=parts.now_ms()))


async def patch_monitor(call: Call) -> Answer:
    patch, limits, vault = call.body, call.parts.limits, call.parts.system.vault
    return await _edit(call, lambda spec: define.merge_patch(spec, patch, limits, vault))


async def pause_monitor(call: Call) -> Answer:
    return await _edit(call, lambda spec: define.set_paused(spec, paused=True))


async def resume_monitor(call: Call) -> Answer:
    return await _edit(call, lambda spec: define.set_paused(spec, paused=False))


async def remove_monitor(call: Call) -> Answer:
    parts, owner, monitor_id = call.parts, call.owner, call.params["id"]
    guard = guard_of(call.headers)
    for _ in range(TRIES_MAX):
        remove = RemoveMonitor(owner, monitor_id)
        if guard is not NO_GUARD:
            monitor = define.get_monitor(parts.store, owner, monitor_id)
            seen = expected_revision(guard, monitor, monitor_id)
            remove = RemoveMonitor(owner, monitor_id, seen, expected_generation=monitor.generation)
        try:
            await parts.do(parts.writes.remove, remove)
        except RevisionMismatch:
            continue
        return empty_answer(204)
    raise _too_busy(monitor_id)


async def list_monitors(call: Call) -> Answer:
    owner = access.get_user(call.parts.store, call.owner).id
    query = page_query(call.query_string, limit_max=call.parts.system.settings.page_max)
    scope = f"monitors {owner}"
    after = str(position_of(query.cursor, scope, ""))
    views, more = await asyncio.to_thread(_page_of_monitors, call.parts, owner, after=after, limit=query.limit)
    return json_answer(200, Page(views, make_cursor(scope, views[-1].id) if more else None))


async def put_monitors(call: Call) -> Answer:
    parts, owner = call.parts, call.owner
    access.get_user(parts.store, owner)
    puts, results = await asyncio.to_thread(_parse_bulk, parts, owner, call.body)
    for start in range(0, len(puts), BULK_CHUNK):
        chunk = puts[start : start + BULK_CHUNK]
        done = await parts.do(parts.writes.put_lists, [put for _, put in chunk], weight=len(chunk))
        for (index, put), result in zip(chunk, done, strict=True):
            results[index] = _bulk_result(put, result, parts.writes.put_error(result, put))
    return json_answer(200, BulkAnswer(results))


async def list_runs(call: Call) -> Answer:
    parts = call.parts
    monitor = define.get_monitor(parts.store, call.owner, call.params["id"])
    query = page_query(call.query_string, limit_max=call.parts.system.settings.page_max)
    scope = f"runs {monitor.generation}"
    before = int(position_of(query.cursor, scope, 0)) or None
    views, following = await asyncio.to_thread(
        monitor_runs, parts.store, monitor, before=before, limit=query.limit, now_ms=parts.now_ms()
    )
    return json_answer(200, Page(views, None if following is None else make_cursor(scope, following)))


async def _put_guarded(parts: Parts, put: PutMonitor, guard: Guard) -> Put:
    """The guard is judged on what is there now, and written only onto that."""
    for _ in range(TRIES_MAX):
        monitor = parts.store.monitor(put.owner, put.id)
        guarded = msgspec.structs.replace(
            put,
            expected_revision=expected_revision(guard, monitor, put.id),
            expected_generation=monitor.generation if monitor is not None else None,
        )
        try:
            return await parts.do(parts.writes.put, parts.seal(guarded))
        except RevisionMismatch:
            continue
    raise _too_busy(put.id)


async def _edit(call: Call, change: Callable[[MonitorSpec], MonitorSpec]) -> Answer:
    owner, monitor_id, guard = call.owner, call.params["id"], guard_of(call.headers)
    monitor, view = await call.parts.write(lambda: _edit_now(call.parts, owner, monitor_id, change, guard))
    return _shown(200, monitor, view)


def _edit_now(
    parts: Parts,
    owner: str,
    monitor_id: str,
    change: Callable[[MonitorSpec], MonitorSpec],
    guard: Guard,
) -> tuple[Monitor, MonitorView]:
    """In the writing thread."""
    seen = expected_revision(guard, define.get_monitor(parts.store, owner, monitor_id), monitor_id)
    now_ms = parts.now_ms()
    result = define.edit_monitor(
        parts.store,
        owner,
        monitor_id,
        change,
        expected_revision=None if guard.if_match == "*" else seen,
        monitors_max=parts.system.settings.monitors_max,
        firings_max=parts.system.settings.firings_per_second_max,
        now_ms=now_ms,
    )
    assert result.monitor is not None
    if result.disposition != "unchanged":
        parts.hooks.wake()
    return result.monitor, monitor_view(parts.store, result.monitor, now_ms=now_ms)


def _page_of_monitors(parts: Parts, owner: str, *, after: str, limit: int) -> tuple[list[MonitorView], bool]:
    monitors = parts.store.monitors(owner, after=after, limit=limit + 1)
    return monitor_views(parts.store, monitors[:limit], now_ms=parts.now_ms()), len(monitors) > limit


def _parse_bulk(parts: Parts, owner: str, body: BulkBody) -> tuple[list[tuple[int, PutMonitor]], list[BulkResult]]:
    """What can be put, with its place, and for the rest why not. Of several items with one id the first counts."""
    items_max = parts.system.settings.bulk_max
    if len(body.items) > items_max:
        raise InvalidInput.of(FieldProblem("/items", f"at most {items_max} items; send the rest in another request"))
    puts: list[tuple[int, PutMonitor]] = []
    results: list[BulkResult] = [_NOT_YET] * len(body.items)
    seen: set[str] = set()
    for index, raw in enumerate(body.items):
        pointer = f"/items/{index}"
        monitor_id: str | None = None
        try:
            document = decode_part(_ITEM, bytes(raw), pointer)
            if "id" not in document:
                raise InvalidInput.of(FieldProblem(f"{pointer}/id", "this field is required"))
            monitor_id = decode_part(_ID, bytes(document.pop("id")), f"{pointer}/id")
            if monitor_id in seen:
                raise InvalidInput.of(FieldProblem(f"{pointer}/id", "this id stands in the list already; give it once"))
            put = define.parse_put(owner, monitor_id, msgspec.json.encode(document), parts.limits, pointer=pointer)
            put = parts.seal(put, pointer=pointer)
        except PacelineError as error:
            results[index] = BulkResult(monitor_id, "refused", problem_of(error))
            continue
        seen.add(monitor_id)
        puts.append((index, put))
    return puts, results


def _bulk_result(put: PutMonitor, result: PutResult, error: PacelineError | None) -> BulkResult:
    match result.disposition:
        case "created" | "replaced" | "unchanged" as disposition:
            return BulkResult(put.id, disposition)
        case _:
            assert error is not None
            return BulkResult(put.id, "refused", problem_of(error))


def _shown(status: int, monitor: Monitor, view: MonitorView, *headers: Header) -> Answer:
    return json_answer(status, view, (b"etag", etag_of(monitor).encode()), *headers)


def _too_busy(monitor_id: str) -> RevisionMismatch:
    return RevisionMismatch(f"Monitor {monitor_id!r} is being changed by others all the time. Try again.")
