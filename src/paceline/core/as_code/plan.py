"""Compares what a file declares with what is there, and says what to do in which order."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

from paceline.core.as_code.declared import KINDS, Kind, Name, Normal
from paceline.core.parsing import escape_pointer

Action = Literal["create", "change", "keep", "give_secrets", "remove", "leave"]
"""``give_secrets``: nothing but secrets may differ. ``leave``: it is not in the file, and stays."""


class Absent:
    """What stands for the value of a field that is not there."""

    def __bool__(self) -> bool:
        return False


ABSENT: Final = Absent()


class Change(NamedTuple):
    """A field that differs: its JSON pointer, and its values."""

    pointer: str
    before: Any
    after: Any


class Act(NamedTuple):
    name: Name
    action: Action
    changes: tuple[Change, ...] = ()


def plan(
    wanted: Mapping[Name, Normal], there: Mapping[Name, Normal], *, prunes: Collection[tuple[Kind, str]] = ()
) -> list[Act]:
    """Everything that is declared or there. ``prunes``: the kinds of users of which nothing else may be left.

    Puts come in the order of kinds, then removals in the opposite order.
    """
    acts = [_put(name, wanted[name], there.get(name)) for name in sorted(wanted, key=_order)]
    others = sorted((name for name in there if name not in wanted), key=_order, reverse=True)
    return acts + [Act(name, "remove" if (name.kind, name.user) in prunes else "leave") for name in others]


def differences(before: Any, after: Any, pointer: str = "") -> Iterator[Change]:
    """Fields that differ, objects field by field, lists as a whole. Depth is bounded by what was parsed."""
    both = isinstance(before, dict | Absent) and isinstance(after, dict | Absent) and (before or after)
    if both:
        before, after = ({} if isinstance(one, Absent) else one for one in (before, after))
        for name in sorted(before.keys() | after.keys()):
            below = f"{pointer}/{escape_pointer(name)}"
            yield from differences(before.get(name, ABSENT), after.get(name, ABSENT), below)
    elif type(before) is not type(after) or before != after:
        yield Change(pointer, before, after)


def _put(name: Name, wanted: Normal, there: Normal | None) -> Act:
    if there is None:
        return Act(name, "create")
    changes = tuple(differences(there.document, wanted.document))
    if changes:
        return Act(name, "change", changes)
    return Act(name, "give_secrets" if wanted.gives_secrets else "keep")


def _order(name: Name) -> tuple[int, str, str]:
    return KINDS.index(name.kind), name.user, name.id
