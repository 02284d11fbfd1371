"""``paceline provider``: the APIs that batches call, and the limits to keep at each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import typer

from paceline.core.batches import provider as definitions
from paceline.core.batches.values import ProviderPut
from paceline.errors import FieldProblem, InvalidInput
from paceline.shells import lists
from paceline.shells.cli.call import CliCall, command
from paceline.shells.cli.files import read_input
from paceline.shells.cli.options import (
    LONGEST_PAGE,
    DefinitionOption,
    PageOptions,
    PausedOption,
    ReplaceOption,
    argument,
    flag,
    given,
    merged,
    option,
)
from paceline.shells.cli.output import Columns, TextFields, emit, emit_page
from paceline.shells.cli.text.columns import address, ident, when, word, words
from paceline.steps.batches import providers
from paceline.steps.edit import edit, unless_changed
from paceline.steps.views.report import ProviderView, provider_view

if TYPE_CHECKING:
    from paceline.wiring import System

app = typer.Typer(name="provider", help="Set, watch, pause and remove providers.")

SPEC_BYTES_MAX = 1_048_576
_NONE = "There is no provider yet. Set one: paceline provider set ID --base-url URL"
_PROVIDER = "/v1/providers/{provider}"
IdArgument = Annotated[str, argument("ID", "The provider's id.")]
PATHS = {
    "max_attempts": "retry.max_attempts",
    "retry_base": "retry.base",
    "retry_cap": "retry.cap",
    "breaker_failures": "breaker.failures",
    "breaker_open_for": "breaker.open_for",
}
"""Options that have another name in the provider's document."""
PROVIDER_COLUMNS: Columns = {
    "PROVIDER": ident("id"),
    "STATE": word("standing.state"),
    "WAITING": word("standing.waiting"),
    "IN FLIGHT": word("standing.in_flight", 2),
    "AT ONCE": word("max_in_flight", 6),
    "RATE": word("rate", 5),
    "NEXT DUE": when("standing.next_due", 3),
    "REASON": words("standing.reason", 1),
    "BASE URL": address("base_url", 4),
}


class ProviderOptions(NamedTuple):
    """Options of ``provider set``; None for an option that was not given."""

    kind: Annotated[
        definitions.ProviderKind | None,
        option("http|outgoing", "Called by Paceline, or by your own workers. [default: http]"),
    ] = None
    base_url: Annotated[str | None, option("URL", "Address in front of each record's endpoint.")] = None
    header: Annotated[
        list[str] | None, option("NAME:VALUE", "A header of every call, kept sealed; may be repeated.")
    ] = None
    method: Annotated[str | None, option("METHOD", "[default: POST for a record with a body, else GET]")] = None
    max_in_flight: Annotated[int | None, option("N", "Most calls at the same time. [default: 1]")] = None
    rate: Annotated[str | None, option("RATE", "For example 5/1s. [default: no limit]")] = None
    timeout: Annotated[str | None, option("DURATION", "Deadline of one call. [default: 30s]")] = None
    max_attempts: Annotated[int | None, option("N", "Attempts before a run becomes a dead letter. [default: 5]")] = None
    retry_base: Annotated[str | None, option("DURATION", "Longest pause before the first retry. [default: 1s]")] = None
    retry_cap: Annotated[str | None, option("DURATION", "Longest pause before any retry. [default: 5m]")] = None
    breaker_failures: Annotated[
        int | None, option("N", "Bad calls in a row that close the provider. [default: 10]")
    ] = None
    breaker_open_for: Annotated[str | None, option("DURATION", "How long it stays closed. [default: 1m]")] = None
    unknown: Annotated[
        definitions.WhenUnknown | None,
        option(
            "retry|hold|look_up",
            "What to do after a call that may have arrived and is not safe to repeat. [default: retry]",
        ),
    ] = None
    look_up: Annotated[str | None, option("PATH", "Where to ask whether a run arrived, for example /calls/{run}.")] = (
        None
    )
    verify_tls: Annotated[bool | None, flag("--verify-tls/--no-verify-tls", "Whether to verify certificates.")] = None
    order: Annotated[
        definitions.Order | None,
        option("spread|imported|priority", "Which record gets which of the provider's times. [default: spread]"),
    ] = None
    expect: Annotated[
        str | None, option("JSON", 'What statuses mean, for example {"done": ["2xx", 409], "retry": [404]}.')
    ] = None
    paused: PausedOption = None


@command(app, "set")
def set_provider(
    call: CliCall,
    provider_id: IdArgument,
    *,
    file: DefinitionOption = None,
    replace: ReplaceOption = False,
    options: ProviderOptions,
) -> None:
    """Create a provider, or change the fields that the options name and keep the rest."""
    changes = document_of(options)
    if bool(changes) == (file is not None):
        raise InvalidInput("Say what to set: either --file, or options such as --base-url and --rate.")
    whole = None
    if file is not None or replace:
        whole = msgspec.json.encode(changes) if file is None else read_input(file, SPEC_BYTES_MAX)
    done, view = call.answer_or_new(
        lambda at: _put_or_edit(at, provider_id, changes) if whole is None else _put(at, provider_id, whole),
        lambda remote: remote.put_edited(
            _PROVIDER,
            ProviderView,
            lambda there: _edited(provider_id, _definition(there), changes) if whole is None else whole,
            provider=provider_id,
        ),
    )
    _emit_one(call, view, done=done)


