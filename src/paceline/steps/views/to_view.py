"""Conversion of a value of core to a view: fields of the same name are copied, instants become text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from paceline.core.instants import to_text_or_none

View = TypeVar("View", bound=msgspec.Struct)
_Copy = tuple[str, str, Callable[[Any], Any] | None]
"""Field of the view, attribute of the value, and the conversion."""
_COPIES: dict[tuple[type, type, tuple[str, ...]], tuple[_Copy, ...]] = {}


def to_view(value: object, view: type[View], **given: Any) -> View:
    """Return the view: each field as it is given, else from the value's attribute of the same name.

    A field ``x`` or ``x_at`` is the ISO text of the attribute ``x_ms``, if the value has no attribute ``x``. A field
    that is found nowhere keeps its default; without one, TypeError is raised.
    """
    key = (type(value), view, tuple(given))
    copies = _COPIES.get(key)
    if copies is None:
        copies = _COPIES[key] = tuple(_copies(value, view, given))
    for name, attribute, convert in copies:
        found = getattr(value, attribute)
        given[name] = found if convert is None else convert(found)
    return view(**given)


def _copies(value: object, view: type[msgspec.Struct], given: dict[str, Any]) -> list[_Copy]:
    copies: list[_Copy] = []
    for name in view.__struct_fields__:
        instant = f"{name.removesuffix('_at')}_ms"
        if name in given:
            continue
        if hasattr(value, name):
            copies.append((name, name, None))
        elif hasattr(value, instant):
            copies.append((name, instant, to_text_or_none))
    return copies
