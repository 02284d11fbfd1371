"""ETag, If-Match and If-None-Match: conditional requests (RFC 9110)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import NamedTuple, TypeVar

import msgspec

from paceline.core.alerts.channel import Channel
from paceline.core.batches.batch import Batch
from paceline.core.batches.provider import ProviderDefinition
from paceline.core.jobs.values import AccountSpec
from paceline.core.monitors.definition import Monitor
from paceline.errors import RevisionMismatch
from paceline.shells.api.http.answers import ApiAnswer, Header, empty_answer
from paceline.steps.edit import TRIES_MAX, edit, too_busy, unless_changed

Definition = Monitor | ProviderDefinition | Batch
Tagged = Definition | AccountSpec | Channel
T = TypeVar("T")
_TAG = re.compile(r'\s*((?:W/)?"[^"]*")\s*(?:,|$)')


class RequestGuard(NamedTuple):
    """Conditional headers of a request; both are None if it has none."""

    if_match: str | None = None
    if_none_match: str | None = None


NO_GUARD = RequestGuard()


def etag_of(definition: Tagged) -> str:
    """Returns the ETag of a definition: its generation (or number) and revision.

    The ETag of an account is made of its limits, that of a channel is a hash of what is stored. A put seals the
    channel's URL again, so each put changes the hash.
    """
    if isinstance(definition, Channel):
        return f'"{sha256(msgspec.json.encode(definition)).hexdigest()[:24]}"'
    if isinstance(definition, AccountSpec):
        limits = f"{definition.concurrent}-{definition.daily_results}-{definition.daily_credits}"
        return f'"{limits}-{"on" if definition.enabled else "off"}"'
    life = definition.generation if isinstance(definition, Monitor) else definition.number
    return f'"{life}-{definition.revision}"'


def guard_of(headers: Mapping[bytes, bytes]) -> RequestGuard:
    if_match, if_none_match = headers.get(b"if-match"), headers.get(b"if-none-match")
    if if_match is None and if_none_match is None:
        return NO_GUARD
    return RequestGuard(
        None if if_match is None else if_match.decode("latin-1").strip(),
        None if if_none_match is None else if_none_match.decode("latin-1").strip(),
    )


def expected_revision(
    guard: RequestGuard, definition: Definition | None, name: str, *, word: str = "monitor"
) -> int | None:
    """Returns the revision that the write must find (0: no definition; None: any), or raises RevisionMismatch."""
    check_guard(guard, definition, name, word=word)
    if definition is not None and guard != NO_GUARD:
        return definition.revision
    return 0 if guard.if_none_match == "*" else None


def put_guarded(
    guard: RequestGuard, word: str, name: str, *, read: Callable[[], Definition | None], put: Callable[[int | None], T]
) -> T:
    """Puts if the stored definition satisfies the conditional headers; tries again if somebody wrote in between."""

    def attempt() -> T | None:
        stored = read() if guard is not NO_GUARD else None
        expected = expected_revision(guard, stored, name, word=word)
        return unless_changed(lambda: put(expected))

    return edit(f"{word.capitalize()} {name!r}", attempt)


async def edit_together(name: str, attempt: Callable[[], Awaitable[T | None]]) -> T:
    """Like ``steps.edit.edit``, for an attempt that shares its commit with other requests."""
    for _ in range(TRIES_MAX):
        if (done := await attempt()) is not None:
            return done
    raise too_busy(name)


def not_modified(headers: Mapping[bytes, bytes], definition: Tagged) -> ApiAnswer | None:
    """Returns 304 if the reader already has this revision, else None."""
    seen = guard_of(headers).if_none_match
    if seen is None or not matches(seen, definition, weak=True):
        return None
    return empty_answer(304, etag_header(definition))


def etag_header(definition: Tagged) -> Header:
    return b"etag", etag_of(definition).encode()


def check_guard(guard: RequestGuard, definition: Tagged | None, name: str, *, word: str) -> None:
    """Raises RevisionMismatch if the stored definition does not satisfy the conditional headers."""
    shown = f"{word.capitalize()} {name!r}"
    if guard.if_none_match is not None and matches(guard.if_none_match, definition, weak=True):
        raise RevisionMismatch(f"{shown} exists already, but If-None-Match asks for a new one.")
    if guard.if_match is not None:
        if definition is None:
            raise RevisionMismatch(f"There is no {word} {name!r} that If-Match could match. Put it without If-Match.")
        if not matches(guard.if_match, definition, weak=False):
            now = etag_of(definition)
            raise RevisionMismatch(
                f"{shown} has changed since you read it: its ETag is now {now}. Read it again and retry."
            )


def matches(condition: str, definition: Tagged | None, *, weak: bool) -> bool:
    """True if the condition names the definition's ETag. A weak tag never matches strongly."""
    if definition is None:
        return False
    if condition == "*":
        return True
    tags = _TAG.findall(condition)
    if weak:
        tags = [tag.removeprefix("W/") for tag in tags]
    return etag_of(definition) in tags
