"""``paceline batch import``: reads records from a file of any length, a page at a time."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal, NamedTuple

import msgspec

from paceline.core.batches.batch import BODY_BYTES_MAX, Batch, RecordSpec, make_record, record_problems
from paceline.core.batches.records.options import NO_OPTIONS, RecordOptions
from paceline.core.parsing import decode
from paceline.errors import FieldProblem, InvalidInput, MalformedBody, PacelineError
from paceline.shells.cli.batches.commands import BatchOption, app, the_batch
from paceline.shells.cli.batches.over_rest import BATCH_PATH, batch_over_rest
from paceline.shells.cli.batches.sources import open_source, table_name
from paceline.shells.cli.call import CliCall, command
from paceline.shells.cli.imports import Tally, alone, emit_tally, import_items
from paceline.shells.cli.monitors.items import Broken, Item, read_items
from paceline.shells.cli.options import argument, flag, option
from paceline.shells.cli.output import TextNote, print_text, progress_bar
from paceline.steps.batches import batches
from paceline.steps.batches.batches import PutRecord

if TYPE_CHECKING:
    from paceline.shells.cli.remote import Remote
    from paceline.wiring import System

__all__ = ["app"]  # the batch commands, including this one

PAGE = 5_000
REQUEST_ITEMS = 100
"""Records of one request. Even with the longest bodies they stay below the default limit of a request."""
USUAL_COLUMNS = ("id", "provider", "endpoint", "body", "active")
OPTION_COLUMNS = ("method", "headers", "timeout", "expect", "priority", "after")
COLUMNS = USUAL_COLUMNS + OPTION_COLUMNS
JSON_COLUMNS = ("headers", "expect", "priority")
LINE_CHARS_MAX = 8 * BODY_BYTES_MAX
_OPTIONS = msgspec.json.Decoder(RecordOptions)
_TRUTH = {"": True, "true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
SourceArgument = Annotated[
    str,
    argument(
        "FILE", 'NDJSON, CSV, a JSON array or {"items": [...]}; - reads stdin; also https://…, or dynamodb://TABLE.'
    ),
]
FormatOption = Annotated[
    Literal["json", "csv"] | None,
    option("json|csv", "Format of the file; json includes NDJSON. [default: chosen by the file's name]", "--format"),
]


class ImportedRecord(NamedTuple):
    """A line of the file: its record, or the reason why it was refused."""

    line: int
    id: str | None
    record: RecordSpec | PutRecord


@command(app, "import")
def import_records(
    call: CliCall,
    source: SourceArgument,
    *,
    batch: BatchOption = None,
    form: FormatOption = None,
    restart: Annotated[
        bool, flag("--restart", "For a table: import from its beginning, not from where an import was cut short.")
    ] = False,
) -> int:
    """Import many records. Good ones are kept; refused ones are listed by reason, with their line numbers."""
    from paceline.steps.batches.late_records import plan_late_records

    if (table := table_name(source)) is not None:
        with call.system() as system:  # the store keeps the place where an import was cut short
            target = the_batch(system.store, batch)
            tally = _import_table(system, target, table, restart=restart)
            plan_late_records(system.store, target, now_ms=system.clock.now_ms())
        return emit_tally(call, tally)
    with open_source(call, source) as (path, name, stream):
        is_csv = form == "csv" or (form is None and name.lower().endswith(".csv"))

        def put_all(put: Callable[[Sequence[ImportedRecord], Tally], None], *, page_items: int) -> Tally:
            rows = read_csv(stream) if is_csv else read_json(stream)
            return import_items(path, stream, rows, put, page_items=page_items)

        def on_store(system: System) -> Tally:
            target = the_batch(system.store, batch)
            tally = put_all(lambda page, tally: _put(system, target, page, tally), page_items=PAGE)
            plan_late_records(system.store, target, now_ms=system.clock.now_ms())
            return tally

        def over_rest(remote: Remote) -> Tally:
            target = batch_over_rest(remote, batch).id
            return put_all(lambda page, tally: _put_over_rest(remote, target, page, tally), page_items=REQUEST_ITEMS)

        tally = call.answer(on_store, over_rest)
    return emit_tally(call, tally)


def _import_table(system: System, batch: Batch, table: str, *, restart: bool) -> Tally:
    """Imports the items of a table. The number of an item is used as its line."""
    from paceline.steps.batches.table_import import import_table
    from paceline.wiring import open_record_table

    tally = Tally()
    with progress_bar("Importing", of_bytes=False) as progress:

        def put(items: Sequence[bytes], before: int) -> None:
            rows = [_row(Item(before + index, body)) for index, body in enumerate(items, start=1)]
            _put(system, batch, rows, tally)
            progress(before + len(items), None)

        now_ms = system.clock.now_ms()
        records = open_record_table(table)
        before = import_table(system.store, batch, records, table, put, now_ms=now_ms, from_start=restart)
    if before:
        print_text(
            TextNote(f"Went on after {before} items, where an import was cut short; --restart begins from the first.")
        )
    return tally


def read_json(stream: BinaryIO) -> Iterator[ImportedRecord]:
    return (_row(item) for item in read_items(stream))


def read_csv(stream: BinaryIO) -> Iterator[ImportedRecord]:
    """Yields the rows.

    The first line names the columns. If the file cannot be read to its end, the last row says so.
    """
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    try:
        yield from _csv_rows(csv.reader(_lines(text), strict=True))
    finally:
        text.detach()  # the caller closes the stream


def _put(system: System, batch: Batch, page: Sequence[ImportedRecord], tally: Tally) -> None:
    """Puts a page of records. New records are planned once, at the end of the file."""
    records = [row.record for row in page]
    now_ms = system.clock.now_ms()
    puts = batches.put_parsed_records(system.store, batch, records, now_ms=now_ms, vault=system.vault)
    for row, put in zip(page, puts, strict=True):
        tally.add_result(row.line, row.id, put.disposition, put.error)


def _put_over_rest(remote: Remote, batch: str, page: Sequence[ImportedRecord], tally: Tally) -> None:
    """Puts a page of records over REST. Records that were already refused are not sent."""
    from paceline.shells.api.documents import BulkAnswer

    items = [_document(row.record) for row in page if isinstance(row.record, RecordSpec)]
    answer = remote.ask("PUT", f"{BATCH_PATH}/records", BulkAnswer, body={"items": items}, batch=batch)
    assert len(answer.items) == len(items)
    results = iter(enumerate(answer.items))
    for row in page:
        if isinstance(row.record, PutRecord):
            assert row.record.error is not None, "only a refused record is no RecordSpec"
            tally.refuse(row.line, row.id, row.record.error)
            continue
        index, result = next(results)
        tally.add_result(row.line, row.id, result.disposition, alone(index, result.error))


def _document(record: RecordSpec) -> dict[str, Any]:
    """Returns the record as it is sent, with its body byte for byte as it was read."""
    document = {**msgspec.structs.asdict(record), **msgspec.to_builtins(record.options)}
    body = None if record.body is None else msgspec.Raw(record.body.encode())
    return {name: value for name, value in document.items() if name not in {"options", "templated"}} | {"body": body}


def _row(item: Item | Broken) -> ImportedRecord:
    if isinstance(item, Broken):
        return _refused(item.line, MalformedBody(f"{item.reason}; the rest of the file was not read."))
    record = batches.judge_record(item.body)
    return ImportedRecord(item.line, record.id if isinstance(record, RecordSpec) else id_in(item.body), record)


def _refused(line: int, error: PacelineError, record_id: str | None = None) -> ImportedRecord:
    return ImportedRecord(line, record_id, PutRecord(record_id or "", "refused", error))


class _NamedRecord(msgspec.Struct):
    id: str | None = None


_NAMED = msgspec.json.Decoder(_NamedRecord)


def id_in(body: bytes) -> str | None:
    """Returns the id of a refused record, or None if it has none that can be read."""
    try:
        return _NAMED.decode(body).id
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _csv_rows(reader: Iterator[list[str]]) -> Iterator[ImportedRecord]:
    line = 1
    try:
        columns = [name.strip().lower() for name in next(reader, [])]
        if problem := _header_problem(columns):
            yield _refused(1, InvalidInput(problem))
            return
        line = reader.line_num + 1  # type: ignore[attr-defined]
        for cells in reader:
            if cells:
                yield _csv_row(line, columns, cells)
            line = reader.line_num + 1  # type: ignore[attr-defined]
    except (csv.Error, UnicodeDecodeError) as error:
        yield _refused(line, MalformedBody(f"Not valid CSV: {error}; the rest of the file was not read."))


def _header_problem(columns: list[str]) -> str | None:
    if unknown := [name for name in columns if name not in COLUMNS]:
        return f"Unknown column {unknown[0][:100]!r}; the first line names the columns: {', '.join(COLUMNS)}."
    if missing := [name for name in ("id", "provider") if name not in columns]:
        return f"Column {missing[0]!r} is missing; the first line names the columns: {', '.join(COLUMNS)}."
    return "A column is named twice." if len(set(columns)) < len(columns) else None


def _csv_row(line: int, columns: list[str], cells: list[str]) -> ImportedRecord:
    if len(cells) != len(columns):
        return _refused(line, InvalidInput(f"The line has {len(cells)} cells, but the first line has {len(columns)}."))
    values = dict(zip(columns, cells, strict=True))
    active = _TRUTH.get(values.get("active", "").strip().lower())
    options, problems = _csv_options(values)
    record = make_record(
        values["id"].strip(),
        values["provider"].strip(),
        values.get("endpoint", "").strip(),
        _csv_body(values.get("body", "")),
        active=active is not False,
        options=options,
    )
    problems += record_problems(record)
    if active is None:
        problems.append(FieldProblem("/active", "true or false"))
    return (
        _refused(line, InvalidInput.of(*problems), record.id) if problems else ImportedRecord(line, record.id, record)
    )


def _csv_options(values: Mapping[str, str]) -> tuple[RecordOptions, list[FieldProblem]]:
    """Returns the options from the further columns, and their problems. Headers and expectations are cells of JSON."""
    given = {name: cell for name in OPTION_COLUMNS if (cell := values.get(name, "").strip())}
    if not given:
        return NO_OPTIONS, []
    try:
        texts = [f"{_quoted(name)}: {cell if name in JSON_COLUMNS else _quoted(cell)}" for name, cell in given.items()]
        return decode(_OPTIONS, f"{{{', '.join(texts)}}}".encode()), []
    except InvalidInput as error:
        return NO_OPTIONS, list(error.errors)
    except MalformedBody:
        names = [name for name in given if name in JSON_COLUMNS]
        return NO_OPTIONS, [FieldProblem(f"/{name}", "a cell of JSON") for name in names]


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _csv_body(cell: str) -> str | None:
    """Returns the body. A cell with JSON is used as it is; any other text becomes a JSON text."""
    if not cell.strip():
        return None
    try:
        msgspec.json.decode(cell)
    except (msgspec.DecodeError, RecursionError):
        return msgspec.json.encode(cell).decode()
    return None if cell.strip() == "null" else cell


def _lines(text: io.TextIOWrapper) -> Iterator[str]:
    while line := text.readline(LINE_CHARS_MAX):
        if len(line) >= LINE_CHARS_MAX:
            raise csv.Error(f"a line is longer than {LINE_CHARS_MAX} characters")
        yield line
