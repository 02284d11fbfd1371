"""Secrets of a check: the values of its headers and of ``auth``, and its body. Stored sealed, shown masked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from msgspec.structs import asdict, replace

from paceline.core.http.auth import Auth, with_values
from paceline.core.monitors.checks import HIDDEN, Check, HttpCheck, with_secrets
from paceline.core.parsing import escape_pointer
from paceline.errors import FieldProblem, InvalidInput

C = TypeVar("C", bound=Check)


def is_sealed(check: Check) -> bool:
    return isinstance(check, HttpCheck) and check.sealed


def is_clear(check: Check) -> bool:
    """Return whether a secret of the check is not sealed."""
    if not isinstance(check, HttpCheck) or check.sealed:
        return False
    return bool(check.headers) or check.body is not None or check.auth is not None


def seal_check(check: C, seal: Callable[[str], str]) -> C:
    """Return the check with its secrets sealed. Values that mean "as stored" are left for ``keep_hidden``."""
    if not (isinstance(check, HttpCheck) and is_clear(check)):
        return check
    return cast("C", with_secrets(check, lambda value: value if value == HIDDEN else seal(value), sealed=True))


def open_check(check: C, unseal: Callable[[str], str]) -> C:
    if not (isinstance(check, HttpCheck) and check.sealed):
        return check
    return cast("C", with_secrets(check, unseal, sealed=False))


def hides(check: Check) -> bool:
    """Return whether the check keeps a stored value."""
    if not isinstance(check, HttpCheck):
        return False
    hidden = HIDDEN in check.headers.values() or check.body == HIDDEN
    return hidden or (check.auth is not None and HIDDEN in asdict(check.auth).values())


def secrets_given(check: Check) -> bool:
    """Return whether the check gives a secret by its value, and not as a reference to the stored one."""
    if not isinstance(check, HttpCheck):
        return False
    values = [*check.headers.values(), *(asdict(check.auth).values() if check.auth else ())]
    return any(value != HIDDEN for value in values) or check.body not in (None, HIDDEN)


def keep_hidden(check: C, stored: Check | None, *, pointer: str = "") -> C:
    """Return the sealed check with the stored values where they were given as they are shown (hidden)."""
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
    missing += _missing_auth(check.auth, known.auth, pointer)
    if missing:
        raise InvalidInput.of(*missing)
    headers = {name: known.headers[name] if value == HIDDEN else value for name, value in check.headers.items()}
    body = known.body if check.body == HIDDEN else check.body
    return cast("C", replace(check, headers=headers, body=body, auth=_kept_auth(check.auth, known.auth)))


def _missing_auth(auth: Auth | None, known: Auth | None, pointer: str) -> list[FieldProblem]:
    if auth is None or type(auth) is type(known):
        return []
    hidden = (name for name, value in asdict(auth).items() if value == HIDDEN)
    return [
        FieldProblem(f"{pointer}/check/auth/{name}", f'no value is stored for "{HIDDEN}" to keep') for name in hidden
    ]


def _kept_auth(auth: Auth | None, known: Auth | None) -> Auth | None:
    if auth is None or known is None:
        return auth
    return with_values(auth, lambda name, value: getattr(known, name) if value == HIDDEN else value)
