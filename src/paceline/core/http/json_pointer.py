"""JSON pointers (RFC 6901) into foreign documents, and equality of JSON values."""

from __future__ import annotations

import re
from typing import Any, Final

POINTER_CHARS_MAX = 1_024
POINTER_RULE = 'write a JSON pointer such as "/status" or "/items/0/name"; "" is the whole document'
_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)*")
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


class Missing:
    """Type of ``MISSING``, the result of a pointer that leads nowhere."""


MISSING: Final = Missing()


def pointer_problem(pointer: str) -> str | None:
    """Return why this cannot be a pointer, or None."""
    if len(pointer) > POINTER_CHARS_MAX:
        return f"at most {POINTER_CHARS_MAX} characters"
    return None if _POINTER.fullmatch(pointer) else POINTER_RULE


def look_up(document: Any, pointer: str) -> Any:
    """Return the value that the pointer leads to, or MISSING."""
    value = document
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and _INDEX.fullmatch(name) and int(name) < len(value):
            value = value[int(name)]
        else:
            return MISSING
    return value


def is_number(value: Any) -> bool:
    """Return whether this is a JSON number. In Python, True and False are integers, too."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def same(wanted: Any, found: Any) -> bool:
    """Return whether both are the same JSON value: 1 is 1.0, but true is not 1. Goes no deeper than ``wanted`` does."""
    if isinstance(wanted, dict):
        return (
            isinstance(found, dict)
            and wanted.keys() == found.keys()
            and all(same(value, found[name]) for name, value in wanted.items())
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and len(wanted) == len(found) and all(map(same, wanted, found))
    if is_number(wanted):
        return is_number(found) and bool(wanted == found)
    return type(wanted) is type(found) and bool(wanted == found)
