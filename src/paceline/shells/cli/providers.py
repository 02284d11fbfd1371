"""``paceline provider``: services you do not own, and how they are to be treated."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import typer

from paceline.core.provider import ProviderDefinition, WhenUnknown, provider_document
from paceline.errors import FieldProblem, InvalidInput
from paceline.ports import ProviderPut
from paceline.shells.cli.call import Call, ReplaceOption, command, guarded
from paceline.shells.cli.monitor_items import open_input
from paceline.shells.cli.output import print_fields, print_json, print_line, print_note, print_table
from paceline.steps import providers
from paceline.steps.report import ProviderView, provider_view

if TYPE_CHECKING:
    from paceline.wiring import System

app = typer.Typer(name="provider", help="Set, watch, pause and remove providers.")

PAGE_MAX = 1_000
SPEC_BYTES_MAX = 1_048_576
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The provider's id.")]


class Wanted(NamedTuple):
    """What the options said; None for what was not given."""

    base_url: Annotated[str | None, typer.Option(metavar="URL", help="What stands before each record's endpoint.")] = (
        None
    )
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:VALUE", help="A header of every call, kept sealed; may be repeated."),
    ] = None
    method: Annotated[
        str | None, typer.Option(metavar="METHOD", help="[default: POST for a record with a body, else GET]")
    ] = None
    max_in_flight: Annotated[int | None, typer.Option(metavar="N", help="Calls at once. [default: 1]")] = None
    rate: Annotated[str | None, typer.Option(metavar="RATE", help="For example 5/1s. [default: no limit]")] = None
    timeout: Annotated[str | None, typer.Option(metavar="DURATION", help="Of one call. [default: 30s]")] = None
    max_attempts: Annotated[int | None, typer.Option(metavar="N", help="Then it is a dead letter. [default: 5]")] = None
    retry_base: Annotated[
        str | None, typer.Option(metavar="DURATION", help="The first pause is at most this. [default: 1s]")
    ] = None
    retry_cap: Annotated[
        str | None, typer.Option(metavar="DURATION", help="No pause is longer than this. [default: 5m]")
    ] = None
    breaker_failures: Annotated[
        int | None, typer.Option(metavar="N", help="So many bad calls in a row close it. [default: 10]")
    ] = None
    breaker_open_for: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Closed for so long. [default: 1m]")
    ] = None
    unknown: Annotated[
        WhenUnknown | None,
        typer.Option(
            metavar="retry|hold|look_up",
            help="After a call that may have arrived, and is not safe to repeat. [default: retry]",
        ),
    ] = None
    look_up: Annotated[
        str | None, typer.Option(metavar="PATH", help="Where to ask whether a run arrived, for example /calls/{run}.")
    ] = None
    verify_tls: Annotated[
        bool | None, typer.Option("--verify-tls/--no-verify-tls", help="Whether certificates must be good.")
    ] = None
    paused: Annotated[bool | None, typer.Option("--paused/--no-paused", help="At rest, or not.")] = None


@command(app, "set")
def set_provider(
    call: Call,
    provider_id: IdArgument,
    *,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="The whole definition as JSON; - reads stdin.")
    ] = None,
    replace: ReplaceOption = False,
    wanted: Wanted,
) -> None:
    """Create a provider, or change what the options name of the one there is and keep the rest."""
    given = document_of(wanted)
    if bool(given) == (file is not None):
        raise InvalidInput("Say what to set: either --file, or options such as --base-url and --rate.")
    with call.system_or_new() as system:
        if file is not None or replace:
            body = msgspec.json.encode(given) if file is None else _read(file)
            put = providers.put_provider(system.store, system.vault, provider_id, body, now_ms=system.clock.now_ms())
        else:
            put = guarded(lambda: _put_or_edit(system, provider_id, given))
        _tell(call, system, put, done=put.disposition)


@command(app, "list")
def list_providers(
    call: Call,
    *,
    limit: Annotated[int, typer.Option(min=1, max=PAGE_MAX, metavar="N", help="How many at most.")] = PAGE_MAX,
    cursor: Annotated[
        str | None, typer.Option("--cursor", metavar="CURSOR", help="Where the next page begins, as the last one said.")
    ] = None,
) -> None:
    """List the providers and how each stands."""
    with call.system() as system:
        found = system.store.providers(after=cursor or "", limit=limit + 1)
        views = [_view(system, provider) for provider in found[:limit]]
    following = views[-1].id if len(found) > limit else None
    if call.as_json:
        print_json({"items": views, "next_cursor": following})
        return
    print_table(
        ["PROVIDER", "STATE", "WAITING", "IN FLIGHT", "AT ONCE", "RATE", "NEXT DUE", "REASON", "BASE URL"],
        [_row(view) for view in views],
    )
    if following:
        print_note(f"There are more: paceline provider list --cursor {following}")


@command(app, "show")
def show(call: Call, provider_id: IdArgument) -> None:
    """Show a provider: definition, and how it stands now."""
    with call.system() as system:
        view = _view(system, providers.get_provider(system.store, provider_id))
    if call.as_json:
        print_json(view)
    else:
        print_fields(_fields(view))


@command(app, "pause")
def pause(call: Call, provider_id: IdArgument) -> None:
    """Let nothing more of a provider start; what is out comes to its end."""
    _set_paused(call, provider_id, paused=True)


@command(app, "resume")
def resume(call: Call, provider_id: IdArgument) -> None:
    """Let a paused provider go on; it catches up at a pace, not in a burst."""
    _set_paused(call, provider_id, paused=False)


@command(app, "rm")
def remove(call: Call, provider_id: IdArgument) -> None:
    """Remove a provider that no record names and no run waits for."""
    with call.system() as system:
        providers.remove_provider(system.store, provider_id)
    if call.as_json:
        print_json({"removed": provider_id})
    else:
        print_line(f"{provider_id} removed.")


def _put_or_edit(system: System, provider_id: str, given: dict[str, Any]) -> ProviderPut:
    """Of what is there as it was read, or of nothing; RevisionMismatch if somebody wrote in between."""
    now = system.store.provider(provider_id)
    if now is None and "base_url" not in given:
        raise providers.no_provider(provider_id)
    return providers.put_provider(
        system.store,
        system.vault,
        provider_id,
        msgspec.json.encode(given if now is None else _merged(provider_document(now.spec), given)),
        expected_revision=0 if now is None else now.revision,
        now_ms=system.clock.now_ms(),
    )


def document_of(wanted: Wanted) -> dict[str, Any]:
    """The options as the JSON document that the API would get, so that one parser judges both."""
    plain = ("base_url", "max_in_flight", "rate", "timeout", "unknown", "look_up", "verify_tls", "paused")
    document = {name: value for name in plain if (value := getattr(wanted, name)) is not None}
    if wanted.method is not None:
        document["method"] = wanted.method.upper()
    if wanted.header:
        document["headers"] = dict(_header(text) for text in wanted.header)
    retry = {"max_attempts": wanted.max_attempts, "base": wanted.retry_base, "cap": wanted.retry_cap}
    breaker = {"failures": wanted.breaker_failures, "open_for": wanted.breaker_open_for}
    for name, group in (("retry", retry), ("breaker", breaker)):
        if given := {key: value for key, value in group.items() if value is not None}:
            document[name] = given
    return document


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise InvalidInput.of(FieldProblem("--header", "write NAME:VALUE, for example Authorization:Bearer 123"))
    return name.strip(), value.strip()


def _merged(there: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """What is given takes the place of what is there; inside an object, field by field."""
    return there | {
        name: there.get(name, {}) | value if isinstance(value, dict) else value for name, value in given.items()
    }


def _read(file: Path) -> bytes:
    with open_input(file) as stream:
        body = stream.read(SPEC_BYTES_MAX + 1)
    if len(body) > SPEC_BYTES_MAX:
        raise InvalidInput(f"{file}: more than {SPEC_BYTES_MAX} bytes.")
    return body


def _set_paused(call: Call, provider_id: str, *, paused: bool) -> None:
    with call.system() as system:
        put = providers.set_provider_paused(system.store, provider_id, paused=paused, now_ms=system.clock.now_ms())
        _tell(call, system, put, done="paused" if paused else "resumed")


def _tell(call: Call, system: System, put: ProviderPut, *, done: str) -> None:
    assert put.provider is not None
    view = _view(system, put.provider)
    if call.as_json:
        print_json(view)
    else:
        print_line(f"{view.id} {done}; {view.standing.waiting} waiting")


def _view(system: System, provider: ProviderDefinition) -> ProviderView:
    return provider_view(system.store, provider, now_ms=system.clock.now_ms())


def _row(view: ProviderView) -> tuple[Any, ...]:
    now = view.standing
    return (
        view.id,
        now.state,
        now.waiting,
        now.in_flight,
        view.max_in_flight,
        view.rate,
        now.next_due,
        now.reason,
        view.base_url,
    )


def _fields(view: ProviderView) -> list[tuple[str, Any]]:
    fields: list[tuple[str, Any]] = []
    for name, value in msgspec.to_builtins(view).items():
        if isinstance(value, dict):
            fields += [(f"{name}.{inner}", shown) for inner, shown in value.items()]
        else:
            fields.append((name, value))
    return fields
