"""Values of headers as they are stored: sealed, with a mark on those that are templates.

A value that was sealed before there were placeholders has no mark: its braces are sent as they are.
"""

from __future__ import annotations

from collections.abc import Mapping

from paceline.core.batches.records.placeholders import escape, has_braces
from paceline.core.monitors.checks import HIDDEN
from paceline.ports import Vault

TEMPLATE_MARK = "template."


def seal_headers(headers: Mapping[str, str], vault: Vault) -> dict[str, str]:
    """Return the headers sealed. Values that mean "as stored" are left as they are."""
    return {name: value if value == HIDDEN else _sealed(value, vault) for name, value in headers.items()}


def open_headers(sealed: Mapping[str, str], vault: Vault) -> dict[str, str]:
    """Return each value as a template. Raise WrongSetting if one was sealed with another key."""
    return {name: _template(value, vault) for name, value in sealed.items()}


def without_mark(sealed: str) -> str:
    """Return the sealed text alone, as the vault made it."""
    return sealed.removeprefix(TEMPLATE_MARK)


def _sealed(value: str, vault: Vault) -> str:
    return f"{TEMPLATE_MARK if has_braces(value) else ''}{vault.seal(value)}"


def _template(sealed: str, vault: Vault) -> str:
    value = vault.unseal(without_mark(sealed))
    return value if sealed.startswith(TEMPLATE_MARK) else escape(value)
