"""Sends of the RIPE Atlas client to the simulator's real server, and where the client connects."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from paceline.adapters.providers.guard import OWN_API
from paceline.adapters.providers.ripe_atlas import RipeAtlas
from paceline.adapters.providers.transfer import USER_AGENT
from paceline.config import load_settings
from paceline.core.jobs.atlas import Created, Lost, Refused
from paceline.core.jobs.atlas_replies import Credits, KeyCheck
from paceline.core.jobs.measurement import Measurement
from paceline.simulators.ripe_atlas import AtlasSimulator, Fault, Limits
from paceline.wiring import open_atlas
from tests.adapters.providers.support.atlas_stage import (
    CANARY,
    READS,
    body_of,
    measurement,
    posts,
    send,
    sent,
)
from tests.adapters.providers.support.certificates import make_authority, make_chain_file


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
    (
        "concurrent",
        Limits(concurrent=0),
        measurement(),
        {"scope": "account", "meter": "concurrent", "limit": 0},
    ),
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
def test_words_of_a_refusal_decide_its_scope_and_its_meter(
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


def test_unknown_key_and_key_without_permission_are_refused_with_the_scope_key(
    simulator: AtlasSimulator, atlas: RipeAtlas
) -> None:
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


def test_certificate_of_ripe_atlas_is_verified(tmp_path: Path) -> None:
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


def test_address_of_the_atlas_url_setting_is_allowed_unless_it_is_pacelines_own_api(
    simulator: AtlasSimulator, key: str
) -> None:
    for url in (simulator.base_url, f"http://localhost:{simulator.port}"):
        atlas = open_atlas(load_settings(atlas_url=url))
        assert isinstance(atlas.credits(key), Credits)
        atlas.close()
    atlas = open_atlas(load_settings(atlas_url=simulator.base_url), own=[("127.0.0.1", simulator.port)])
    assert atlas.credits(key) == Lost(OWN_API)
    atlas.close()
