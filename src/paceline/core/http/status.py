"""Status codes and classes of status codes, such as ``"2xx"``, as users name them."""

from __future__ import annotations

import re
from collections.abc import Collection

CODE_MAX = 599
_CLASS = re.compile(r"^[1-5]xx$")


def is_status(code: int | str, *, code_min: int) -> bool:
    """Return whether this is a status from ``code_min`` to 599, or the class of one."""
    if isinstance(code, str):
        return _CLASS.fullmatch(code) is not None and int(code[0]) * 100 >= code_min
    return code_min <= code <= CODE_MAX


def status_rule(code_min: int) -> str:
    """Return the rule of ``is_status`` in words."""
    return f'a status from {code_min} to {CODE_MAX}, or a class from "{code_min // 100}xx" to "5xx"'


def status_schema(code_min: int) -> list[dict[str, object]]:
    """Return the rule of ``is_status`` as alternatives of a JSON schema."""
    number = {"type": "integer", "minimum": code_min, "maximum": CODE_MAX}
    return [number, {"type": "string", "pattern": f"^[{code_min // 100}-5]xx$"}]


def names_status(codes: Collection[int | str], code: int) -> bool:
    """Return whether the status itself or its class is among these."""
    return code in codes or f"{code // 100}xx" in codes
