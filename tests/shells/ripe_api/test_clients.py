"""RIPE's own clients, unmodified and over TLS, against a real ``paceline up``, until results come back."""

from __future__ import annotations

import http.client
import json
import os
import re
import ssl
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ripe.atlas.cousteau import (
    AtlasCreateRequest,
    AtlasLatestRequest,
    AtlasRequest,
    AtlasResultsRequest,
    AtlasSource,
    AtlasStopRequest,
    Dns,
    Measurement,
    MeasurementRequest,
    Ping,
    Traceroute,
)

from tests.shells.ripe_api.support.stage import Stage, eventually

MAGELLAN = Path(sys.executable).with_name("ripe-atlas")


def cousteau_creates(stage: Stage, *definitions: Any, **more: Any) -> list[int]:
    sources = [AtlasSource(type="area", value="WW", requested=5, tags={"include": ["system-ipv4-works"]})]
    good, answer = AtlasCreateRequest(
        measurements=list(definitions), sources=sources, **({"is_oneoff": True} | stage.common | more)
    ).create()
    assert good, answer
    numbers: list[int] = answer["measurements"]
    return numbers


def test_cousteau_creates_follows_and_fetches(stage: Stage) -> None:
    numbers = cousteau_creates(
        stage,
        Ping(af=4, target="192.0.2.1", description="job 7/1", tags=["plat-job-7"], packets=3, size=48),
        Traceroute(af=4, target="www.example.net", description="t", protocol="ICMP", resolve_on_probe=True),
        Dns(af=4, target="192.0.2.53", description="d", query_class="IN", query_type="A", query_argument="a.example"),
    )
    common = stage.common
    first = Measurement(id=numbers[0], **common)
    assert (first.type, first.is_oneoff, first.target) == ("ping", True, "192.0.2.1")
    eventually(lambda: Measurement(id=numbers[0], **common).status_id == 4)

    good, results = AtlasResultsRequest(msm_id=numbers[0], start=1_500_000_000, stop=2_500_000_000, **common).create()
    assert good
    assert {(one["msm_id"], one["type"]) for one in results} == {(numbers[0], "ping")}
    assert len(results) == 5
    wanted = [one["prb_id"] for one in results[:2]]
    good, latest = AtlasLatestRequest(msm_id=numbers[1], probe_ids=wanted, **common).create()
    assert good
    assert {one["type"] for one in latest} == {"traceroute"}
    assert sorted(one["prb_id"] for one in latest) == sorted(wanted)


def test_cousteau_lists_with_a_key_in_the_query_or_in_the_server(stage: Stage) -> None:
    numbers = cousteau_creates(stage, *[Ping(af=4, target="192.0.2.8", description="many", tags=["many"])] * 5)
    where = {"server": stage.server, "verify": str(stage.authority)}
    found = MeasurementRequest(**where, key=stage.tokens["ann"], tags="many", page_size=2, sort="id", status="0,1,2,4")
    # Its next pages are asked for by the link alone, in which the key is not.
    assert [one["id"] for one in found] == numbers
    where["server"] = f"paceline:{stage.tokens['ann']}@{stage.server}"
    found = MeasurementRequest(**where, tags="many", page_size=2, sort="id")
    assert [one["id"] for one in found] == numbers
    assert found.total_count == 5
    assert list(MeasurementRequest(server=stage.server, verify=str(stage.authority), tags="many")) == []


def test_cousteau_stops_measurements_reads_credits_and_gets_refusals(stage: Stage) -> None:
    common = stage.common
    (number,) = cousteau_creates(
        stage,
        Ping(af=4, target="192.0.2.1", description="long", interval=60),
        is_oneoff=False,
        stop_time=int(time.time()) + 3_600,
    )
    good, _ = AtlasStopRequest(msm_id=number, **common).create()
    assert good
    eventually(lambda: Measurement(id=number, **common).status_id in (4, 9))
    good, credits_ = AtlasRequest(url_path="/api/v2/credits/", **common).get()
    assert good
    assert credits_["max_daily_credits"] == 100_000

    poor = common | {"key": stage.tokens["bob"]}
    sources = [AtlasSource(type="area", value="WW", requested=100)]
    dear = [Traceroute(af=4, target="192.0.2.1", description="dear", protocol="ICMP")]
    good, answer = AtlasCreateRequest(measurements=dear, sources=sources, is_oneoff=True, **poor).create()
    assert not good
    assert "maximum daily credits limit 100" in answer["error"]["errors"][0]["detail"]
    good, answer = AtlasRequest(url_path=f"/api/v2/measurements/{number}/", **poor).get()
    assert (good, answer["error"]["status"]) == (False, 404)


