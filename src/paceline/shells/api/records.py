"""A batch's records: put many at once, as one JSON document or as lines without end; read and remove."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from paceline.core.batch import BODY_BYTES_MAX, ENDPOINT_CHARS_MAX, Batch, RecordSpec, record_document
from paceline.core.parsing import decode
from paceline.errors import FieldProblem, InvalidInput, MalformedBody, PacelineError
from paceline.shells.api.answers import Answer, empty_answer, json_answer
from paceline.shells.api.bodies import Line, is_lines, read_body, read_line_pages
from paceline.shells.api.documents import BulkResult, RecordsAnswer, RecordsBody, RecordView, RefusedLine
from paceline.shells.api.pages import Page, make_cursor, page_query, position_of
from paceline.shells.api.parts import OWN_WEIGHT, Call, Parts
from paceline.shells.api.problems import problem_of
from paceline.steps import batches
from paceline.steps.batches import PutRecord
from paceline.steps.newcomers import plan_newcomers

LINE_BYTES_MAX = 2 * BODY_BYTES_MAX + ENDPOINT_CHARS_MAX
REFUSALS_MAX = 1_000
RECORDS_CHUNK = 1_000
"""Other writes come in between the chunks."""
RECORDS_PER_PUT = 4
"""So many records take about as long as one put of a monitor."""
"""So many refused lines at most are named; the others are counted."""
_BODY = msgspec.json.Decoder(RecordsBody)


async def put_records(call: Call) -> Answer:
    parts = call.parts
    batch = batches.get_batch(parts.store, call.params["batch"])
    answer = await (_put_lines if is_lines(call.headers) else _put_items)(call, batch)
    await parts.write(lambda: plan_newcomers(parts.store, batch, now_ms=parts.now_ms()))
    parts.hooks.wake()
    return json_answer(200, answer)


async def show_record(call: Call) -> Answer:
    store = call.parts.store
    batch = batches.get_batch(store, call.params["batch"])
    return json_answer(200, record_view(batches.get_record(store, batch, call.params["record"])))


async def list_records(call: Call) -> Answer:
    store = call.parts.store
    batch = batches.get_batch(store, call.params["batch"])
    asked = page_query(call.query_string, limit_max=call.parts.system.settings.page_max)
    scope = f"records {batch.number}"
    found = store.records(batch, after=str(position_of(asked.cursor, scope, "")), limit=asked.limit + 1)
    cursor = make_cursor(scope, found[asked.limit - 1].id) if len(found) > asked.limit else None
    return json_answer(200, Page([record_view(record) for record in found[: asked.limit]], cursor))


async def remove_record(call: Call) -> Answer:
    parts, record_id = call.parts, call.params["record"]
    batch = batches.get_batch(parts.store, call.params["batch"])
    await parts.write(lambda: batches.remove_record(parts.store, batch, record_id))
    return empty_answer(204)


def record_view(record: RecordSpec) -> RecordView:
    return RecordView(**record_document(record))


async def _put_items(call: Call, batch: Batch) -> RecordsAnswer:
    """One document, bounded as a bulk put of monitors is; a disposition for each item."""
    settings = call.parts.system.settings
    body = await read_body(
        call.receive, call.headers, bytes_max=settings.body_bytes_max, timeout_s=call.parts.body_timeout_s
    )
    items = decode(_BODY, body).items
    if len(items) > settings.bulk_max:
        detail = f"at most {settings.bulk_max} items; send the rest in another request, or all as application/x-ndjson"
        raise InvalidInput.of(FieldProblem("/items", detail))
    results: list[BulkResult] = []
    for first in range(0, len(items), RECORDS_CHUNK):
        chunk = items[first : first + RECORDS_CHUNK]
        judged = [batches.judge_record(raw, pointer=f"/items/{first + index}") for index, raw in enumerate(chunk)]
        done = await _write(call.parts, batch, judged)
        results += [_result(put, f"/items/{first + index}") for index, put in enumerate(done)]
    return _answer(Counter(result.disposition for result in results), items=results)


async def _put_lines(call: Call, batch: Batch) -> RecordsAnswer:
    """Lines as they come, a page at a time. What was put stays, also if the rest never comes."""
    counts: Counter[str] = Counter()
    refusals: list[RefusedLine] = []
    pages = read_line_pages(call.receive, line_bytes_max=LINE_BYTES_MAX, timeout_s=call.parts.body_timeout_s)
    async for page in pages:
        done = await _write(call.parts, batch, [_judge(line) for line in page])
        counts.update(put.disposition for put in done)
        for line, put in zip(page, done, strict=True):
            if put.error is not None and len(refusals) < REFUSALS_MAX:
                refusals.append(RefusedLine(line.number, put.id or None, put.error.code, put.error.detail))
    return _answer(counts, refusals=refusals)


async def _write(parts: Parts, batch: Batch, judged: Sequence[RecordSpec | PutRecord]) -> list[PutRecord]:
    """Newcomers stay to be planned: that is done once, when all have come."""
    return await parts.write(
        lambda: batches.put_parsed_records(parts.store, batch, judged, now_ms=parts.now_ms()),
        weight=max(OWN_WEIGHT, len(judged) // RECORDS_PER_PUT),
    )


def _judge(line: Line) -> RecordSpec | PutRecord:
    if line.text is None:
        return PutRecord("", "refused", MalformedBody(f"The line is longer than {LINE_BYTES_MAX} bytes."))
    return batches.judge_record(line.text)


def _result(put: PutRecord, pointer: str) -> BulkResult:
    error = problem_of(_pointed(put.error, pointer)) if put.error is not None else None
    return BulkResult(put.id or None, put.disposition, error)


def _pointed(error: PacelineError, pointer: str) -> PacelineError:
    """What the store found wrong with a record names only the field: here the record is one of many."""
    if not error.errors or error.errors[0].pointer.startswith(pointer):
        return error
    return InvalidInput.of(*(FieldProblem(pointer + field.pointer, field.detail) for field in error.errors))


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
