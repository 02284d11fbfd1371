"""What of a check is secret: the values of its headers, and its body. They are stored sealed and shown masked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from paceline.core.monitors.checks import HIDDEN, Check, HttpCheck
from paceline.core.parsing import escape_pointer
from paceline.errors import FieldProblem, InvalidInput

C = TypeVar("C", bound=Check)


def is_sealed(check: Check) -> bool:
    return isinstance(check, HttpCheck) and check.sealed


def is_clear(check: Check) -> bool:
    """Whether something secret of it is not sealed."""
    return isinstance(check, HttpCheck) and not check.sealed and bool(check.headers or check.body is not None)


def seal_check(check: C, seal: Callable[[str], str]) -> C:
    """Values that stand for "as it is stored" are left for ``keep_hidden``."""
    if not is_clear(check):
        return check
    return _with_values(check, lambda value: value if value == HIDDEN else seal(value), sealed=True)


def open_check(check: C, unseal: Callable[[str], str]) -> C:
    if not (isinstance(check, HttpCheck) and check.sealed):
        return check
    return _with_values(check, unseal, sealed=False)


def hides(check: Check) -> bool:
    """Whether a value is to be kept as it is stored."""
    return isinstance(check, HttpCheck) and (HIDDEN in check.headers.values() or check.body == HIDDEN)


def keep_hidden(check: C, stored: Check | None, *, pointer: str = "") -> C:
    """The sealed check with the stored values where they were given back as they are shown."""
    if not (isinstance(check, HttpCheck) and hides(check)):
        return check
    known = stored if isinstance(stored, HttpCheck) else HttpCheck(url="")
    missing = [
        FieldProblem(f"{pointer}/check/headers/{escape_pointer(name)}", f'no value is stored for "{HIDDEN}" to keep')
        for name, value in check.headers.items()
        if value == HIDDEN and name not in known.headers
    ]
    if check.body == HIDDEN and known.body is None:
        missing.append(FieldProblem(f"{pointer}/check/body", f'no body is stored for "{HIDDEN}" to keep'))
    if missing:
        raise InvalidInput.of(*missing)
    headers = {name: known.headers[name] if value == HIDDEN else value for name, value in check.headers.items()}
    return replace(check, headers=headers, body=known.body if check.body == HIDDEN else check.body)


def _with_values(check: C, change: Callable[[str], str], *, sealed: bool) -> C:
    assert isinstance(check, HttpCheck)
    headers = {name: change(value) for name, value in check.headers.items()}
    return replace(check, headers=headers, body=None if check.body is None else change(check.body), sealed=sealed)
