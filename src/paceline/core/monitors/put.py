"""Decision whether a monitor is created, replaced, removed or left as it is, and what is then stored.

A store reads the monitor and its owner, asks here, and writes the returned values on the condition that both are still
as they were read.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from paceline.core.monitors.checks import DEFAULT_QUEUE, OutgoingCheck
from paceline.core.monitors.definition import Monitor, MonitorSpec, cadence_of, encode_spec
from paceline.core.monitors.load import exceeds, load_of
from paceline.core.monitors.stored import StoredMonitor, keep_spec, read_spec
from paceline.core.monitors.values import Change, PutMonitor, PutResult, RemoveMonitor, RemoveResult

QUEUES_MAX = 100
"""Maximum number of outgoing queues that one owner's checks may name, beside the default one."""


class OwnerLimits(NamedTuple):
    """Limits of one owner: number of monitors, and how often a second they may fire together (0: no limit)."""

    monitors_max: int
    firings_max: int = 0


class OwnerFacts(msgspec.Struct, frozen=True, gc=False):
    """Facts of an owner: the number of monitors, and their load together (``core.monitors.load``).

    ``queues``: the outgoing queues that the owner's checks have named so far, without the default one.
    """

    monitors: int
    load: int
    disabled: bool
    queues: frozenset[str] = frozenset()


class NewFacts(msgspec.Struct, frozen=True, gc=False):
    """New values for a put: the time, the number of its change, and the generation of a new monitor.

    A store that has to ask for numbers may judge first without them: whether a put creates does not depend on them.
    """

    now_ms: int
    change_seq: int
    generation: int


class PutDecision(msgspec.Struct, frozen=True):
    """Decision on a put.

    ``stored`` is to be written, with a recorded change; None: nothing is. ``owner`` has the owner's facts after that.
    """

    result: PutResult
    stored: StoredMonitor | None
    owner: OwnerFacts


def decide_put(
    item: PutMonitor, stored: StoredMonitor | None, owner: OwnerFacts, limits: OwnerLimits, new: NewFacts
) -> PutDecision:
    """Judge one put against the monitor of that name, if there is one, and its owner."""
    if stored is None:
        if not as_expected(item, None, 0):
            return PutDecision(PutResult("revision_mismatch"), None, owner)
        if owner.monitors >= limits.monitors_max:
            return PutDecision(PutResult("limit_reached"), None, owner)
        if item.asks_phase and _lacks_phase(item.spec):
            return PutDecision(PutResult("unplaced"), None, owner)
        load = owner.load + load_of(item.spec)
        if exceeds(load, before=owner.load, firings_per_second_max=limits.firings_max):
            return PutDecision(PutResult("rate_reached", load=load), None, owner)
        if (queues := _with_queue(item, owner)) is None:
            return PutDecision(PutResult("queues_reached"), None, owner)
        return _create(item, OwnerFacts(owner.monitors + 1, load, owner.disabled, queues), new)
    if not as_expected(item, stored.generation, stored.revision):
        return PutDecision(PutResult("revision_mismatch", stored.monitor(item.owner, item.id)), None, owner)
    before = read_spec(stored.text)
    spec = placed(item.spec, before)
    if item.asks_phase and _lacks_phase(spec):
        return PutDecision(PutResult("unplaced", stored.monitor(item.owner, item.id)), None, owner)
    text = encode_spec(spec).decode()
    if stored.text == text:
        return PutDecision(PutResult("unchanged", stored.monitor(item.owner, item.id)), None, owner)
    load = owner.load + load_of(spec) - load_of(before)
    if exceeds(load, before=owner.load, firings_per_second_max=limits.firings_max):
        current = stored.monitor(item.owner, item.id)
        return PutDecision(PutResult("rate_reached", current, load=load), None, owner)
    if (queues := _with_queue(item, owner)) is None:
        return PutDecision(PutResult("queues_reached", stored.monitor(item.owner, item.id)), None, owner)
    keep_spec(text, spec)  # the change that follows will read it
    # Arguments are given by position: this is made for every edit, and keywords would double its cost.
    generation, revision, created_ms = stored.generation, stored.revision, stored.created_ms
    monitor = Monitor(item.owner, item.id, generation, revision + 1, spec, created_ms, new.now_ms)
    replaced = StoredMonitor(generation, revision + 1, text, created_ms, new.now_ms)
    after = OwnerFacts(owner.monitors, load, owner.disabled, queues)
    return PutDecision(PutResult("replaced", monitor, before=before), replaced, after)


def placed(spec: MonitorSpec, before: MonitorSpec | None) -> MonitorSpec:
    """Return the spec with its phase: the one it had, if its interval stays; else the one that the put proposes."""
    phase = spec.phase if spec.is_allotted else None
    had = before.phase if before is not None and before.is_allotted else None
    if before is not None and had and spec.is_allotted and cadence_of(before).every_ms == cadence_of(spec).every_ms:
        phase = had
    return spec if phase == spec.phase else msgspec.structs.replace(spec, phase=phase)


def _lacks_phase(spec: MonitorSpec) -> bool:
    return spec.is_allotted and spec.phase is None


def decide_remove(item: RemoveMonitor, stored: tuple[int, int] | None) -> RemoveResult:
    """Decide on a removal. ``stored``: generation and revision of the monitor of that name; None: there is none."""
    if stored is None:
        return "not_found"
    return "removed" if as_expected(item, *stored) else "revision_mismatch"


def as_expected(item: PutMonitor | RemoveMonitor, generation: int | None, revision: int) -> bool:
    """Return whether the monitor is the one that the writer has seen; revision 0: there is none."""
    if item.expected_revision is not None and item.expected_revision != revision:
        return False
    return item.expected_generation is None or item.expected_generation == generation


def _with_queue(item: PutMonitor, owner: OwnerFacts) -> frozenset[str] | None:
    """Return the owner's queues with the one that this check names; None: it would be one too many."""
    check = item.spec.check
    if not isinstance(check, OutgoingCheck) or check.queue == DEFAULT_QUEUE or check.queue in owner.queues:
        return owner.queues
    return owner.queues | {check.queue} if len(owner.queues) < QUEUES_MAX else None


def _create(item: PutMonitor, owner: OwnerFacts, new: NewFacts) -> PutDecision:
    made_ms = new.now_ms if item.created_ms is None else item.created_ms
    spec = placed(item.spec, None)
    created = StoredMonitor(new.generation, 1, encode_spec(spec).decode(), made_ms, made_ms)
    monitor = Monitor(item.owner, item.id, new.generation, 1, spec, made_ms, made_ms)
    change = Change(new.change_seq, new.generation, monitor, owner.disabled, None)
    return PutDecision(PutResult("created", monitor, change), created, owner)
