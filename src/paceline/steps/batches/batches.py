"""Batches and their records: put by operators; records that come during a day are planned into the rest of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from paceline.core.batches.batch import Batch, RecordSpec, parse_batch, parse_record
from paceline.core.batches.deletion import no_batch
from paceline.core.batches.order import CHAIN_MAX, chain_problem
from paceline.core.batches.records.options import NO_OPTIONS, keep_hidden_options
from paceline.core.batches.values import BatchPut, RecordPut
from paceline.core.ids import id_problem
from paceline.core.monitors.checks import HIDDEN
from paceline.errors import AlreadyExists, FieldProblem, InvalidInput, NotFound, PacelineError, RevisionMismatch
from paceline.ports import BatchStore, Vault
from paceline.steps.batches.headers import seal_headers
from paceline.steps.batches.late_records import plan_late_records
from paceline.steps.edit import edit

PAGE_RECORDS = 10_000
"""Number of records in one transaction: short enough not to hold up claims in between."""


class PutRecord(msgspec.Struct, frozen=True, gc=False):
    """Result for one record. ``id`` is empty if the record could not be read."""

    id: str
    disposition: Literal["created", "replaced", "unchanged", "refused"]
    error: PacelineError | None = None


def put_batch(
    store: BatchStore, batch_id: str, body: bytes, *, expected_revision: int | None = None, now_ms: int
) -> BatchPut:
    """Put a batch from JSON."""
    if problem := id_problem(batch_id, "/id"):
        raise InvalidInput.of(problem)
    result = store.put_batch(batch_id, parse_batch(body), expected_revision=expected_revision, now_ms=now_ms)
    if result.disposition == "revision_mismatch":
        now = f"it is at revision {result.batch.revision}" if result.batch else "it does not exist"
        raise RevisionMismatch(f"Batch {batch_id!r} is not as you have seen it: {now}. Read it again and retry.")
    _refuse_deleting(result)
    return result


def set_batch_paused(store: BatchStore, batch_id: str, *, paused: bool, now_ms: int) -> BatchPut:
    def attempt() -> BatchPut | None:
        batch = get_batch(store, batch_id)
        spec = msgspec.structs.replace(batch.spec, paused=paused)
        result = store.put_batch(batch_id, spec, expected_revision=batch.revision, now_ms=now_ms)
        _refuse_deleting(result)
        return None if result.disposition == "revision_mismatch" else result

    return edit(f"Batch {batch_id!r}", attempt)


def _refuse_deleting(put: BatchPut) -> None:
    if put.disposition == "deleting":
        assert put.batch is not None
        raise AlreadyExists(f"Batch {put.batch.id!r} is being deleted. Wait until it is gone, or choose another name.")


def get_batch(store: BatchStore, batch_id: str) -> Batch:
    batch = store.batch(batch_id)
    if batch is None:
        raise NotFound(f"There is no batch {batch_id!r}. An admin can put one.")
    return batch


def put_records(
    store: BatchStore,
    batch: Batch,
    records: Sequence[RecordSpec | bytes | msgspec.Raw],
    *,
    now_ms: int,
    vault: Vault | None = None,
) -> list[PutRecord]:
    """Put records, each judged by itself, also from JSON; then plan late ones into the rest of the day."""
    judged = [record if isinstance(record, RecordSpec) else judge_record(record) for record in records]
    results = put_parsed_records(store, batch, judged, now_ms=now_ms, vault=vault)
    plan_late_records(store, batch, now_ms=now_ms)
    return results


def put_parsed_records(
    store: BatchStore,
    batch: Batch,
    records: Sequence[RecordSpec | PutRecord],
    *,
    now_ms: int,
    vault: Vault | None = None,
) -> list[PutRecord]:
    """Write the records among refusals, page by page. Late records stay to be planned: a long import does that once.

    ``vault`` seals headers; only records without any may be put without one.
    """
    results: list[PutRecord] = []
    for first in range(0, len(records), PAGE_RECORDS):
        page = [_sealed(store, batch, record, vault) for record in records[first : first + PAGE_RECORDS]]
        page = _without_cycles(store, batch, page)
        valid = [record for record in page if isinstance(record, RecordSpec)]
        puts = store.put_records(batch, valid, now_ms=now_ms) if valid else []
        put_results = [_result_of(batch, record, put) for record, put in zip(valid, puts, strict=True)]
        if len(valid) < len(page):
            each = iter(put_results)
            put_results = [next(each) if isinstance(record, RecordSpec) else record for record in page]
        results += put_results
    return results


def _sealed(
    store: BatchStore, batch: Batch, record: RecordSpec | PutRecord, vault: Vault | None
) -> RecordSpec | PutRecord:
    """Return the record with its headers sealed. A header given as it is shown (hidden) keeps the stored value."""
    if isinstance(record, PutRecord) or not record.options.headers:
        return record
    assert vault is not None, "headers are sealed before they are stored"
    options = msgspec.structs.replace(record.options, headers=seal_headers(record.options.headers, vault))
    if HIDDEN in options.headers.values():
        stored = store.record(batch, record.id)
        try:
            options = keep_hidden_options(options, stored.options if stored else NO_OPTIONS)
        except InvalidInput as error:
            return PutRecord(record.id, "refused", error)
    return msgspec.structs.replace(record, options=options)


def _without_cycles(
    store: BatchStore, batch: Batch, page: Sequence[RecordSpec | PutRecord]
) -> list[RecordSpec | PutRecord]:
    """Refuse records that come after a missing record, or, through others, after themselves."""
    wanted = {one.id: one.options.after for one in page if isinstance(one, RecordSpec)}
    asked = {after for after in wanted.values() if after is not None}
    if not asked:
        return list(page)
    known: dict[str, str | None] = dict(wanted)
    for _ in range(CHAIN_MAX):
        found = store.afters(batch, asked - known.keys())
        known |= found
        asked = {after for after in found.values() if after is not None} - known.keys()
        if not asked:
            break
    return [_judged_by_chain(one, known) for one in page]


def _judged_by_chain(record: RecordSpec | PutRecord, known: Mapping[str, str | None]) -> RecordSpec | PutRecord:
    if isinstance(record, PutRecord) or record.options.after is None:
        return record
    detail = chain_problem(record.id, record.options.after, known)
    return PutRecord(record.id, "refused", InvalidInput.of(FieldProblem("/after", detail))) if detail else record


def judge_record(body: bytes | msgspec.Raw, *, pointer: str = "") -> RecordSpec | PutRecord:
    """Return a record from JSON, or its refusal."""
    try:
        return parse_record(body, pointer=pointer)
    except PacelineError as error:
        return PutRecord("", "refused", error)


def remove_record(store: BatchStore, batch: Batch, record_id: str) -> None:
    if not store.remove_record(batch, record_id):
        raise no_record(batch, record_id)


def get_record(store: BatchStore, batch: Batch, record_id: str) -> RecordSpec:
    record = store.record(batch, record_id)
    if record is None:
        raise no_record(batch, record_id)
    return record


def no_record(batch: Batch, record_id: str) -> NotFound:
    return NotFound(f"Batch {batch.id!r} has no record {record_id!r}.")


def _result_of(batch: Batch, record: RecordSpec, put: RecordPut) -> PutRecord:
    match put:
        case "no_batch":
            return PutRecord(record.id, "refused", no_batch(batch.id))
        case "no_provider":
            detail = f"there is no provider {record.provider!r}; put it first"
            return PutRecord(record.id, "refused", InvalidInput.of(FieldProblem("/provider", detail)))
        case _:
            return PutRecord(record.id, put)