@command(app, "list")
def list_providers(call: CliCall, *, page: PageOptions = LONGEST_PAGE) -> None:
    """List the providers and the state of each."""
    listed = call.answer(
        lambda at: lists.list_providers(at, page), lambda remote: remote.page("/v1/providers", ProviderView, page)
    )
    emit_page(call, listed, PROVIDER_COLUMNS, more="There are more: paceline provider list", none=_NONE)


@command(app, "show")
def show(call: CliCall, provider_id: IdArgument) -> None:
    """Show a provider: its definition and its current state."""
    view = call.answer(
        lambda at: _view(at, providers.get_provider(at.store, provider_id)),
        lambda remote: remote.get(_PROVIDER, ProviderView, provider=provider_id),
    )
    emit(call, view, TextFields(_fields(view)))


@command(
    app, "resume", help_text="Resume a paused provider; it catches up at a limited pace, not in a burst.", paused=False
)
@command(app, "pause", help_text="Pause a provider: no new call starts; calls in flight finish.", paused=True)
def set_paused(call: CliCall, provider_id: IdArgument, *, paused: bool) -> None:
    def on_store(system: System) -> ProviderView:
        now_ms = system.clock.now_ms()
        put = providers.set_provider_paused(system.store, provider_id, paused=paused, now_ms=now_ms)
        return _view(system, put.provider)

    path = f"{_PROVIDER}/{'pause' if paused else 'resume'}"
    view = call.answer(on_store, lambda remote: remote.ask("POST", path, ProviderView, provider=provider_id))
    _emit_one(call, view, done="paused" if paused else "resumed")


@command(app, "rm")
def remove(call: CliCall, provider_id: IdArgument) -> None:
    """Remove a provider that no record names and no run waits for."""
    call.answer(
        lambda at: providers.remove_provider(at.store, provider_id),
        lambda remote: remote.do("DELETE", _PROVIDER, provider=provider_id),
    )
    emit(call, {"removed": provider_id}, f"{provider_id} removed.")


def _put(system: System, provider_id: str, body: bytes) -> tuple[str, ProviderView]:
    """Puts the whole provider. Returns the disposition and the provider as it is now."""
    put = providers.put_provider(system.store, system.vault, provider_id, body, now_ms=system.clock.now_ms())
    return put.disposition, _view(system, put.provider)


def _put_or_edit(system: System, provider_id: str, changes: dict[str, Any]) -> tuple[str, ProviderView]:
    """Creates the provider or changes the existing one. Returns the same as ``_put``."""

    def attempt() -> ProviderPut:
        there = system.store.provider(provider_id)
        document = _edited(provider_id, definitions.provider_document(there.spec) if there else None, changes)
        return providers.put_provider(
            system.store,
            system.vault,
            provider_id,
            msgspec.json.encode(document),
            expected_revision=there.revision if there else 0,
            now_ms=system.clock.now_ms(),
        )

    put = edit(f"Provider {provider_id!r}", lambda: unless_changed(attempt))
    return put.disposition, _view(system, put.provider)


def _edited(provider_id: str, there: dict[str, Any] | None, changes: dict[str, Any]) -> dict[str, Any]:
    """Returns the document to put: the existing provider with the changes."""
    if there is None and "base_url" not in changes and changes.get("kind") != "outgoing":
        raise providers.no_provider(provider_id)
    kept = there or {}
    if changes.get("kind") == "outgoing":  # fields that only calls need are dropped
        kept = {name: value for name, value in kept.items() if name not in definitions.CALL_FIELDS}
    return merged(kept, changes)


def _definition(view: ProviderView | None) -> dict[str, Any] | None:
    """Returns the provider's document, from its view."""
    shown = msgspec.to_builtins(view)
    return shown and {name: shown[name] for name in definitions.ProviderSpec.__struct_fields__}


def document_of(options: ProviderOptions) -> dict[str, Any]:
    """Returns the provider's document with the fields that the options name."""
    texts = options._replace(method=options.method and options.method.upper(), header=None, expect=None)
    document = given(texts, PATHS)
    if headers := dict(_header(text) for text in options.header or ()):
        document["headers"] = headers
    if options.expect is not None:
        document["expect"] = _expect(options.expect)
    return document


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise InvalidInput.of(FieldProblem("--header", "write NAME:VALUE, for example Authorization:Bearer 123"))
    return name.strip(), value.strip()


def _expect(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        raise InvalidInput.of(FieldProblem("--expect", 'write JSON, for example {"done": ["2xx", 409]}')) from None


def _emit_one(call: CliCall, view: ProviderView, *, done: str) -> None:
    emit(call, view, f"{view.id} {done}; {view.standing.waiting} waiting")


def _view(system: System, provider: definitions.ProviderDefinition | None) -> ProviderView:
    assert provider is not None, "a put returns the provider, or raises"
    return provider_view(system.store, provider, now_ms=system.clock.now_ms())


def _fields(view: ProviderView) -> list[tuple[str, Any]]:
    """Returns the fields of the view. Fields of an inner object are prefixed with its name."""
    fields: list[tuple[str, Any]] = []
    for name, value in msgspec.to_builtins(view).items():
        if isinstance(value, dict):
            fields += [(f"{name}.{inner}", shown) for inner, shown in value.items()]
        else:
            fields.append((name, value))
    return fields
