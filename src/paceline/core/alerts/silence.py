"""Silences: for a time, alerts of a monitor or of all monitors with a tag are recorded and not sent."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Annotated, NamedTuple

import msgspec

from paceline.core.durations import parse_duration_ms
from paceline.core.monitors.definition import TAG_CHARS_MAX
from paceline.core.parsing import duration_problems, line_problem
from paceline.core.schema import Duration, shown
from paceline.errors import FieldProblem, InvalidInput

SILENCES_PER_USER_MAX = 200
FOR_MS_MIN, FOR_MS_MAX = 60_000, 365 * 86_400_000
REASON_CHARS_MAX = 200
For = Annotated[Duration, shown("Length of the silence from now, from 1m to 365d.")]
Reason = Annotated[str, shown("Shown in the list of silences.", maxLength=REASON_CHARS_MAX)]


class SilenceBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"for_": "for"}):
    """A new silence of one monitor: its length and reason. Its alerts are recorded and not sent."""

    for_: For
    reason: Reason = ""


class TagSilenceBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"for_": "for"}):
    """A new silence of all monitors with a tag. Their alerts are recorded and not sent."""

    tag: Annotated[str, shown(minLength=1, maxLength=TAG_CHARS_MAX)]
    for_: For
    reason: Reason = ""


class Silence(msgspec.Struct, frozen=True):
    """A silence as it is stored: of a monitor, or of a tag. Its key has its user and id."""

    monitor: str | None
    tag: str | None
    from_ms: int
    until_ms: int
    reason: str = ""


class NamedSilence(NamedTuple):
    """A silence with its id."""

    id: str
    silence: Silence


def monitor_silence(body: SilenceBody, monitor: str, *, now_ms: int) -> Silence:
    """Return a silence of the monitor that begins now, or raise InvalidInput with the field that is wrong."""
    return _silence(body, monitor=monitor, tag=None, now_ms=now_ms)


def tag_silence(body: TagSilenceBody, *, now_ms: int) -> Silence:
    """Return a silence of a tag that begins now, or raise InvalidInput with the field that is wrong."""
    if not body.tag or line_problem(body.tag, "/tag", chars_max=TAG_CHARS_MAX):
        raise InvalidInput.of(FieldProblem("/tag", f"one line of 1 to {TAG_CHARS_MAX} characters"))
    return _silence(body, monitor=None, tag=body.tag, now_ms=now_ms)


def _silence(body: SilenceBody | TagSilenceBody, *, monitor: str | None, tag: str | None, now_ms: int) -> Silence:
    problems = duration_problems("/for", body.for_, ms_min=FOR_MS_MIN, ms_max=FOR_MS_MAX)
    if problem := line_problem(body.reason, "/reason", chars_max=REASON_CHARS_MAX):
        problems.append(problem)
    if problems:
        raise InvalidInput.of(*problems)
    lasts_ms = parse_duration_ms(body.for_)
    assert lasts_ms is not None
    return Silence(monitor, tag, now_ms, now_ms + lasts_ms, body.reason)


def silenced_by(
    silences: Iterable[NamedSilence], *, monitor: str, tags: Collection[str], now_ms: int
) -> NamedSilence | None:
    """Return the silence in force that covers the monitor and ends last; None: none does."""
    covering = [
        one
        for one in silences
        if one.silence.until_ms > now_ms and (one.silence.monitor == monitor or one.silence.tag in tags)
    ]
    return max(covering, key=lambda one: one.silence.until_ms, default=None)
