"""Reads declarations from files: definitions by name, and the kinds and users that the files cover."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from paceline.core.as_code.declared import OF_USERS, Kind, Name, Normal, normal
from paceline.errors import FieldProblem, InvalidInput
from paceline.shells.cli.as_code.yaml_file import YamlFile, YamlPart

PROBLEMS_MAX = 100
SECTIONS: Mapping[str, Kind] = {
    "providers": "provider",
    "batches": "batch",
    "channels": "channel",
    "monitors": "monitor",
}
"""Kind of the definitions in each section of a file."""
USERS = "users"


class Declarations(NamedTuple):
    """Definitions of the files. ``scopes``: kinds and users that the files declare completely."""

    parts: Mapping[Name, YamlPart]
    wanted: Mapping[Name, Normal]
    scopes: frozenset[tuple[Kind, str]]


def read_declarations(
    files: Iterable[Path], environment: Mapping[str, str], *, user: Callable[[], str]
) -> Declarations:
    """Returns all definitions of these files. ``user`` returns the owner of channels and monitors outside of ``users``.

    Raises InvalidInput, which names every wrong field with its file and line.
    """
    parts: dict[Name, YamlPart] = {}
    scopes: set[tuple[Kind, str]] = set()
    for file in files:
        for kind, owner, section in _sections(YamlFile(file, environment).root(), user):
            scopes.add((kind, owner))
            for item_id, part in section.items().items():
                name = Name(kind, owner, item_id)
                if (first := parts.get(name)) is not None:
                    where = first.field_problem("").pointer
                    raise part.problem(f"{name} is declared twice, the first time at {where}")
                parts[name] = part
    return Declarations(parts, _normals(parts), frozenset(scopes))


def _sections(root: YamlPart, user: Callable[[], str]) -> Iterable[tuple[Kind, str, YamlPart]]:
    """Yields each section of a file with its kind and user."""
    for word, section in root.items().items():
        kind = SECTIONS.get(word)
        if word == USERS:
            for owner, of_user in section.items().items():
                yield from _of_user(owner, of_user)
        elif kind is None:
            raise section.problem(f"unknown; there are {', '.join([*SECTIONS, USERS])}")
        elif kind not in OF_USERS:
            yield kind, "", section
        else:
            yield kind, user(), section


def _of_user(owner: str, part: YamlPart) -> Iterable[tuple[Kind, str, YamlPart]]:
    for word, section in part.items().items():
        kind = SECTIONS.get(word)
        if kind is None or kind not in OF_USERS:
            raise section.problem("unknown; a user has channels and monitors")
        yield kind, owner, section


def _normals(parts: Mapping[Name, YamlPart]) -> dict[Name, Normal]:
    found: dict[Name, Normal] = {}
    problems: list[FieldProblem] = []
    for name, part in parts.items():
        try:
            found[name] = normal(name.kind, part.value())
        except InvalidInput as error:
            problems += _located(part, error)
        if len(problems) >= PROBLEMS_MAX:
            break
    if problems:
        raise InvalidInput.of(*problems[:PROBLEMS_MAX])
    return found


def _located(part: YamlPart, error: InvalidInput) -> list[FieldProblem]:
    """Returns the problems with their lines. Problems of the file itself already have theirs."""
    if not error.errors:
        return [part.field_problem(error.detail)]
    return [
        part.field_problem(one.detail, one.pointer) if one.pointer.startswith("/") or not one.pointer else one
        for one in error.errors
    ]
