"""``paceline monitor import``: reads many monitors from one file, a page at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from paceline.core.monitors.checks import parse_check
from paceline.core.monitors.values import PutMonitor
from paceline.core.parsing import decode
from paceline.errors import FieldProblem, InvalidInput, MalformedBody, PacelineError
from paceline.shells.cli.call import CliCall, command, owner_id
from paceline.shells.cli.files import open_input
from paceline.shells.cli.imports import Tally, alone, emit_tally, import_items
from paceline.shells.cli.monitors.commands import app
from paceline.shells.cli.monitors.items import Broken, Item, read_items
from paceline.shells.cli.options import UserOption, argument
from paceline.steps.monitors import define
from paceline.steps.monitors.check_secrets import seal_put
from paceline.steps.monitors.phases import host_of

if TYPE_CHECKING:
    from paceline.shells.cli.remote import Remote
    from paceline.wiring import System

__all__ = ["app"]  # the monitor commands, including this one

PAGE, COMMIT = 10_000, 1_000
"""Items that are read together and get their phases together, and items of one commit."""
CHUNK_ITEMS, CHUNK_BYTES = 500, 4_194_304
"""Items and bytes of one request, below the default limits of a Paceline."""
FileArgument = Annotated[Path, argument("FILE", 'JSON array, {"items": [...]} or NDJSON; - reads stdin.')]
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


@command(app, "import")
def import_monitors(
    call: CliCall,
    file: FileArgument,
    *,
    user: UserOption = None,
) -> int:
    """Import many monitors. Good ones are kept; refused ones are listed by reason, with their line numbers."""
    with open_input(file) as stream:

        def put_all(put: Callable[[Sequence[Item | Broken], Tally], None]) -> Tally:
            return import_items(file, stream, read_items(stream), put, page_items=PAGE)

        def on_store(system: System) -> Tally:
            owner = owner_id(system, user)
            return put_all(lambda page, tally: _put(system, owner, page, tally))

        def over_rest(remote: Remote) -> Tally:
            owner = remote.owner(user)
            return put_all(lambda page, tally: _put_over_rest(remote, owner, page, tally))

        tally = call.answer(on_store, over_rest)
    return emit_tally(call, tally)


def _put(system: System, owner: str, page: Sequence[Item | Broken], tally: Tally) -> None:
    parsed: list[tuple[int, PutMonitor]] = []
    for item in page:
        monitor_id = None
        try:
            monitor_id, body = _split(item)
            put = define.parse_put(owner, monitor_id, body, system.limits)
            parsed.append((item.line, seal_put(system.store, system.vault, put)))
        except PacelineError as error:
            tally.refuse(item.line, monitor_id, error)
    limits = system.user_limits
    puts = [put for _, put in parsed]
    results = define.put_many_monitors(system.store, puts, page=COMMIT, **limits, now_ms=system.clock.now_ms())
    for (line, put), result in zip(parsed, results, strict=True):
        tally.add_result(line, put.id, result.disposition, define.put_error(result, put, **limits))


def _put_over_rest(remote: Remote, owner: str, page: Sequence[Item | Broken], tally: Tally) -> None:
    """Puts a page over REST. Items without an id, or that are no JSON object, are refused here: they cannot be sent."""
    from paceline.shells.api.documents import BulkAnswer

    sent: list[_Sent] = []
    for item in page:
        monitor_id = None
        try:
            monitor_id, body = _split(item)
            fields = _FIELDS.decode(body)
            document = msgspec.json.encode({"id": monitor_id} | fields)
            sent.append(_Sent(item.line, monitor_id, document, _host(fields.get("check"))))
        except PacelineError as error:
            tally.refuse(item.line, monitor_id, error)
    if len({one.id for one in sent}) == len(sent):  # if an id is repeated, the order matters
        # Phases are allotted per request, so the monitors of a host should be in one request.
        sent.sort(key=lambda one: one.host)
    for chunk in _chunks(sent):
        items = [msgspec.Raw(one.document) for one in chunk]
        answer = remote.ask("PUT", "/v1/users/{user}/monitors", BulkAnswer, body={"items": items}, user=owner)
        for index, (one, result) in enumerate(zip(chunk, answer.items, strict=True)):
            tally.add_result(one.line, one.id, result.disposition, alone(index, result.error))


class _Sent(NamedTuple):
    line: int
    id: str
    document: bytes
    host: str


def _host(check: msgspec.Raw | None) -> str:
    """Returns the host of a check; empty if it has none, or is invalid and will be refused."""
    try:
        return host_of(parse_check(bytes(check or b"null"), "/check"))
    except PacelineError:
        return ""


def _chunks(items: Iterable[_Sent]) -> Iterator[list[_Sent]]:
    """Yields the items of each request: limited in size, and no id twice, because only the first would count."""
    chunk, ids, size = list[_Sent](), set[str](), 0
    for one in items:
        if one.id in ids or size + len(one.document) > CHUNK_BYTES or len(chunk) >= CHUNK_ITEMS:
            yield chunk
            chunk, ids, size = [], set(), 0
        chunk.append(one)
        ids.add(one.id)
        size += len(one.document)
    if chunk:
        yield chunk


def _split(item: Item | Broken) -> tuple[str, bytes]:
    """Returns an item's id and the rest of it, the definition."""
    if isinstance(item, Broken):
        raise MalformedBody(f"{item.reason}; the rest of the file was not read.")
    fields = decode(_FIELDS, item.body)
    raw = fields.pop("id", None)
    if raw is None:
        raise InvalidInput.of(FieldProblem("/id", "this field is required"))
    return decode(msgspec.json.Decoder(str), bytes(raw), "/id"), msgspec.json.encode(fields)
