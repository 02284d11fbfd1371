"""Comparison of a file's definitions with the existing ones, and the actions that follow, in order."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

from paceline.core.as_code.declared import KINDS, Kind, Name, Normal
from paceline.core.parsing import escape_pointer

Action = Literal["create", "change", "keep", "give_secrets", "remove", "leave"]
"""``give_secrets``: nothing but secrets may differ. ``leave``: the definition is not in the file, and stays."""


class Absent:
    """Type of ``ABSENT``, the value of a field that does not exist."""

    def __bool__(self) -> bool:
        return False


ABSENT: Final = Absent()


class FieldDifference(NamedTuple):
    """A field that differs: its JSON pointer, and its values."""

    pointer: str
    before: Any
    after: Any


class Act(NamedTuple):
    name: Name
    action: Action
    changes: tuple[FieldDifference, ...] = ()


def plan(
    wanted: Mapping[Name, Normal], there: Mapping[Name, Normal], *, prunes: Collection[tuple[Kind, str]] = ()
) -> list[Act]:
    """Return an action for everything that is declared or exists.

    ``prunes``: kinds and users whose definitions are removed if they are not declared. Puts come in the order of kinds,
    then removals in the opposite order.
    """
    acts = [_put(name, wanted[name], there.get(name)) for name in sorted(wanted, key=_order)]
    others = sorted((name for name in there if name not in wanted), key=_order, reverse=True)
    return acts + [Act(name, "remove" if (name.kind, name.user) in prunes else "leave") for name in others]


def differences(before: Any, after: Any, pointer: str = "") -> Iterator[FieldDifference]:
    """Yield the fields that differ: objects are compared field by field, lists as a whole.

    The depth is bounded by the parser.
    """
    both = isinstance(before, dict | Absent) and isinstance(after, dict | Absent) and (before or after)
    if both:
        before, after = ({} if isinstance(one, Absent) else one for one in (before, after))
        for name in sorted(before.keys() | after.keys()):
            below = f"{pointer}/{escape_pointer(name)}"
            yield from differences(before.get(name, ABSENT), after.get(name, ABSENT), below)
    elif type(before) is not type(after) or before != after:
        yield FieldDifference(pointer, before, after)


def _put(name: Name, wanted: Normal, there: Normal | None) -> Act:
    if there is None:
        return Act(name, "create")
    changes = tuple(differences(there.document, wanted.document))
    if changes:
        return Act(name, "change", changes)
    return Act(name, "give_secrets" if wanted.gives_secrets else "keep")


def _order(name: Name) -> tuple[int, str, str]:
    return KINDS.index(name.kind), name.user, name.id
