"""ETag, If-Match and If-None-Match: edits that state what they believe (RFC 9110)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from paceline.core.batch import Batch
from paceline.core.definition import Monitor
from paceline.core.provider import ProviderDefinition
from paceline.errors import RevisionMismatch
from paceline.ports import AccountSpec

Definition = Monitor | ProviderDefinition | Batch
Tagged = Definition | AccountSpec
_TAG = re.compile(r'\s*((?:W/)?"[^"]*")\s*(?:,|$)')


class Guard(NamedTuple):
    """What the writer believes about the definition. Both None: nothing."""

    if_match: str | None = None
    if_none_match: str | None = None


NO_GUARD = Guard()


def etag_of(definition: Tagged) -> str:
    """Which of those that ever had this id, and which of its revisions. An account's is its limits themselves."""
    if isinstance(definition, AccountSpec):
        limits = f"{definition.concurrent}-{definition.daily_results}-{definition.daily_credits}"
        return f'"{limits}-{"on" if definition.enabled else "off"}"'
    life = definition.generation if isinstance(definition, Monitor) else definition.number
    return f'"{life}-{definition.revision}"'


def guard_of(headers: Mapping[bytes, bytes]) -> Guard:
    if_match, if_none_match = headers.get(b"if-match"), headers.get(b"if-none-match")
    if if_match is None and if_none_match is None:
        return NO_GUARD
    return Guard(
        None if if_match is None else if_match.decode("latin-1").strip(),
        None if if_none_match is None else if_none_match.decode("latin-1").strip(),
    )


def expected_revision(guard: Guard, definition: Definition | None, name: str, *, word: str = "monitor") -> int | None:
    """The revision that the write must find (0: none at all; None: whatever is there), or RevisionMismatch."""
    check_guard(guard, definition, name, word=word)
    if definition is not None and guard != NO_GUARD:
        return definition.revision
    return 0 if guard.if_none_match == "*" else None


def check_guard(guard: Guard, definition: Tagged | None, name: str, *, word: str) -> None:
    """RevisionMismatch if what is there now is not what the writer believes."""
    shown = f"{word.capitalize()} {name!r}"
    if guard.if_none_match is not None and matches(guard.if_none_match, definition, weak=True):
        raise RevisionMismatch(f"{shown} exists already, and If-None-Match asked that it does not.")
    if guard.if_match is not None:
        if definition is None:
            raise RevisionMismatch(f"There is no {word} {name!r} to match. Put it without If-Match.")
        if not matches(guard.if_match, definition, weak=False):
            now = etag_of(definition)
            raise RevisionMismatch(f"{shown} is not as you have seen it: it is at {now}. Read it again and retry.")


def matches(condition: str, definition: Tagged | None, *, weak: bool) -> bool:
    """Whether the definition is one that the condition names. A weak tag never matches strongly."""
    if definition is None:
        return False
    if condition == "*":
        return True
    tags = _TAG.findall(condition)
    if weak:
        tags = [tag.removeprefix("W/") for tag in tags]
    return etag_of(definition) in tags
