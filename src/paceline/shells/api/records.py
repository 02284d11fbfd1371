"""Routes of a batch's records: put many, as one JSON document or as any number of lines; read and remove."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

import msgspec

from paceline.core.batches.batch import BODY_BYTES_MAX, ENDPOINT_CHARS_MAX, Batch, RecordSpec, record_document
from paceline.core.parsing import decode
from paceline.errors import FieldProblem, InvalidInput, MalformedBody
from paceline.shells import lists
from paceline.shells.api.documents import BulkResult, RecordsAnswer, RecordsBody, RecordView, RefusedLine
from paceline.shells.api.http.answers import ApiAnswer, empty_answer, json_answer, tagged_answer
from paceline.shells.api.http.bodies import BodyLine, is_lines, read_body, read_line_pages
from paceline.shells.api.http.context import OWN_WEIGHT, ApiCall, ApiContext
from paceline.shells.api.http.pages import truth
from paceline.shells.api.http.problems import point_into, problem_of
from paceline.shells.api.http.route import READ_HEADERS, RouteGroup
from paceline.shells.lists import ListPage
from paceline.steps.batches import batches
from paceline.steps.batches.batches import PutRecord
from paceline.steps.batches.late_records import plan_late_records

LINE_BYTES_MAX = 2 * BODY_BYTES_MAX + ENDPOINT_CHARS_MAX
REFUSALS_MAX = 1_000
"""Refused lines that an answer names at most; further ones are only counted."""
RECORDS_CHUNK = 1_000
"""Records of one write. Other writes come in between."""
RECORDS_PER_PUT = 4
"""How many records take about as long to write as one put of a monitor."""
_BODY = msgspec.json.Decoder(RecordsBody)
RECORDS = RouteGroup("Batches", access="admin")
_RECORDS = "/v1/batches/{batch}/records"
_RECORD = f"{_RECORDS}/{{record}}"


@RECORDS.put_many(_RECORDS, RecordsAnswer, document="RecordsBody", body_bytes_max=sys.maxsize, streamed=True)
async def put_records(call: ApiCall) -> ApiAnswer:
    """Puts many records, as one document or as any number of lines."""
    api = call.api
    batch = await api.read(batches.get_batch, api.store, call.params["batch"])
    answer = await (_put_lines if is_lines(call.headers) else _put_items)(call, batch)
    await api.write(lambda: plan_late_records(api.store, batch, now_ms=api.now_ms()))
    api.hooks.wake()
    return json_answer(200, answer)


@RECORDS.get_page(_RECORDS, RecordView, headers=READ_HEADERS, query=("provider", "active"))
async def list_records(call: ApiCall) -> ApiAnswer:
    """The batch's records in order of id."""
    api = call.api
    batch = await api.read(batches.get_batch, api.store, call.params["batch"])
    asked = call.page("provider", "active")
    active = truth(asked.given, "active", default=False) if "active" in asked.given else None
    page = await api.listed(asked, lists.list_records, batch, asked.given.get("provider"), active=active)
    return tagged_answer(ListPage([record_view(record) for record in page.items], page.next_cursor), call.headers)


@RECORDS.get(_RECORD, RecordView)
async def show_record(call: ApiCall) -> ApiAnswer:
    """The record."""
    store, name = call.api.store, call.params["record"]

    def find() -> RecordSpec:
        return batches.get_record(store, batches.get_batch(store, call.params["batch"]), name)

    return json_answer(200, record_view(await call.api.read(find)))


@RECORDS.delete(_RECORD)
async def remove_record(call: ApiCall) -> ApiAnswer:
    """Removes the record; it no longer runs, not even today."""
    store, record_id = call.api.store, call.params["record"]

    def remove() -> None:
        batches.remove_record(store, batches.get_batch(store, call.params["batch"]), record_id)

    await call.api.write(remove)
    return empty_answer(204)


def record_view(record: RecordSpec) -> RecordView:
    return RecordView(**record_document(record))


async def _put_items(call: ApiCall, batch: Batch) -> RecordsAnswer:
    """Puts the records of one document, limited like a bulk put of monitors. Returns a disposition for each item."""
    settings = call.api.system.settings
    body = await read_body(
        call.receive, call.headers, bytes_max=settings.body_bytes_max, timeout_s=call.api.body_timeout_s
    )
    items = decode(_BODY, body).items
    if len(items) > settings.bulk_max:
        detail = f"at most {settings.bulk_max} items; send the rest in another request, or all as application/x-ndjson"
        raise InvalidInput.of(FieldProblem("/items", detail))
    results: list[BulkResult] = []
    for first in range(0, len(items), RECORDS_CHUNK):
        chunk = items[first : first + RECORDS_CHUNK]
        judged = [batches.judge_record(raw, pointer=f"/items/{first + index}") for index, raw in enumerate(chunk)]
        done = await _write(call.api, batch, judged)
        results += [_result(put, f"/items/{first + index}") for index, put in enumerate(done)]
    return _answer(Counter(result.disposition for result in results), items=results)


async def _put_lines(call: ApiCall, batch: Batch) -> RecordsAnswer:
    """Puts lines as they arrive, a page at a time. Records that were put stay, even if the rest never arrives."""
    counts: Counter[str] = Counter()
    refusals: list[RefusedLine] = []
    pages = read_line_pages(call.receive, line_bytes_max=LINE_BYTES_MAX, timeout_s=call.api.body_timeout_s)
    async for page in pages:
        done = await _write(call.api, batch, [_judge(line) for line in page])
        counts.update(put.disposition for put in done)
        for line, put in zip(page, done, strict=True):
            if put.error is not None and len(refusals) < REFUSALS_MAX:
                refusals.append(RefusedLine(line.number, put.id or None, put.error.code, put.error.detail))
    return _answer(counts, refusals=refusals)


async def _write(api: ApiContext, batch: Batch, judged: Sequence[RecordSpec | PutRecord]) -> list[PutRecord]:
    """Writes one chunk. New records are not planned here: that is done once, after the last chunk."""
    return await api.write(
        lambda: batches.put_parsed_records(api.store, batch, judged, now_ms=api.now_ms(), vault=api.system.vault),
        weight=max(OWN_WEIGHT, len(judged) // RECORDS_PER_PUT),
    )


def _judge(line: BodyLine) -> RecordSpec | PutRecord:
    if line.text is None:
        return PutRecord("", "refused", MalformedBody(f"The line is longer than {LINE_BYTES_MAX} bytes."))
    return batches.judge_record(line.text)


def _result(put: PutRecord, pointer: str) -> BulkResult:
    error = problem_of(point_into(put.error, pointer)) if put.error is not None else None
    return BulkResult(put.id or None, put.disposition, error)


def _answer(
    counts: Counter[str],
    *,
    items: list[BulkResult] | msgspec.UnsetType = msgspec.UNSET,
    refusals: list[RefusedLine] | msgspec.UnsetType = msgspec.UNSET,
) -> RecordsAnswer:
    return RecordsAnswer(
        created=counts["created"],
        replaced=counts["replaced"],
        unchanged=counts["unchanged"],
        refused=counts["refused"],
        items=items,
        refusals=refusals,
    )
