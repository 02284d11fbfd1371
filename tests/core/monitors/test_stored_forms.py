"""Checks, definitions and records as they are stored and shown, and edits of an entry beside its grid."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from paceline.core.http.auth import BearerAuth
from paceline.core.monitors.alerting.observe import days_wanted
from paceline.core.monitors.alerting.policy import AlertPolicy
from paceline.core.monitors.alerting.record import NO_RECORD, HealthRecord
from paceline.core.monitors.alerting.stored import HealthChange, is_unchanged
from paceline.core.monitors.checks import (
    DEFAULT_QUEUE,
    Check,
    DnsCheck,
    HttpCheck,
    OutgoingCheck,
    TcpCheck,
    TlsCheck,
    check_document,
    check_problems,
)
from paceline.core.monitors.definition import MonitorSpec, encode_spec, parse_stored_spec
from paceline.core.monitors.due import Due, OnTime
from paceline.core.monitors.schedule import Arm, Cadence, Entry, Phase, WantedSchedule, allotted_ms, arm, react
from paceline.core.monitors.stored import _Specs
from paceline.core.monitors.uptime import latency
from paceline.core.monitors.uptime.rollup import EndedRun, Rollup, fold, moved, settled_first

T0_MS = 1_790_000_000_000
MINUTELY = Cadence(every_ms=60_000)
CHECK = HttpCheck(url="http://a/")


@pytest.mark.parametrize(
    ("queue", "name"), [({}, DEFAULT_QUEUE), ({"queue": "slow"}, "slow"), ({"queue": 7}, DEFAULT_QUEUE)]
)
def test_outgoing_check_waits_in_the_queue_that_it_names_if_that_can_be_one(queue: dict[str, Any], name: str) -> None:
    assert OutgoingCheck(document={"kind": "outgoing"} | queue).queue == name


@pytest.mark.parametrize(
    ("check", "pointers"),
    [
        (replace(CHECK, sealed=True), ["/check/sealed"]),
        (DnsCheck(name="", server="a b", port=0), ["/check/name", "/check/server", "/check/port"]),
        (TcpCheck(host="", port=65_536, timeout="x"), ["/check/host", "/check/port", "/check/timeout"]),
        (TlsCheck(host="a", server_name="b c"), ["/check/server_name"]),
        (OutgoingCheck(document={"kind": "outgoing", "queue": "not ok"}), ["/check/queue"]),
        (OutgoingCheck(document={"kind": "outgoing", "queue": "ok"}), []),
    ],
)
def test_invalid_check_is_refused_by_its_fields(check: Check, pointers: list[str]) -> None:
    assert [problem.pointer for problem in check_problems(check)] == pointers


def test_promise_12_sealed_values_of_a_check_are_shown_masked() -> None:
    sealed = replace(CHECK, method="POST", headers={"X": "s1"}, auth=BearerAuth("s2"), body="s3", sealed=True)
    shown = check_document(sealed)
    assert (shown["headers"], shown["body"], shown["auth"]["token"]) == ({"X": "***"}, "***", "***")
    assert not {"s1", "s2", "s3"} & set(json.dumps(shown).replace('"', " ").split())
    assert "sealed" not in shown


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, set()),
        ({"alert": AlertPolicy(after=3)}, {"alert"}),
        ({"attempts": 2}, {"attempts"}),
        ({"phase": Phase(500)}, {"phase"}),
    ],
)
def test_stored_definition_leaves_out_later_fields_at_their_defaults(fields: dict[str, Any], names: set[str]) -> None:
    spec = MonitorSpec(CHECK, every="60s", **fields)
    text = encode_spec(spec)
    assert {"alert", "attempts", "phase"} & json.loads(text).keys() == names
    assert parse_stored_spec(text) == spec


def test_specs_are_remembered_for_a_while_and_read_again_once_forgotten() -> None:
    specs = _Specs()
    text = encode_spec(MonitorSpec(CHECK, every="60s")).decode()
    first = specs.read(text)
    assert specs.read(text) is first
    for number in range(specs.HALF_MAX):
        specs.keep(str(number), first)
    assert specs.read(text) is first, "the older half still has it"
    for number in range(2 * specs.HALF_MAX):
        specs.keep(f"x{number}", first)
    again = specs.read(text)
    assert again == first
    assert again is not first


@pytest.mark.parametrize(
    ("check", "days"),
    [
        (TlsCheck(host="a", min_days=14), 14),
        (CHECK, None),
        (TcpCheck(host="a", port=1), None),
        (OutgoingCheck(document={}), None),
    ],
)
def test_only_checks_of_a_certificate_have_expected_days(check: Check, days: int | None) -> None:
    assert days_wanted(check) == days


def test_health_change_counts_only_if_the_record_is_still_as_it_was_read() -> None:
    failing = HealthRecord(failing=True, failures=1)
    change = HealthChange("ann", "home", 7, NO_RECORD, failing)
    assert is_unchanged(change, {})
    assert is_unchanged(change, {7: NO_RECORD, 8: failing})
    assert not is_unchanged(change, {7: failing})


def test_mean_latency_is_as_exact_as_the_buckets_and_unknown_without_any() -> None:
    assert latency.mean_ms(Counter()) is None
    assert latency.percentiles(Counter()) == (None, None, None)
    buckets = Counter(map(latency.bucket_of, [10.0, 20.0, 60.0]))
    assert latency.mean_ms(buckets) == pytest.approx(30.0, rel=0.025)


def test_roll_up_in_another_store_counts_runs_from_the_first_again() -> None:
    run = EndedRun(5, T0_MS, "ok", T0_MS, 20.0, "")
    rollup = fold(Rollup(), [run])
    there = moved(rollup)
    assert replace(there, counter=rollup.counter) == rollup
    assert fold(there, [run._replace(counter=0)]).counter == 0
    assert list(settled_first([run, run])) == [run, run]


def test_resting_entry_and_one_with_a_grid_of_its_own_have_no_allotted_phase() -> None:
    entry = Entry(7, 0, 1, T0_MS + 500, MINUTELY, outgoing=False, lead_ms=0)
    assert allotted_ms(entry) == (T0_MS + 500) % 60_000
    assert allotted_ms(replace(entry, due_ms=None)) is None
    assert allotted_ms(replace(entry, lead_ms=None)) is None


def wish(cadence: Cadence, phase: Phase | None = None) -> WantedSchedule:
    return WantedSchedule(cadence, 0, resting=False, outgoing=False, created_ms=T0_MS, phase=phase)


def test_promise_2_firing_just_before_its_grid_is_followed_by_the_point_after_the_next() -> None:
    phase = Phase(T0_MS % 60_000)
    assert arm(wish(MINUTELY, phase), T0_MS, generation=7).lead_ms == 0
    assert arm(wish(MINUTELY, phase), T0_MS - 5_000, generation=7).lead_ms == 5_000
    assert arm(wish(MINUTELY, phase), T0_MS - 500, generation=7).lead_ms == 60_500


def test_promise_2_new_interval_counts_from_a_run_beside_the_grid_if_that_was_later() -> None:
    entry = Entry(7, 2, 1, T0_MS + 60_000, MINUTELY, outgoing=False, last_due_ms=T0_MS + 20_000)
    reaction = react(wish(Cadence(every_ms=45_000)), entry, generation=7, now_ms=T0_MS + 25_000)
    assert isinstance(reaction, Arm)
    assert reaction.due_ms == T0_MS + 65_000
    on_grid = replace(entry, last_due_ms=T0_MS)
    reaction = react(wish(Cadence(every_ms=45_000)), on_grid, generation=7, now_ms=T0_MS + 25_000)
    assert isinstance(reaction, Arm)
    assert reaction.due_ms == T0_MS + 45_000


def test_rule_of_the_common_case_covers_entries_within_the_grace_and_before_their_next_time() -> None:
    due = Due(7, 2, 1, T0_MS, MINUTELY)
    assert OnTime(T0_MS + 1_000, grace_ms=1_000).covers(due)
    assert not OnTime(T0_MS + 1_001, grace_ms=1_000).covers(due)
    assert not OnTime(T0_MS + 60_000, grace_ms=10**6).covers(due)
    assert not OnTime(T0_MS, grace_ms=1_000).covers(replace(due, cadence=Cadence(cron="* * * * *")))
