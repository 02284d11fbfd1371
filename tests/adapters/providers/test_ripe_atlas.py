"""The RIPE Atlas client against the simulator's real server."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.adapters.providers.guard import OWN_API
from paceline.adapters.providers.ripe_atlas import RipeAtlas
from paceline.adapters.providers.transfer import USER_AGENT
from paceline.config import load_settings
from paceline.core.jobs.atlas import Created, Lost, Refused, marker_tag, site_tag
from paceline.core.jobs.atlas_replies import Credits, Delivered, KeyCheck, Stopped
from paceline.core.jobs.measurement import Measurement
from paceline.simulators.ripe_atlas import AtlasSimulator, Fault, Limits, Model, SimulatorClock
from paceline.wiring import open_atlas
from tests.adapters.providers.support.atlas_stage import (
    CANARY,
    MINUTE_MS,
    SITE,
    START_MS,
    body_of,
    marker,
    measurement,
    posts,
    send,
    sent,
)
from tests.adapters.providers.support.certificates import make_authority, make_chain_file

LAG_MS = 5_000
POOL = ("measurements.create_measurement", "measurements.stop_measurement")
READS = ("measurements.list_measurements", "credits.get_credit_info")


@pytest.fixture
def simulator() -> Iterator[AtlasSimulator]:
    """On a clock that only moves when told; lists lag as they do by default."""
    with AtlasSimulator(clock=SimulatorClock(start_ms=START_MS, speed=0)) as running:
        yield running
        assert running.defects == []


@pytest.fixture
def key(simulator: AtlasSimulator) -> str:
    simulator.add_account("lab", keys=0)
    return simulator.add_key("lab", secret=CANARY).uuid


@pytest.fixture
def atlas(simulator: AtlasSimulator) -> Iterator[RipeAtlas]:
    opened = RipeAtlas(simulator.base_url)
    yield opened
    opened.close()


def limited(simulator: AtlasSimulator, **limits: Any) -> str:
    return simulator.add_account("small", limits=Limits(**limits))[0]


# -- sending


def test_a_send_gives_the_ids_in_the_order_of_the_definitions(
    simulator: AtlasSimulator, atlas: RipeAtlas, key: str
) -> None:
    ids = sent(atlas, key, measurement("ping", "traceroute"))
    assert [simulator.world.measurements[one].type for one in ids] == ["ping", "traceroute"]
    request, _ = simulator.latest[-1]
    assert request.headers["user-agent"] == USER_AGENT
    assert request.headers["authorization"] == f"Key {key}"
    assert request.headers["content-type"] == "application/json"
    assert key not in str(request.query)
    assert request.body == body_of(measurement("ping", "traceroute"))


REFUSALS: list[tuple[str, Limits, Measurement, dict[str, Any]]] = [
    ("concurrent", Limits(concurrent=0), measurement(), {"scope": "account", "meter": "concurrent", "limit": 0}),
    (
        "daily results",
        Limits(daily_results=4),
        measurement(),
        {"scope": "account", "meter": "results", "limit": 4, "current": 0},
    ),
    (
        "daily credits",
        Limits(daily_credits=20),
        measurement(),
        {"scope": "account", "meter": "credits", "limit": 20, "current": 0},
    ),
    ("covered", Limits(), measurement(probes={"type": "asn", "value": 64_512}), {"scope": "request"}),
    ("resolved", Limits(), measurement(target="nowhere.invalid"), {"scope": "request"}),
    ("disallowed characters", Limits(), measurement(tags=["white space"]), {"scope": "request"}),
    ("more than 3 probes", Limits(probes=3), measurement(), {"scope": "request"}),
    ("HTTP measurements", Limits(), measurement("http"), {"scope": "type"}),
]


@pytest.mark.parametrize(("words", "limits", "wanted", "expected"), REFUSALS, ids=[one[0] for one in REFUSALS])
def test_a_refusal_concerns_whom_its_words_say(
    simulator: AtlasSimulator,
    atlas: RipeAtlas,
    words: str,
    limits: Limits,
    wanted: Measurement,
    expected: dict[str, Any],
) -> None:
    (key,) = simulator.add_account("small", limits=limits)
    answer = send(atlas, key, wanted)
    assert isinstance(answer, Refused), answer
    assert words in answer.reason
    found = {name: getattr(answer, name) for name in ("scope", "meter", "limit", "current")}
    assert found == {"meter": None, "limit": None, "current": None} | expected
    assert simulator.world.measurements == {}


def test_a_full_target_is_named_and_no_account_is_blamed(simulator: AtlasSimulator, atlas: RipeAtlas, key: str) -> None:
    simulator.world.others["192.0.2.1"] = 25
    answer = send(atlas, key)
    assert isinstance(answer, Refused), answer
    assert (answer.scope, answer.target, answer.limit) == ("target", "192.0.2.1", 25)


def test_an_account_without_credits_is_refused_for_its_balance(simulator: AtlasSimulator, atlas: RipeAtlas) -> None:
    (key,) = simulator.add_account("poor", balance=3)
    answer = send(atlas, key)
    assert isinstance(answer, Refused), answer
    assert (answer.scope, answer.meter) == ("account", "balance")


def test_a_key_that_is_unknown_or_may_not_is_refused_as_a_key(simulator: AtlasSimulator, atlas: RipeAtlas) -> None:
    simulator.add_account("lab")
    reader = simulator.add_key("lab", grants=READS).uuid
    answers = [send(atlas, "no-such-key"), send(atlas, reader), atlas.stop(reader, 1_000_001)]
    assert [answer.scope for answer in answers if isinstance(answer, Refused)] == ["key"] * 3


def test_a_key_that_no_header_can_carry_never_leaves_the_machine(simulator: AtlasSimulator, atlas: RipeAtlas) -> None:
    bad = f"{CANARY}\r\nX-Other: 1"
    answers = [send(atlas, bad), atlas.credits(bad), atlas.check_key(bad)]
    assert [getattr(answer, "scope", None) for answer in answers] == ["key", "key", None]
    assert isinstance(answers[2], KeyCheck)
    assert answers[2].problems
    assert not simulator.latest
    assert CANARY not in repr(answers)


@pytest.mark.parametrize(("seconds", "pause_ms"), [(7, 7_000), (None, None)])
def test_too_many_requests_pauses_all_sends_for_the_given_time(
    simulator: AtlasSimulator, atlas: RipeAtlas, key: str, seconds: int | None, pause_ms: int | None
) -> None:
    simulator.add_fault(Fault(kind="rate_limit", times=2, retry_after_s=seconds))
    for answer in (send(atlas, key), atlas.credits(key)):
        assert isinstance(answer, Refused), answer
        assert (answer.scope, answer.retry_after_ms) == ("global", pause_ms)
        assert "throttled" in answer.reason


# -- what is not known


@pytest.mark.parametrize(
    "fault",
    [
        Fault(kind="drop_after", method="POST"),
        Fault(kind="half_reply", method="POST"),
        Fault(kind="error_after", method="POST"),
        Fault(kind="error_after", method="POST", status=502),
        Fault(kind="no_ids", method="POST"),
        Fault(kind="wrong_json", method="POST"),
    ],
    ids=lambda fault: f"{fault.kind} {fault.status or ''}".strip(),
)
def test_a_lost_reply_is_found_by_its_marker_once_the_list_has_caught_up(
    simulator: AtlasSimulator, atlas: RipeAtlas, key: str, fault: Fault
) -> None:
    sent(atlas, key, measurement(), index=11)  # its tag begins with the other's
    simulator.add_fault(fault)
    wanted = measurement("ping", "traceroute")
    assert isinstance(send(atlas, key, wanted, index=1), Lost)
    tag = marker_tag(marker(1))
    assert atlas.find_by_marker(key, tag) == ()
    simulator.clock.advance(LAG_MS)
    found = atlas.find_by_marker(key, tag)
    assert not isinstance(found, Refused | Lost)
    made = [one.id for one in simulator.world.measurements.values() if tag in one.tags]
    assert [one.id for one in found] == made
    assert len(made) == 2
    assert posts(simulator) == 2
    assert {tag, site_tag(SITE)} <= set(found[0].tags)


@pytest.mark.parametrize("status", [None, 200], ids=["503", "200"])
def test_a_maintenance_page_is_no_answer_to_anything(
    simulator: AtlasSimulator, atlas: RipeAtlas, key: str, status: int | None
) -> None:
    simulator.add_fault(Fault(kind="maintenance", times=None, status=status))
    lines: list[bytes] = []
    answers = [
        send(atlas, key),
        atlas.find_by_marker(key, "t"),
        atlas.statuses(key, [1]),
        atlas.in_flight(key),
        atlas.credits(key),
        atlas.results(key, 1, lines.append, bytes_max=1_000_000),
        atlas.check_key(key),
    ]
    assert [type(answer) for answer in answers] == [Lost] * 7
    assert lines == []
    assert "<" not in "".join(answer.reason for answer in answers if isinstance(answer, Lost))


def test_a_page_that_blames_the_request_pauses_all(simulator: AtlasSimulator, atlas: RipeAtlas, key: str) -> None:
    simulator.add_fault(Fault(kind="maintenance", times=2, status=403))
    answers = [send(atlas, key), atlas.check_key(key)]
    assert [answer.scope for answer in answers if isinstance(answer, Refused)] == ["global"] * 2


@pytest.mark.parametrize("kind", ["drop_after", "half_reply", "wrong_json", "error_before"])
def test_a_read_that_breaks_is_lost_and_can_be_asked_again(
    simulator: AtlasSimulator, atlas: RipeAtlas, key: str, kind: Any
) -> None:
    simulator.add_fault(Fault(kind=kind, method="GET", times=3))
    broken = [atlas.credits(key), atlas.in_flight(key), atlas.statuses(key, [1])]
    assert [type(answer) for answer in broken] == [Lost] * 3
    assert isinstance(atlas.credits(key), Credits)


def test_a_send_that_takes_too_long_is_lost_and_not_sent_again(simulator: AtlasSimulator, key: str) -> None:
    atlas = RipeAtlas(simulator.base_url, timeout_ms=300)
    simulator.add_fault(Fault(kind="delay", delay_ms=1_500))
    begun_s = time.monotonic()
    answer = send(atlas, key)
    assert time.monotonic() - begun_s < 1.2
    assert isinstance(answer, Lost), answer
    assert "timed out after 300ms" in answer.reason
    assert posts(simulator) == 1
    atlas.close()


def test_request_that_never_left_this_machine_created_no_measurement(key: str) -> None:
    atlas = RipeAtlas("http://127.0.0.1:9")
    answer = send(atlas, key)
    assert isinstance(answer, Refused), answer
    assert (answer.scope, answer.reason) == ("global", "RIPE could not be reached: connection refused")
    assert isinstance(atlas.credits(key), Lost)
    atlas.close()


def test_a_creation_is_not_repeated_on_a_kept_connection_that_dies(
    simulator: AtlasSimulator, atlas: RipeAtlas, key: str
) -> None:
    simulator.add_fault(Fault(kind="drop_before", method="POST", times=5))
    for _ in range(5):
        assert isinstance(atlas.credits(key), Credits)
        assert isinstance(send(atlas, key), Lost)
    assert posts(simulator) == 5


def test_an_interrupted_call_ends_soon_and_later_ones_at_once(simulator: AtlasSimulator, key: str) -> None:
    atlas = RipeAtlas(simulator.base_url)
    simulator.add_fault(Fault(kind="delay", delay_ms=3_000))
    threading.Timer(0.2, atlas.interrupt).start()
    begun_s = time.monotonic()
    answer = send(atlas, key)
    assert time.monotonic() - begun_s < 2.5
    assert isinstance(answer, Lost), answer
    later = send(atlas, key)
    assert isinstance(later, Refused), later
    assert posts(simulator) == 1
    atlas.close()


# -- following


def test_statuses_come_in_bulk_and_of_those_asked_for_alone(
    simulator: AtlasSimulator, atlas: RipeAtlas, key: str
) -> None:
    first, second = sent(atlas, key, measurement("ping", "ping", is_public=False, requested=50))
    (other,) = sent(atlas, key)
    simulator.clock.advance(LAG_MS + 6_000)
    missing = range(5_000_000_000_000, 5_000_000_001_200)
    found = atlas.statuses(key, [first, second, *missing])
    assert not isinstance(found, Refused | Lost)
    assert set(found) == {first, second}
    assert found[first].status == 2
    scheduled = len(simulator.world.measurements[first].probes)
    assert (found[first].scheduled, found[first].credits_per_result) == (scheduled, 3)
    asked = [request.query["id__in"] for request, _ in simulator.latest if "id__in" in request.query]
    assert len(asked) == 4
    assert max(len(one) for one in asked) <= 5_000
    simulator.clock.advance(10 * MINUTE_MS)
    ended = atlas.statuses(key, [first, other])
    assert not isinstance(ended, Refused | Lost)
    assert {one.status for one in ended.values()} == {4}
    assert atlas.statuses("", [first, other]) == {other: ended[other]}
    assert atlas.statuses(key, []) == {}


def test_the_in_flight_count_is_the_accounts_and_falls_when_they_end(
    simulator: AtlasSimulator, atlas: RipeAtlas, key: str
) -> None:
    for index in range(3):
        sent(atlas, key, index=index)
    assert atlas.in_flight(key) == 0
    simulator.clock.advance(LAG_MS)
    assert atlas.in_flight(key) == 3
    running = atlas.running_by_marker(key, site_tag(SITE))
    assert not isinstance(running, Refused | Lost)
    assert len(running) == 3
    simulator.clock.advance(11 * MINUTE_MS)
    assert atlas.in_flight(key) == 0
    assert atlas.running_by_marker(key, site_tag(SITE)) == ()
    assert len(atlas.find_by_marker(key, site_tag(SITE))) == 3


def test_all_pages_of_a_marker_are_read_in_order_of_id(simulator: AtlasSimulator, atlas: RipeAtlas) -> None:
    key = limited(simulator, concurrent=2_000)
    wanted = [measurement(*["ping"] * 20, target=f"192.0.2.{index}", requested=1) for index in range(1, 61)]
    ids = [one for index, many in enumerate(wanted) for one in sent(atlas, key, many, index)]
    simulator.clock.advance(LAG_MS)
    found = atlas.find_by_marker(key, site_tag(SITE))
    assert not isinstance(found, Refused | Lost)
    assert [one.id for one in found] == ids
    assert sum("tags" in request.query for request, _ in simulator.latest) == 3


def test_credits_are_as_ripe_shows_them(simulator: AtlasSimulator, atlas: RipeAtlas, key: str) -> None:
    sent(atlas, key, measurement(requested=100))
    simulator.clock.advance(5 * 60 * MINUTE_MS)
    answer = atlas.credits(key)
    assert isinstance(answer, Credits), answer
    results = answer.results_day
    assert 0 < results <= 100
    assert answer == Credits(10_000_000 - 6 * results, 6 * results, results, 1_000_000)


def test_measurement_can_be_stopped_twice(simulator: AtlasSimulator, atlas: RipeAtlas, key: str) -> None:
    (one,) = sent(atlas, key)
    simulator.clock.advance(LAG_MS)
    assert atlas.stop(key, one) == Stopped()
    assert atlas.stop(key, one) == Stopped()
    assert simulator.world.measurements[one].ended is not None
    missing = atlas.stop(key, 7)
    assert isinstance(missing, Refused), missing
    assert missing.scope == "request"


def test_results_stream_line_by_line_and_stop_at_the_bound(
    simulator: AtlasSimulator, atlas: RipeAtlas, key: str
) -> None:
    (one,) = sent(atlas, key, measurement("traceroute", requested=200, is_public=False))
    simulator.clock.advance(10 * MINUTE_MS)
    lines: list[bytes] = []
    answer = atlas.results(key, one, lines.append, bytes_max=100_000_000)
    assert answer == Delivered(len(lines), sum(len(line) + 1 for line in lines), whole=True)
    assert len(lines) > 150
    assert {json.loads(line)["msm_id"] for line in lines} == {one}
    some: list[bytes] = []
    size = len(lines[0]) + len(lines[1]) + 2
    assert atlas.results(key, one, some.append, bytes_max=size + 1) == Delivered(2, size, whole=False)
    assert some == lines[:2]
    hidden = atlas.results("", one, some.append, bytes_max=1_000)
    assert isinstance(hidden, Refused), hidden
    assert hidden.scope == "request"


@pytest.mark.parametrize("kind", ["half_reply", "wrong_json"])
def test_results_that_break_off_are_lost(simulator: AtlasSimulator, atlas: RipeAtlas, key: str, kind: Any) -> None:
    (one,) = sent(atlas, key, measurement(requested=50))
    simulator.clock.advance(10 * MINUTE_MS)
    simulator.add_fault(Fault(kind=kind, path="results"))
    lines: list[bytes] = []
    assert isinstance(atlas.results(key, one, lines.append, bytes_max=1_000_000), Lost)
    assert all(json.loads(line)["msm_id"] == one for line in lines)


def test_exception_of_the_result_consumer_is_raised_and_the_client_stays_usable(
    simulator: AtlasSimulator, atlas: RipeAtlas, key: str
) -> None:
    (one,) = sent(atlas, key, measurement(requested=50))
    simulator.clock.advance(10 * MINUTE_MS)

    def full(_line: bytes) -> None:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        atlas.results(key, one, full, bytes_max=1_000_000)
    assert isinstance(atlas.credits(key), Credits)


# -- keys


def test_a_key_with_all_it_needs_has_no_problem(atlas: RipeAtlas, key: str) -> None:
    assert atlas.check_key(key) == KeyCheck((), unverified=("download results of non-public measurements",))


@pytest.mark.parametrize(
    ("grants", "missing"),
    [
        ((*POOL, READS[0]), ["get information about your credits"]),
        ((*POOL, READS[1]), ["list your measurements"]),
        (POOL, ["get information about your credits", "list your measurements"]),
        ((*READS, "keys.list_keys"), ["schedule a new measurement", "stop a measurement"]),
        ((*READS, *POOL, "keys.list_keys"), []),
    ],
)
def test_a_key_check_names_the_permission_that_is_missing(
    simulator: AtlasSimulator, atlas: RipeAtlas, grants: tuple[str, ...], missing: list[str]
) -> None:
    simulator.add_account("lab")
    checked = atlas.check_key(simulator.add_key("lab", grants=grants).uuid)
    assert isinstance(checked, KeyCheck), checked
    assert len(checked.problems) == len(missing)
    assert all(word in problem for word, problem in zip(missing, checked.problems, strict=True))


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_ripe_does_not_know_is_one_problem_in_ripes_words(status: int) -> None:
    with AtlasSimulator(Model(unknown_key_status=status)) as simulator:
        atlas = RipeAtlas(simulator.base_url)
        checked = atlas.check_key("no-such-key")
        atlas.close()
    assert isinstance(checked, KeyCheck), checked
    assert len(checked.problems) == 1
    assert checked.words == ("The provided API key does not exist",)


def test_a_key_is_not_judged_while_ripe_is_unwell(simulator: AtlasSimulator, atlas: RipeAtlas, key: str) -> None:
    simulator.add_fault(Fault(kind="rate_limit", path="/credits", retry_after_s=9))
    answer = atlas.check_key(key)
    assert isinstance(answer, Refused), answer
    assert (answer.scope, answer.retry_after_ms) == ("global", 9_000)
    simulator.add_fault(Fault(kind="error_before", path="/my"))
    assert isinstance(atlas.check_key(key), Lost)
    simulator.add_fault(Fault(kind="error_before", path="/keys"))
    assert atlas.check_key(key) == KeyCheck((), unverified=("download results of non-public measurements",))


# -- where it leads


def test_over_tls_the_certificate_is_verified(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(make_chain_file(tmp_path, authority, hosts=["127.0.0.1"]))
    with AtlasSimulator(tls=context) as simulator:
        (key,) = simulator.add_account("lab")
        trusting = RipeAtlas(f"{simulator.base_url}/api/v2/", ca_file=authority.file)
        assert isinstance(send(trusting, key), Created)
        assert isinstance(trusting.credits(key), Credits)
        other = RipeAtlas(simulator.base_url, ca_file=make_authority(tmp_path, "Other").file)
        answer = send(other, key)
        assert isinstance(answer, Refused), answer
        assert (answer.scope, posts(simulator)) == ("global", 1)
        assert "certificate" in answer.reason
        trusting.close()
        other.close()


def test_an_address_in_the_setting_is_allowed_and_our_own_api_is_not(simulator: AtlasSimulator, key: str) -> None:
    for url in (simulator.base_url, f"http://localhost:{simulator.port}"):
        atlas = open_atlas(load_settings(atlas_url=url))
        assert isinstance(atlas.credits(key), Credits)
        atlas.close()
    atlas = open_atlas(load_settings(atlas_url=simulator.base_url), own=[("127.0.0.1", simulator.port)])
    assert atlas.credits(key) == Lost(OWN_API)
    atlas.close()
