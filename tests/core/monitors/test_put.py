"""Created, replaced, unchanged or refused: one judgement for every store."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from paceline.core.monitors.checks import HttpCheck, OutgoingCheck
from paceline.core.monitors.definition import MonitorSpec
from paceline.core.monitors.load import UNIT, load_of
from paceline.core.monitors.put import QUEUES_MAX, NewFacts, OwnerFacts, OwnerLimits, decide_put, decide_remove, placed
from paceline.core.monitors.schedule import Phase
from paceline.core.monitors.stored import StoredMonitor
from paceline.core.monitors.values import PutMonitor, RemoveMonitor

NEW = NewFacts(now_ms=5_000, change_seq=9, generation=77)
LIMITS = OwnerLimits(monitors_max=10)
OWNER = OwnerFacts(monitors=3, load=0, disabled=False)


def spec(every: str = "1s") -> MonitorSpec:
    return MonitorSpec(HttpCheck("https://example.org"), every=every)


def stored(every: str = "1s", *, revision: int = 4) -> StoredMonitor:
    made = decide_put(PutMonitor("ann", "one", spec(every)), None, OWNER, LIMITS, NEW).stored
    assert made is not None
    return replace(made, revision=revision)


def test_new_monitor_is_stored_at_revision_one_and_counted() -> None:
    decided = decide_put(PutMonitor("ann", "one", spec()), None, OWNER, LIMITS, NEW)
    assert decided.result.disposition == "created"
    assert decided.stored is not None
    assert (decided.stored.generation, decided.stored.revision) == (77, 1)
    assert decided.owner == OwnerFacts(4, UNIT, disabled=False)
    assert decided.result.change is not None
    assert decided.result.change.seq == 9


def test_replaced_monitor_keeps_generation_and_creation_time() -> None:
    before = stored()
    decided = decide_put(PutMonitor("ann", "one", spec("2s")), before, OWNER, LIMITS, replace(NEW, now_ms=8_000))
    assert decided.result.disposition == "replaced"
    assert decided.stored is not None
    assert (decided.stored.generation, decided.stored.revision) == (77, 5)
    assert (decided.stored.created_ms, decided.stored.updated_ms) == (5_000, 8_000)


def test_equal_spec_writes_nothing() -> None:
    decided = decide_put(PutMonitor("ann", "one", spec()), stored(), OWNER, LIMITS, NEW)
    assert (decided.result.disposition, decided.stored, decided.owner) == ("unchanged", None, OWNER)


def test_replacing_needs_no_room_for_another_monitor() -> None:
    full = replace(OWNER, monitors=10)
    assert decide_put(PutMonitor("ann", "one", spec("2s")), stored(), full, LIMITS, NEW).stored is not None
    assert decide_put(PutMonitor("ann", "two", spec()), None, full, LIMITS, NEW).result.disposition == "limit_reached"


@given(
    expected=st.none() | st.integers(0, 3),
    generation=st.none() | st.sampled_from((76, 77)),
    there=st.none() | st.integers(1, 3),
)
def test_put_and_remove_compare_revisions_alike(
    expected: int | None, generation: int | None, there: int | None
) -> None:
    before = None if there is None else stored(revision=there)
    put = PutMonitor("ann", "one", spec("2s"), expected_revision=expected, expected_generation=generation)
    remove = RemoveMonitor("ann", "one", expected_revision=expected, expected_generation=generation)
    mismatch = decide_put(put, before, OWNER, LIMITS, NEW).result.disposition == "revision_mismatch"
    removed = decide_remove(remove, (77, there) if there is not None else None)
    assert removed == ("not_found" if there is None else "revision_mismatch" if mismatch else "removed")
    assert mismatch == (expected not in (None, there or 0) or generation not in (None, 77 if there else None))


@given(
    load=st.integers(0, 8),
    firings_max=st.integers(0, 8),
    before=st.none() | st.sampled_from(("500ms", "1s", "2s")),
    after=st.sampled_from(("500ms", "1s", "2s")),
)
def test_load_never_rises_above_the_limit(load: int, firings_max: int, before: str | None, after: str) -> None:
    there = None if before is None else stored(before)
    held = 0 if before is None else load_of(spec(before))
    owner = OwnerFacts(3, load * UNIT + held, disabled=False)
    decided = decide_put(PutMonitor("ann", "one", spec(after)), there, owner, OwnerLimits(10, firings_max), NEW)
    if decided.stored is not None:
        assert decided.owner.load == owner.load - held + load_of(spec(after))
        assert not firings_max or decided.owner.load <= max(owner.load, firings_max * UNIT)
    elif decided.result.disposition == "rate_reached":
        assert decided.result.load > firings_max * UNIT
        assert decided.owner == owner


def test_put_that_asks_for_a_phase_writes_nothing_until_it_proposes_one() -> None:
    item = PutMonitor("ann", "one", spec(), asks_phase=True)
    assert decide_put(item, None, OWNER, LIMITS, NEW).result.disposition == "unplaced"
    decided = decide_put(replace(item, spec=spec("2s")), stored(), OWNER, LIMITS, NEW)
    assert (decided.result.disposition, decided.stored) == ("unplaced", None)
    assert decided.result.monitor is not None
    proposed = replace(item, spec=replace(spec(), phase=Phase(500)))
    assert decide_put(proposed, None, OWNER, LIMITS, NEW).result.disposition == "created"


def test_monitor_keeps_its_phase_while_its_interval_stays() -> None:
    before = replace(spec("60s"), phase=Phase(500))
    assert placed(replace(spec("1m"), phase=Phase(900)), before).phase == Phase(500)
    assert placed(replace(spec("30s"), phase=Phase(900)), before).phase == Phase(900)
    assert placed(replace(spec("60s"), initial_delay="5s", phase=Phase(900)), before).phase is None
    assert placed(spec("60s"), None).phase is None


def test_edit_that_would_fire_too_often_is_refused_with_the_monitor_as_it_is() -> None:
    owner = replace(OWNER, load=load_of(spec("60s")))
    decided = decide_put(
        PutMonitor("ann", "one", spec("1s")), stored("60s"), owner, OwnerLimits(10, firings_max=0), NEW
    )
    assert decided.result.disposition == "replaced"
    busy = replace(OWNER, load=2 * UNIT)
    decided = decide_put(PutMonitor("ann", "one", spec("1s")), stored("60s"), busy, OwnerLimits(10, firings_max=2), NEW)
    assert (decided.result.disposition, decided.stored, decided.owner) == ("rate_reached", None, busy)
    assert decided.result.monitor is not None
    assert decided.result.load > 2 * UNIT


def test_owner_has_a_bounded_number_of_outgoing_queues() -> None:
    def outgoing(queue: str) -> PutMonitor:
        check = OutgoingCheck(document={"kind": "outgoing", "queue": queue})
        return PutMonitor("ann", "one", MonitorSpec(check, every="60s"))

    names = frozenset(f"q{number}" for number in range(QUEUES_MAX - 1))
    decided = decide_put(outgoing("last"), None, replace(OWNER, queues=names), LIMITS, NEW)
    assert decided.owner.queues == names | {"last"}
    full = replace(OWNER, queues=names | {"last"})
    assert decide_put(outgoing("more"), None, full, LIMITS, NEW).result.disposition == "queues_reached"
    assert decide_put(outgoing("more"), stored(), full, LIMITS, NEW).result.disposition == "queues_reached"
    assert decide_put(outgoing("q0"), stored(), full, LIMITS, NEW).result.disposition == "replaced"
    assert decide_put(outgoing("default"), stored(), full, LIMITS, NEW).result.disposition == "replaced"
