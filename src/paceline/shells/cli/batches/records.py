"""``paceline batch records`` and ``rerun``: list the records of a batch, and run ended runs again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from paceline.core.batches.batch import record_document
from paceline.shells.cli.batches.commands import BatchOption, the_batch
from paceline.shells.cli.batches.import_file import app
from paceline.shells.cli.batches.over_rest import BATCH_PATH, DAY_PATH, batch_over_rest
from paceline.shells.cli.call import CliCall, command
from paceline.shells.cli.options import PageOptions, ProviderOption, argument, flag, option
from paceline.shells.cli.output import Columns, emit, emit_page
from paceline.shells.cli.text.columns import address, ident, word
from paceline.shells.lists import ListPage
from paceline.shells.lists import list_records as list_of_records

if TYPE_CHECKING:
    from paceline.shells.cli.remote import Remote
    from paceline.wiring import System

__all__ = ["app"]  # the batch commands, including these

RECORD_COLUMNS: Columns = {
    "RECORD": ident(lambda record: record["id"]),
    "PROVIDER": ident(lambda record: record["provider"], 2),
    "METHOD": word(lambda record: record.get("method"), 3),
    "ENDPOINT": address(lambda record: record.get("endpoint"), 1),
    "ACTIVE": word(lambda record: record.get("active")),
}
_NO_RECORD = "There is no such record. Put some: paceline batch import FILE --batch BATCH"
BatchArgument = Annotated[str | None, argument("BATCH", "The same as --batch.")]
DateArgument = Annotated[str, argument("DAY", "The date, for example 2026-11-15.")]
RecordsOption = Annotated[list[str] | None, option("RECORD", "A record to run again; may be repeated.", "--record")]


@command(app, "records")
def list_records(
    call: CliCall,
    name: BatchArgument = None,
    *,
    batch: BatchOption = None,
    provider: ProviderOption = None,
    active: Annotated[bool | None, flag("--active/--inactive", "Only active records, or only inactive ones.")] = None,
    page: PageOptions,
) -> None:
    """List a batch's records in order of id."""

    def on_store(system: System) -> ListPage[dict[str, Any]]:
        target = the_batch(system.store, batch or name)
        found = list_of_records(system, target, provider, page, active=active)
        documents = msgspec.json.encode([record_document(record) for record in found.items])
        return ListPage(msgspec.json.decode(documents), found.next_cursor)

    def over_rest(remote: Remote) -> ListPage[dict[str, Any]]:
        asked = {"provider": provider, "active": None if active is None else str(active).lower()}
        target = batch_over_rest(remote, batch or name).id
        return remote.page(f"{BATCH_PATH}/records", dict[str, Any], page, query=asked, batch=target)

    emit_page(call, call.answer(on_store, over_rest), RECORD_COLUMNS, more="There may be more:", none=_NO_RECORD)


@command(app, "rerun")
def rerun_day(
    call: CliCall,
    day: DateArgument,
    *,
    batch: BatchOption = None,
    state: Annotated[
        str | None, option("STATE", "Only runs that ended in this state, for example done.", "--state")
    ] = None,
    record: RecordsOption = None,
) -> None:
    """Run a day's ended runs again, each once, however often you ask while the rerun is open."""
    from paceline.steps.batches.rerun import rerun
    from paceline.steps.views.days import check_date

    def on_store(system: System) -> dict[str, int]:
        target, on = the_batch(system.store, batch), check_date(day).isoformat()
        now_ms = system.clock.now_ms()
        return rerun(system.store, target, on, state=state, records=record, now_ms=now_ms)._asdict()

    def over_rest(remote: Remote) -> dict[str, int]:
        path, target = f"{DAY_PATH}/rerun", batch_over_rest(remote, batch).id
        body = {name: value for name, value in (("state", state), ("records", record)) if value is not None}
        return remote.ask("POST", path, dict[str, int], body=body, batch=target, date=day)

    done = call.answer(on_store, over_rest)
    emit(call, done, f"{done['enqueued']} enqueued" + (f" as rerun {done['rerun']}" if done["rerun"] else ""))
