"""Definition of a monitor. Parsed once, here, from JSON to values; past this point the types are trusted."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from paceline.core.durations import parse_duration_ms
from paceline.core.monitors import checks
from paceline.core.monitors.alerting.policy import DEFAULT as DEFAULT_ALERT
from paceline.core.monitors.alerting.policy import AlertPolicy, policy_problems
from paceline.core.monitors.cron import cron_problem, timezone_problem
from paceline.core.monitors.schedule import SLOT_MS, Cadence, Missed, Overlap, Phase, WantedSchedule
from paceline.core.parsing import decode, duration_problems, line_problem
from paceline.errors import FieldProblem, InvalidInput

TAGS_MAX = 32
TAG_CHARS_MAX = 64
EVERY_MS_MAX = 366 * 86_400_000
ATTEMPTS_MAX = 5


class MonitorSpec(msgspec.Struct, frozen=True):
    """A monitor as its user declared it, valid in every field."""

    check: checks.Check
    every: str | None = None
    cron: str | None = None
    timezone: str = "UTC"
    initial_delay: str | None = None
    """Delay before the first firing.

    None: an interval has its phase allotted, with a first check at once; cron needs none.
    """
    jitter: str = "0s"
    missed: Missed = "skip"
    overlap: Overlap = "skip"
    paused: bool = False
    tags: tuple[str, ...] = ()
    alert: AlertPolicy = DEFAULT_ALERT
    attempts: int = 1
    """Number of tries before a check counts as failed."""
    phase: Phase | None = None
    """Allotted, not declared: it is stored with the spec, and is in no document of a user."""

    @property
    def is_allotted(self) -> bool:
        """Return whether its phase is Paceline's choice: an interval without an initial delay."""
        return self.every is not None and self.initial_delay is None


class Monitor(msgspec.Struct, frozen=True):
    """A definition in the store: one row of ``Items``."""

    owner: str
    id: str
    generation: int
    revision: int
    spec: MonitorSpec
    created_ms: int
    updated_ms: int


class SpecLimits(msgspec.Struct, frozen=True):
    every_ms_min: int = 1_000


class _SpecDocument(msgspec.Struct, forbid_unknown_fields=True):
    check: msgspec.Raw
    every: str | None = None
    cron: str | None = None
    timezone: str = "UTC"
    initial_delay: str | msgspec.UnsetType = msgspec.UNSET
    jitter: str = "0s"
    missed: Missed = "skip"
    overlap: Overlap = "skip"
    paused: bool = False
    tags: list[str] = []
    alert: AlertPolicy = DEFAULT_ALERT
    attempts: int = 1


class _StoredDocument(_SpecDocument, forbid_unknown_fields=True):
    phase: Phase | None = None


_SPEC = msgspec.json.Decoder(_SpecDocument)
_STORED = msgspec.json.Decoder(_StoredDocument)


def parse_spec(body: bytes, limits: SpecLimits, *, pointer: str = "") -> MonitorSpec:
    """Return a valid spec, or raise InvalidInput that names every wrong field."""
    spec = _to_spec(decode(_SPEC, body, pointer), pointer)
    problems = [*checks.check_problems(spec.check), *_spec_problems(spec, limits)]
    if problems:
        raise InvalidInput.of(*(FieldProblem(pointer + p.pointer, p.detail) for p in problems))
    return spec


def parse_stored_spec(text: str | bytes) -> MonitorSpec:
    """Return a spec that was valid when it was stored; limits may have changed since and do not apply."""
    body = text.encode() if isinstance(text, str) else text
    document = _STORED.decode(body)
    spec = _to_spec(document, "", check_bytes_max=None)
    return spec if document.phase is None else msgspec.structs.replace(spec, phase=document.phase)


def spec_document(spec: MonitorSpec) -> dict[str, Any]:
    """Return the JSON document of a spec, with every default written out; parsing it gives the spec back."""
    document = _document(spec, checks.check_document(spec.check))
    return document | {"alert": msgspec.to_builtins(spec.alert), "attempts": spec.attempts}


def encode_spec(spec: MonitorSpec) -> bytes:
    """Return the spec as a store keeps it, with its phase.

    Fields that were added later are left out at their default: older texts stay equal.
    """
    check = spec.check
    document = _document(spec, check.document if isinstance(check, checks.OutgoingCheck) else check)
    if spec.alert != DEFAULT_ALERT:
        document["alert"] = spec.alert
    if spec.attempts != 1:
        document["attempts"] = spec.attempts
    if spec.phase is not None:
        document["phase"] = spec.phase
    return msgspec.json.encode(document)


