"""Routes of batches: put, read, pause, resume."""

from __future__ import annotations

from urllib.parse import quote

from paceline.core.batches.batch import Batch
from paceline.core.batches.values import BatchPut
from paceline.errors import AlreadyExists
from paceline.shells import lists
from paceline.shells.api.http.answers import ApiAnswer, Header, empty_answer, json_answer
from paceline.shells.api.http.context import ApiCall, ApiContext
from paceline.shells.api.http.etags import etag_header, guard_of, not_modified, put_guarded
from paceline.shells.api.http.route import READ_HEADERS, RouteGroup
from paceline.steps.batches import batches, deletion
from paceline.steps.views.report import BatchView, batch_view

BATCHES = RouteGroup("Batches", access="admin")
_BATCH = "/v1/batches/{batch}"


@BATCHES.put(_BATCH, BatchView, document="BatchSpec", problems=(AlreadyExists,))
async def put_batch(call: ApiCall) -> ApiAnswer:
    """Creates the batch (201) or replaces it (200)."""
    api, batch_id = call.api, call.params["batch"]

    def put(expected: int | None) -> BatchPut:
        return batches.put_batch(api.store, batch_id, call.body, expected_revision=expected, now_ms=api.now_ms())

    guard = guard_of(call.headers)
    done = await api.write(
        lambda: put_guarded(guard, "batch", batch_id, read=lambda: api.store.batch(batch_id), put=put)
    )
    api.hooks.wake()
    assert done.batch is not None
    if done.disposition != "created":
        return _shown(api, 200, done.batch)
    return _shown(api, 201, done.batch, (b"location", f"/v1/batches/{quote(batch_id, safe='')}".encode()))


@BATCHES.get(_BATCH, BatchView, headers=READ_HEADERS)
async def show_batch(call: ApiCall) -> ApiAnswer:
    """The batch with its next start."""
    batch = await call.api.read(batches.get_batch, call.api.store, call.params["batch"])
    return not_modified(call.headers, batch) or _shown(call.api, 200, batch)


@BATCHES.delete(_BATCH, {202: BatchView, 204: None})
async def remove_batch(call: ApiCall) -> ApiAnswer:
    """Deletes the batch with its records and runs: 204 when it is gone, 202 while the deletion goes on."""
    api, batch_id = call.api, call.params["batch"]
    left = await api.write(lambda: deletion.delete_batch(api.store, batch_id, now_ms=api.now_ms()))
    api.hooks.wake()
    return empty_answer(204) if left is None else _shown(api, 202, left)


@BATCHES.post(f"{_BATCH}/pause", BatchView, problems=(AlreadyExists,))
async def pause_batch(call: ApiCall) -> ApiAnswer:
    """Pauses the batch: nothing more of it starts."""
    return await _set_paused(call, paused=True)


@BATCHES.post(f"{_BATCH}/resume", BatchView, problems=(AlreadyExists,))
async def resume_batch(call: ApiCall) -> ApiAnswer:
    """Resumes the batch; it catches up at a limited pace."""
    return await _set_paused(call, paused=False)


@BATCHES.get_page("/v1/batches", BatchView)
async def list_batches(call: ApiCall) -> ApiAnswer:
    """All batches in order of id."""
    return json_answer(200, await call.api.listed(call.page(), lists.list_batches))


async def _set_paused(call: ApiCall, *, paused: bool) -> ApiAnswer:
    api, batch_id = call.api, call.params["batch"]
    put = await api.write(lambda: batches.set_batch_paused(api.store, batch_id, paused=paused, now_ms=api.now_ms()))
    api.hooks.wake()
    assert put.batch is not None
    return _shown(api, 200, put.batch)


def _shown(api: ApiContext, status: int, batch: Batch, *headers: Header) -> ApiAnswer:
    return json_answer(status, batch_view(batch, now_ms=api.now_ms()), etag_header(batch), *headers)
