"""Why a monitor's run or next firing waits, or went as it did: the reason, who can change it, and when it starts."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from paceline.core.monitors.checks import HttpCheck, OutgoingCheck
from paceline.core.monitors.definition import Monitor, MonitorSpec
from paceline.core.monitors.outcome import RunState
from paceline.core.monitors.places import ALL_TAKEN, target_reason
from paceline.core.monitors.schedule import Cadence, Entry
from paceline.core.monitors.values import Run
from paceline.core.monitors.wait_reasons import wait_reason
from paceline.core.why.chain import Eta, LinkName, Why
from paceline.core.why.checks import CAN_START, CheckFacts, why_check

NOW_MS = 1_800_000_000_000
SPEC = MonitorSpec(HttpCheck(url="http://example.org/"), every="60s")
MONITOR = Monitor("ada", "web", 7, 1, SPEC, NOW_MS - 10**6, NOW_MS - 10**5)
ENTRY = Entry(7, 5, 1, NOW_MS + 5_000, Cadence(every_ms=60_000), outgoing=False, last_due_ms=NOW_MS - 55_000)
RUN = Run(1, "ada", "web", 7, 4, NOW_MS - 500, "waiting")
OUTGOING = replace(MONITOR, spec=replace(SPEC, check=OutgoingCheck(document={"kind": "outgoing", "queue": "slow"})))
OPEN = Run(2, "ada", "web", 7, 3, NOW_MS - 60_000, "out", 1, until_ms=NOW_MS + 900, started_ms=NOW_MS - 100)


def of_run(state: RunState = "waiting", *, facts: dict[str, Any] | None = None, **fields: Any) -> Why:
    run = replace(RUN, state=state, **fields)
    return checked(CheckFacts(MONITOR, ENTRY, run)._replace(**facts or {}))


def of_firing(**facts: Any) -> Why:
    return checked(CheckFacts(MONITOR, ENTRY)._replace(**facts))


def checked(facts: CheckFacts) -> Why:
    found = why_check(facts, now_ms=NOW_MS)
    assert found.chain
    assert all(link.text and link.change for link in found.chain)
    return found


def texts(found: Why, link: LinkName) -> list[str]:
    return [one.text for one in found.chain if one.link == link]


@pytest.mark.parametrize("reason", ["", wait_reason("waiting", outgoing=False)])
def test_waiting_run_that_nothing_holds_back_starts_now(reason: str) -> None:
    found = of_run(reason=reason)
    assert texts(found, "place") == [CAN_START]
    assert found.eta == Eta(NOW_MS, NOW_MS)


def test_waiting_run_names_the_checker_the_daemon_the_target_or_the_place_that_it_lacks() -> None:
    outgoing = of_run(facts={"monitor": OUTGOING})
    assert texts(outgoing, "lease") == ["It waits for a checker of ada that claims runs of the queue 'slow'."]
    assert texts(of_run(facts={"daemons": 0}), "lease")[0].startswith("It may start, and no daemon runs")
    full = of_run(reason=target_reason("example.org:80"))
    assert "example.org:80 has as many checks out" in texts(full, "target")[0]
    taken = of_run(reason=ALL_TAKEN)
    assert texts(taken, "place") == [f"It is {ALL_TAKEN}."]
    assert [one.eta for one in (outgoing, full, taken)] == [None, None, None]


def test_run_with_a_time_of_its_own_starts_then() -> None:
    later = of_run("later", reason="missed its time.", until_ms=NOW_MS + 70)
    assert texts(later, "rate") == ["It missed its time."]
    retry = of_run("retry", reason="no route", attempt=2, until_ms=NOW_MS + 70)
    assert texts(retry, "retry_after")[0].startswith("Attempt 2 was not carried out: no route.")
    assert later.eta == retry.eta == Eta(NOW_MS + 70, NOW_MS + 70)
    assert of_run("retry", until_ms=NOW_MS + 70, facts={"daemons": 0}).eta is None
    assert "carried out. It" in texts(of_run("retry", until_ms=NOW_MS + 70), "retry_after")[0]


def test_parked_run_names_the_run_that_it_waits_for() -> None:
    found = of_run("parked", facts={"earlier": (OPEN,)})
    assert texts(found, "order") == ["It waits for ada/web#7@3, an earlier run of the same monitor that is out."]
    assert found.chain[1].until_ms == OPEN.until_ms
    assert found.eta is not None
    more = of_run("parked", facts={"earlier": (OPEN, replace(OPEN, counter=4, state="parked"))})
    assert "and for 1 run behind it" in texts(more, "order")[0]
    assert texts(of_run("parked", reason="waits for another."), "order") == ["It waits for another."]


def test_held_run_waits_until_its_owner_is_enabled() -> None:
    found = of_run("held")
    assert texts(found, "pause") == ["Its owner ada is disabled."]
    assert "paceline user enable ada" in found.chain[-1].change


def test_leased_run_names_the_daemon_its_checker_or_an_expired_lease() -> None:
    out: dict[str, Any] = {"attempt": 1, "started_ms": NOW_MS - 5, "until_ms": NOW_MS + 5}
    assert "is being checked" in texts(of_run("out", **out), "lease")[0]
    assert "with a checker of its owner" in texts(of_run("out", facts={"monitor": OUTGOING}, **out), "lease")[0]
    expired = of_run("out", **out | {"until_ms": NOW_MS})
    assert "was not reported before its lease ended" in texts(expired, "lease")[0]


def test_ended_run_says_when_it_started_and_how_it_ended() -> None:
    good = of_run("ok", attempt=1, started_ms=RUN.due_ms, ended_ms=NOW_MS)
    assert texts(good, "place") == ["It started when it was due."]
    assert texts(good, "target") == ["It ended as ok: what it found was as expected."]
    bad = of_run("failed", attempt=2, started_ms=NOW_MS, ended_ms=NOW_MS + 9, reason="status 503")
    assert texts(bad, "place") == ["It started 0.5 s after it was due. Attempt 2 is the one that counts."]
    assert texts(bad, "target") == ["It ended as failed: status 503."]
    never = of_run("dead", reason="given up")
    assert not texts(never, "place")


def test_next_firing_waits_for_its_time() -> None:
    found = of_firing()
    assert (found.run, found.state) == ("ada/web#7@5", "planned")
    [link] = found.chain
    assert (link.link, link.since_ms, link.until_ms) == ("due", ENTRY.last_due_ms, NOW_MS + 5_000)
    assert "Its time comes then" in link.text
    assert found.eta == Eta(NOW_MS + 5_000, NOW_MS + 5_000)


def test_next_firing_of_a_cron_monitor_names_its_expression() -> None:
    found = of_firing(entry=replace(ENTRY, cadence=Cadence(cron="0 3 * * *", timezone="Europe/Berlin")))
    assert texts(found, "due") == ["Its cron expression '0 3 * * *' (Europe/Berlin) matches then, and not before."]


def test_firing_that_is_due_is_made_by_a_daemon_or_waits_for_one() -> None:
    due = replace(ENTRY, due_ms=NOW_MS - 5)
    found = of_firing(entry=due)
    assert "Its time came then" in texts(found, "due")[0]
    assert texts(found, "due")[1] == "It is due, and its run is made at the next look of a daemon."
    assert found.eta == Eta(NOW_MS, NOW_MS)
    nobody = of_firing(entry=due, daemons=0)
    assert texts(nobody, "lease") == ["It is due, and no daemon runs that would make its run."]
    assert nobody.eta is None


def test_firing_of_a_paused_monitor_or_a_disabled_owner_does_not_come() -> None:
    paused = replace(MONITOR, spec=replace(SPEC, paused=True))
    found = of_firing(monitor=paused, disabled=True, entry=replace(ENTRY, due_ms=None))
    assert texts(found, "pause") == ["web is paused.", "Its owner ada is disabled."]
    assert found.eta is None
    assert of_firing(monitor=paused).eta is None, "an entry that has not followed the pause yet"


def test_firing_of_an_edit_that_is_not_in_force_waits_for_a_daemon() -> None:
    found = of_firing(entry=None)
    assert texts(found, "due")[0].startswith("The newest edit of web is not in force yet")
    assert found.run == "ada/web#7@0"


@pytest.mark.parametrize(
    ("overlap", "overlapped", "words"),
    [
        ("skip", 0, "while it is open, firings are skipped."),
        ("skip", 3, "3 firings were skipped so far."),
        ("queue", 0, "the next run queues behind it."),
    ],
)
def test_firing_beside_an_open_run_is_skipped_or_queued(overlap: Any, overlapped: int, words: str) -> None:
    entry = replace(ENTRY, cadence=Cadence(every_ms=60_000, overlap=overlap), overlapped=overlapped)
    found = of_firing(entry=entry, earlier=(OPEN,))
    [text] = texts(found, "order")
    assert text.startswith("ada/web#7@3 has not ended (it is out); ")
    assert text.endswith(words)
