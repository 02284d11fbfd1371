"""Applies files of definitions: compares, asks before it removes, puts and removes, and reports on each."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from paceline.core.as_code.declared import Name, Normal, normal
from paceline.core.as_code.plan import ABSENT, Act, FieldDifference, plan
from paceline.core.http.json_pointer import MISSING, look_up
from paceline.core.monitors.checks import HIDDEN
from paceline.errors import InvalidInput
from paceline.shells.cli.as_code.declarations import Declarations, read_declarations
from paceline.shells.cli.as_code.sides import RestSide, Side, SideResult, StoreSide
from paceline.shells.cli.call import owner_id
from paceline.shells.cli.output import EXIT_DIFFERS, EXIT_FAILED, EXIT_LIMIT, EXIT_OK, TextNote, emit

if TYPE_CHECKING:
    from paceline.shells.cli.call import CliCall
    from paceline.shells.cli.remote import Remote
    from paceline.wiring import System

Became = Literal["created", "changed", "unchanged", "removed", "refused", "left"]
MARKS: dict[Became, str] = {"created": "+", "changed": "~", "removed": "-", "refused": "!"}
PUTS_MAX = 1_000
SHOWN_CHARS_MAX = 100


class FieldChange(msgspec.Struct, frozen=True):
    """A field that differs, with its values as text. None: the field does not exist."""

    field: str
    before: str | None
    after: str | None


class Applied(msgspec.Struct, frozen=True, omit_defaults=True):
    """One definition, and what was done to it, or would be."""

    kind: str
    user: str
    id: str
    became: Became
    changes: list[FieldChange] = []
    error: str = ""
    code: str = ""


class ApplyReport(msgspec.Struct, frozen=True):
    """Result of an apply.

    ``items`` has all definitions except those that are unchanged or left. ``left`` counts those that exist but are not
    in the files.
    """

    dry_run: bool
    created: int
    changed: int
    unchanged: int
    removed: int
    refused: int
    left: int
    items: list[Applied]


class Terms(NamedTuple):
    """Options of the command."""

    files: Sequence[Path]
    dry_run: bool = False
    prune: bool = False
    yes: bool = False
    user: str | None = None


def apply(call: CliCall, terms: Terms) -> int:
    """Makes the definitions as the files declare them, prints the differences, and returns the exit code."""

    def on_store(system: System) -> ApplyReport:
        return apply_to(StoreSide(system), terms, lambda: owner_id(system, terms.user))

    def over_rest(remote: Remote) -> ApplyReport:
        return apply_to(RestSide(remote), terms, lambda: remote.owner(terms.user))

    ask = call.answer if terms.dry_run else call.answer_or_new
    report = ask(on_store, over_rest)
    emit(call, report, *_lines(report))
    return _exit_code(report)


def apply_to(side: Side, terms: Terms, owner: Callable[[], str]) -> ApplyReport:
    """Applies the files to one side. ``owner``: the user of definitions outside of ``users``."""
    declared = read_declarations(terms.files, os.environ, user=owner)
    acts = plan(declared.wanted, _there(side, declared), prunes=declared.scopes if terms.prune else ())
    if terms.dry_run:
        return _report(acts, declared, {}, dry_run=True)
    if not terms.yes:
        _confirm([act for act in acts if act.action == "remove"])
    return _report(acts, declared, dict(_carry_out(side, acts, declared)), dry_run=False)


def _there(side: Side, declared: Declarations) -> dict[Name, Normal]:
    """Returns the existing definitions of the kinds and users that the files name."""
    return {
        Name(kind, user, item_id): normal(kind, document)
        for kind, user in sorted(declared.scopes)
        for item_id, document in side.there(kind, user).items()
    }


def _confirm(removals: Sequence[Act]) -> None:
    """Raises InvalidInput unless a person at a terminal agrees."""
    if not removals:
        return
    names = ", ".join(str(act.name) for act in removals[:10]) + (" …" if len(removals) > 10 else "")
    if not sys.stdin.isatty():
        raise InvalidInput(f"Nothing was changed: {len(removals)} would be removed ({names}). Add --yes to agree.")
    print(f"These will be removed: {names}", file=sys.stderr)
    if input(f"Remove {len(removals)}? [y/N] ").strip().lower() not in ("y", "yes"):
        raise InvalidInput("Nothing was changed.")


def _carry_out(side: Side, acts: Sequence[Act], declared: Declarations) -> Iterator[tuple[Name, SideResult]]:
    """Puts and removes in the order of the acts. A refused definition does not stop the rest."""
    puts = [act.name for act in acts if act.action in ("create", "change", "give_secrets")]
    for _, group in groupby(puts, key=lambda name: name[:2]):
        names = list(group)
        for first in range(0, len(names), PUTS_MAX):
            page = names[first : first + PUTS_MAX]
            yield from zip(page, side.put([(name, declared.parts[name].value()) for name in page]), strict=True)
    for act in acts:
        if act.action == "remove":
            yield act.name, side.remove(act.name)


def _report(acts: Sequence[Act], declared: Declarations, done: dict[Name, SideResult], *, dry_run: bool) -> ApplyReport:
    items = [_applied(act, declared, done.get(act.name)) for act in acts]
    counts = Counter(item.became for item in items)
    return ApplyReport(
        dry_run=dry_run,
        created=counts["created"],
        changed=counts["changed"],
        unchanged=counts["unchanged"],
        removed=counts["removed"],
        refused=counts["refused"],
        left=counts["left"],
        items=[item for item in items if item.became in MARKS],
    )


def _applied(act: Act, declared: Declarations, done: SideResult | None) -> Applied:
    kind, user, item_id = act.name
    if done is not None and done.error:
        return Applied(kind, user, item_id, "refused", error=done.error, code=done.code)
    changes = [_field(change, declared.parts[act.name].written()) for change in act.changes]
    match act.action:
        case "create":
            return Applied(kind, user, item_id, "created")
        case "change":
            return Applied(kind, user, item_id, "changed", changes)
        case "remove":
            return Applied(kind, user, item_id, "removed")
        case "leave":
            return Applied(kind, user, item_id, "left")
        case "give_secrets" if done is not None and done.disposition != "unchanged":
            return Applied(kind, user, item_id, "changed", [FieldChange("secrets", HIDDEN, HIDDEN)])
        case _:
            return Applied(kind, user, item_id, "unchanged")


def _field(change: FieldDifference, written: Any) -> FieldChange:
    """Returns the change with its values as text. Values from the environment are shown by the variable's name."""
    after, as_written = change.after, look_up(written, change.pointer)
    if after != HIDDEN and as_written is not MISSING and "${" in _text(as_written):
        after = as_written
    return FieldChange(
        change.pointer,
        None if change.before is ABSENT else _text(change.before),
        None if after is ABSENT else _text(after),
    )


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _lines(report: ApplyReport) -> Iterator[str | TextNote]:
    for item in report.items:
        name = Name(item.kind, item.user, item.id)  # type: ignore[arg-type]
        yield f"{MARKS[item.became]} {name}{f': {item.error} ({item.code})' if item.error else ''}"
        for one in item.changes:
            yield f"    {one.field}: {_cut(one.before)} -> {_cut(one.after)}"
    counted = ("created", "changed", "unchanged", "removed", "refused")
    counts = ", ".join(f"{count} {word}" for word in counted if (count := getattr(report, word)))
    yield f"{'Dry run, nothing was changed: ' if report.dry_run else ''}{counts or 'nothing to do'}."
    if report.left:
        yield TextNote(f"{report.left} more exist that are not in the files; --prune removes them.")


def _cut(text: str | None) -> str:
    if text is None:
        return "(none)"
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"


def _exit_code(report: ApplyReport) -> int:
    if report.dry_run:
        return EXIT_DIFFERS if report.items else EXIT_OK
    refusals = [item.code for item in report.items if item.became == "refused"]
    if not refusals:
        return EXIT_OK
    return EXIT_LIMIT if set(refusals) == {"limit_reached"} else EXIT_FAILED