def wish_of(spec: MonitorSpec, *, created_ms: int, owner_disabled: bool) -> WantedSchedule:
    return WantedSchedule(
        cadence=cadence_of(spec),
        initial_delay_ms=duration_ms(spec.initial_delay or "0s"),
        resting=spec.paused or owner_disabled,
        outgoing=isinstance(spec.check, checks.OutgoingCheck),
        created_ms=created_ms,
        queue=spec.check.queue if isinstance(spec.check, checks.OutgoingCheck) else checks.DEFAULT_QUEUE,
        phase=spec.phase,
    )


def cadence_of(spec: MonitorSpec) -> Cadence:
    return _cadence(spec.every, spec.cron, spec.timezone, spec.jitter, spec.missed, spec.overlap)


@lru_cache(maxsize=4_096)
def _cadence(
    every: str | None, cron: str | None, timezone: str, jitter: str, missed: Missed, overlap: Overlap
) -> Cadence:
    """Return the cadence. Memoised: most monitors share their cadence with many others."""
    return Cadence(
        every_ms=duration_ms(every) if every is not None else 0,
        cron=" ".join(cron.split()) if cron is not None else "",
        timezone=timezone if cron is not None else "UTC",
        jitter_ms=duration_ms(jitter),
        missed=missed,
        overlap=overlap,
    )


def duration_ms(text: str) -> int:
    """Return the milliseconds of a duration that was validated."""
    ms = parse_duration_ms(text)
    assert ms is not None
    return ms


def _document(spec: MonitorSpec, check: Any) -> dict[str, Any]:
    document: dict[str, Any] = {"check": check}
    if spec.every is not None:
        document["every"] = spec.every
    if spec.cron is not None:
        document["cron"] = spec.cron
        document["timezone"] = spec.timezone
    if spec.initial_delay is not None:
        document["initial_delay"] = spec.initial_delay
    document["jitter"] = spec.jitter
    document["missed"] = spec.missed
    document["overlap"] = spec.overlap
    document["paused"] = spec.paused
    document["tags"] = list(spec.tags)
    return document


def _to_spec(
    document: _SpecDocument, pointer: str, *, check_bytes_max: int | None = checks.CHECK_BYTES_MAX
) -> MonitorSpec:
    return MonitorSpec(
        check=checks.parse_check(bytes(document.check), f"{pointer}/check", bytes_max=check_bytes_max),
        every=document.every,
        cron=document.cron,
        timezone=document.timezone,
        initial_delay=None if document.initial_delay is msgspec.UNSET else document.initial_delay,
        jitter=document.jitter,
        missed=document.missed,
        overlap=document.overlap,
        paused=document.paused,
        tags=tuple(document.tags),
        alert=document.alert,
        attempts=document.attempts,
    )


def _spec_problems(spec: MonitorSpec, limits: SpecLimits) -> list[FieldProblem]:
    problems = [*_cadence_problems(spec, limits), *policy_problems(spec.alert)]
    for name, text in (("initial_delay", spec.initial_delay or "0s"), ("jitter", spec.jitter)):
        problems += duration_problems(f"/{name}", text, ms_min=0, ms_max=EVERY_MS_MAX)
    if not 1 <= spec.attempts <= ATTEMPTS_MAX:
        problems.append(FieldProblem("/attempts", f"must be from 1 to {ATTEMPTS_MAX}"))
    elif spec.attempts > 1 and isinstance(spec.check, checks.OutgoingCheck):
        detail = 'must be 1: a checker of your own tries again itself, or reports "retry"'
        problems.append(FieldProblem("/attempts", detail))
    if len(spec.tags) > TAGS_MAX:
        problems.append(FieldProblem("/tags", f"at most {TAGS_MAX} tags"))
    for index, tag in enumerate(spec.tags[:TAGS_MAX]):
        if problem := line_problem(tag, f"/tags/{index}", chars_max=TAG_CHARS_MAX):
            problems.append(problem)
    return problems


def _cadence_problems(spec: MonitorSpec, limits: SpecLimits) -> list[FieldProblem]:
    if (spec.every is None) == (spec.cron is None):
        return [FieldProblem("/every", 'give exactly one of "every" and "cron"')]
    if spec.every is not None:
        problems = duration_problems("/every", spec.every, ms_min=limits.every_ms_min, ms_max=EVERY_MS_MAX)
        if not problems and duration_ms(spec.every) % SLOT_MS:
            problems.append(FieldProblem("/every", f"must be a multiple of {SLOT_MS}ms"))
        if spec.timezone != "UTC":
            problems.append(FieldProblem("/timezone", 'goes with "cron" only; remove it'))
        return problems
    assert spec.cron is not None
    problems = []
    if detail := cron_problem(spec.cron):
        problems.append(FieldProblem("/cron", detail))
    if detail := timezone_problem(spec.timezone):
        problems.append(FieldProblem("/timezone", detail))
    return problems