class Magellan:
    """The command line, with its settings in a home of its own."""

    def __init__(self, stage: Stage, home: Path) -> None:
        self._home = home
        token = stage.tokens["ann"]
        folder = home / "ripe-atlas-tools"
        folder.mkdir()
        (folder / "rc").write_text(
            f"authorisation: {{create: {token}, fetch: {token}}}\nripe-ncc: {{endpoint: 'https://{stage.server}'}}\n"
        )
        # What sends no key of its own finds one here, as all that is built on requests does.
        netrc = home / ".netrc"
        netrc.write_text(f"machine 127.0.0.1 login paceline password {token}\n")
        netrc.chmod(0o600)
        self._environment = os.environ | {
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home),
            "REQUESTS_CA_BUNDLE": str(stage.authority),
            "NETRC": str(netrc),
        }

    def __call__(self, *words: str) -> str:
        ran = subprocess.run(
            [MAGELLAN, *words],
            env=self._environment,
            cwd=self._home,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout + ran.stderr

    def measure(self, *words: str) -> int:
        said = self("measure", *words, "--no-report", "--probes", "3")
        found = re.search(r"Measurement (\d+) was created", said)
        assert found, said
        return int(found[1])


@pytest.fixture
def magellan(stage: Stage, tmp_path: Path) -> Magellan:
    return Magellan(stage, tmp_path)


def test_magellan_measures_and_reports(stage: Stage, magellan: Magellan) -> None:
    ping = magellan.measure("ping", "--target", "192.0.2.1", "--description", "by hand", "--packets", "2")
    trace = magellan.measure("traceroute", "--target", "www.example.net", "--protocol", "UDP")
    for number in (ping, trace):
        eventually(partial(_is_stopped, stage, number))
    said = magellan("report", str(ping))
    assert "PING 192.0.2.1" in said
    assert said.count("via probe #") == 3
    assert "6 packets transmitted" in said
    assert "COUNTRY_CODE: " in magellan("report", str(ping), "--aggregate-by", "country")
    assert magellan("report", str(trace)).count("Probe #") == 3


def _is_stopped(stage: Stage, number: int) -> bool:
    return bool(Measurement(id=number, **stage.common).status_id == 4)


def test_magellan_measures_dns_and_from_a_specification(stage: Stage, magellan: Magellan, tmp_path: Path) -> None:
    dns = magellan.measure("dns", "--query-argument", "a.example", "--query-type", "AAAA")
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"type": "ntp", "af": 4, "target": "192.0.2.123", "description": "spec", "packets": 2}))
    ntp = magellan.measure("spec", f"@{spec}")
    shown = {one: Measurement(id=one, **stage.common) for one in (dns, ntp)}
    assert [(one.type, one.is_oneoff) for one in shown.values()] == [("dns", True), ("ntp", True)]
    assert shown[ntp].meta_data["packets"] == 2


def test_magellan_shows_and_searches_the_users_own_measurements(magellan: Magellan) -> None:
    number = magellan.measure("sslcert", "--target", "www.example.net", "--description", "needle in a haystack")
    said = magellan("measurement-info", str(number))
    assert str(number) in said
    assert "needle in a haystack" in said
    said = magellan("measurement-search", "--search", "needle in a", "--limit", "5")
    assert "needle in a haystack" in said
    assert "Showing 1 of 1" in said


class Goat:
    """The requests of goat, which is written in Go and does not run here: its key is a UUID, its links are followed."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._key = stage.tokens["ann"]
        self._key = self("GET", "keys/")[1]["results"][0]["uuid"]

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        host, port = self._stage.server.split(":")
        context = ssl.create_default_context(cafile=self._stage.authority)
        connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=15)
        headers = {"Authorization": f"Key {self._key}", "User-Agent": "goat v0.8", "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection.request(method, f"/api/v2/{path}", None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        if "format=txt" in path:
            return answer.status, [json.loads(line) for line in text.splitlines()]
        return answer.status, json.loads(text) if text else None


def test_goat_creates_lists_counts_fetches_and_stops(stage: Stage) -> None:
    goat = Goat(stage)
    ping = {"description": "ping2", "target": "192.0.2.6", "type": "ping", "af": 4, "packet_size": 999}
    order = {
        "definitions": [ping | {"include_probe_id": True, "is_oneoff": True, "aggregator_client_id": "ab" * 32}],
        "probes": [{"requested": 3, "type": "area", "value": "WW"}],
        "is_oneoff": True,
    }
    status, made = goat("POST", "measurements/", order)
    assert status == 201
    (number,) = made["measurements"]
    query = "optional_fields=probes&format%5Bdatetime%5D=iso-8601"
    status, page = goat("GET", f"measurements/my/?{query}&id__in={number}")
    assert (status, page["count"], "warnings" in page) == (200, 1, False)
    # It reads both into times, and a null is none.
    assert isinstance(page["results"][0]["creation_time"], int)
    assert isinstance(page["results"][0]["start_time"], int)
    assert goat("GET", f"measurements/my/?page_size=0&id__gte={number}")[1]["count"] >= 1
    eventually(lambda: goat("GET", f"measurements/{number}/")[1]["status"]["id"] == 4)
    status, results = goat("GET", f"measurements/{number}/results/?format=txt&start=1500000000")
    assert (status, {one["size"] for one in results}) == (200, {999})
    assert goat("DELETE", f"measurements/{number}/")[0] == 204


def test_the_key_in_a_query_is_in_no_log(stage: Stage) -> None:
    host, port = stage.server.split(":")
    context = ssl.create_default_context(cafile=stage.authority)
    for path in ("measurements/my/", "measurements/x/", "nothing"):
        connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=15)
        connection.request("GET", f"/api/v2/{path}?key={stage.tokens['ann']}")
        connection.getresponse().read()
        connection.close()
    assert eventually(lambda: '"route": "unmatched"' in stage.log())
    assert stage.tokens["ann"] not in stage.log()
