"""Whatever is stored, a run has a reason: no chain is empty, and each link says who can change it."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.batches.batch import Batch, BatchSpec, Day, Deletion, RecordSpec
from paceline.core.batches.calls import CallState
from paceline.core.batches.pace import Pace
from paceline.core.batches.provider import ProviderDefinition, ProviderSpec, policy_of
from paceline.core.batches.records.options import RecordOptions
from paceline.core.batches.values import CallRun
from paceline.core.monitors.checks import HttpCheck, OutgoingCheck
from paceline.core.monitors.definition import Monitor, MonitorSpec
from paceline.core.monitors.outcome import RunState
from paceline.core.monitors.schedule import Cadence, Entry
from paceline.core.monitors.values import Run
from paceline.core.why.call_eta import ProviderRules, call_eta
from paceline.core.why.calls import CallFacts, why_call
from paceline.core.why.chain import LinkName, Why, counted, took
from paceline.core.why.checks import CheckFacts, why_check
from paceline.core.why.queued import ProviderQueue, QueuedCall, with_dues

NOW_MS = 1_800_000_000_000
CALL_STATES: tuple[CallState, ...] = get_args(CallState)
RUN_STATES: tuple[RunState, ...] = get_args(RunState)
near = st.integers(NOW_MS - 100_000, NOW_MS + 100_000)
SPEC = ProviderSpec(base_url="http://example.org", timeout="2s")


def check_chain(why: Why) -> None:
    assert why.chain
    for link in why.chain:
        assert link.link in get_args(LinkName)
        assert link.text
        assert link.change
    if why.eta is not None:
        assert why.eta.from_ms <= why.eta.to_ms


@st.composite
def calls(draw: st.DrawFn) -> CallFacts:
    def maybe(value: Any) -> Any:
        return draw(st.sampled_from([value, None]))

    state = draw(st.sampled_from(CALL_STATES))
    due_ms = draw(near)
    run = CallRun(
        1,
        "daily",
        "r1",
        "2026-11-15",
        "shop",
        due_ms,
        state,
        attempt=draw(st.integers(0, 3)),
        reason=draw(st.sampled_from(["", "status 503"])),
        until_ms=maybe(draw(near)),
        started_ms=maybe(draw(near)),
        code=maybe(200),
    )
    paused, skips = draw(st.booleans()), draw(st.sampled_from(["skip", "once"]))
    deleting = maybe(Deletion(NOW_MS, 0, 0))
    batch = Batch("daily", 1, 1, BatchSpec(paused=paused, missed=skips), NOW_MS, NOW_MS, deleting)  # type: ignore[arg-type]
    provider = ProviderDefinition(
        "shop",
        1,
        1,
        msgspec.structs.replace(SPEC, paused=draw(st.booleans()), rate=maybe("5/1s"), kind=draw(_KINDS)),
        created_ms=NOW_MS,
        updated_ms=NOW_MS,
    )
    record = RecordSpec(
        "r1",
        draw(st.sampled_from(["shop", "bank"])),
        active=draw(st.booleans()),
        options=RecordOptions(after=maybe("r0")),
    )
    day = Day(1, "daily", "2026-11-15", NOW_MS - 200_000, NOW_MS + 200_000, "planned", None, 1, 0)
    queue = ProviderQueue(
        Pace(draw(near) * 1_000, draw(near), draw(near), draw(st.integers(0, 20)), draw(st.booleans())),
        sorted(
            [QueuedCall(1, "waiting", due_ms, due_ms, day.end_ms, 2_000, sure=True)] * draw(st.integers(0, 1))
            + [
                QueuedCall(
                    number, draw(st.sampled_from(["waiting", "out", "retry"])), at, at, day.end_ms, 2_000, sure=True
                )
                for number, at in enumerate(draw(st.lists(near, max_size=4, unique=True)), start=2)
            ],
            key=lambda call: call.due_ms,
        ),
        more=draw(st.booleans()),
    )
    before = msgspec.structs.replace(run, record="r0", state=draw(st.sampled_from(CALL_STATES)))
    return CallFacts(
        run, maybe(batch), maybe(day), maybe(record), maybe(provider), maybe(queue), maybe(before), draw(_DAEMONS)
    )


_KINDS = st.sampled_from(["http", "outgoing"])
_DAEMONS = st.integers(0, 1)


@given(calls())
def test_chain_of_a_batch_run_is_never_empty(facts: CallFacts) -> None:
    why = why_call(facts, now_ms=NOW_MS)
    check_chain(why)
    assert why.eta is None or facts.run.state in ("waiting", "retry")
    assert why.eta is None or why.eta.from_ms >= NOW_MS


@given(
    state=st.sampled_from([*RUN_STATES, None]),
    due_ms=near,
    until_ms=st.none() | near,
    earlier=st.none() | st.sampled_from(["waiting", "out", "parked", "later"]),
    paused=st.booleans(),
    disabled=st.booleans(),
    outgoing=st.booleans(),
    daemons=_DAEMONS,
    overlap=st.sampled_from(["skip", "queue"]),
)
def test_chain_of_a_monitor_run_or_firing_is_never_empty(
    state: RunState | None,
    due_ms: int,
    until_ms: int | None,
    earlier: RunState | None,
    paused: bool,  # noqa: FBT001
    disabled: bool,  # noqa: FBT001
    outgoing: bool,  # noqa: FBT001
    daemons: int,
    overlap: Any,
) -> None:
    check = OutgoingCheck({"kind": "outgoing"}) if outgoing else HttpCheck("http://example.org/")
    spec = MonitorSpec(check=check, every="60s", paused=paused, overlap=overlap)
    monitor = Monitor("ann", "home", 7, 1, spec, NOW_MS, NOW_MS)
    cadence = Cadence(every_ms=60_000, overlap=overlap)
    entry = Entry(7, 5, 1, None if paused or disabled else due_ms, cadence, outgoing)
    made = None if state is None else Run(1, "ann", "home", 7, 4, due_ms, state, 1, "", until_ms, NOW_MS - 10)
    open_run = (
        () if earlier is None else (Run(2, "ann", "home", 7, 3, due_ms - 1, earlier, 1, "", until_ms, NOW_MS - 5),)
    )
    why = why_check(CheckFacts(monitor, entry, made, open_run, disabled, daemons), now_ms=NOW_MS)
    check_chain(why)
    assert why.eta is None or why.eta.from_ms >= NOW_MS


def test_run_behind_thousands_has_an_eta_from_their_due_times() -> None:
    policy = policy_of(SPEC)
    first = [QueuedCall(number, "waiting", due, due, NOW_MS + 10**8, 2_000, sure=True) for number, due in _dues(0, 50)]
    mine = QueuedCall(99_999, "waiting", NOW_MS + 10_000_000, NOW_MS + 10_000_000, NOW_MS + 10**8, 2_000, sure=True)
    queue = with_dues(ProviderQueue(Pace(), first, more=True), [due for _, due in _dues(50, 1_000)], mine, policy)
    assert [call.due_ms for call in queue.calls] == sorted(call.due_ms for call in queue.calls)
    eta = call_eta(queue, mine.run, ProviderRules(policy, 0.5), now_ms=NOW_MS)
    assert eta is not None
    assert (eta.from_ms, eta.to_ms) == (mine.due_ms, mine.due_ms)


def _dues(first: int, beyond: int) -> list[tuple[int, int]]:
    return [(number + 1, NOW_MS + 10_000 * number) for number in range(first, beyond)]


def test_counts_and_lengths_of_time_are_written_for_people() -> None:
    assert [counted(n, 1_000, "call", "calls") for n in (1, 12, 1_000, 1_001)] == [
        "1 call",
        "12 calls",
        "1,000 calls",
        "more than 1,000 calls",
    ]
    assert [took(ms) for ms in (40, 12_000, 540_000, 3 * 3_600_000)] == ["0.0 s", "12 s", "9 min", "3 h"]
