"""RIPE's own client, unmodified and over TLS, works against the simulator."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
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

from paceline.simulators.ripe_atlas import AtlasSimulator, Fault, SimulatorClock, SimulatorModel
from tests.simulators.support.atlas_client import MINUTE_MS, START_MS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1, good for a day, that is its own authority; its key stands in the same file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "atlas simulator")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "atlas.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(made.public_bytes(serialization.Encoding.PEM) + private)
    return file


@pytest.fixture
def simulator(certificate: Path) -> Iterator[AtlasSimulator]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    clock = SimulatorClock(start_ms=START_MS, speed=0)
    with AtlasSimulator(SimulatorModel(index_lag_ms=0), clock=clock, tls=context) as running:
        yield running
        assert running.defects == []


@pytest.fixture
def common(simulator: AtlasSimulator, certificate: Path) -> dict[str, str]:
    return {
        "server": f"127.0.0.1:{simulator.port}",
        "verify": str(certificate),
        "key": simulator.add_account("alice")[0],
    }


def test_cousteau_creates_follows_fetches_and_stops(simulator: AtlasSimulator, common: dict[str, str]) -> None:
    measurements = [
        Ping(af=4, target="192.0.2.1", description="job 7/1", tags=["plat-job-7"]),
        Traceroute(af=4, target="www.example.net", description="t", protocol="ICMP", resolve_on_probe=True),
        Dns(af=4, target="192.0.2.53", description="d", query_class="IN", query_type="A", query_argument="example.org"),
    ]
    sources = [AtlasSource(type="area", value="WW", requested=20)]
    good, answer = AtlasCreateRequest(measurements=measurements, sources=sources, is_oneoff=True, **common).create()
    assert (good, answer) == (True, {"measurements": [1_000_001, 1_000_002, 1_000_003]})

    simulator.clock.advance(MINUTE_MS)
    good, results = AtlasResultsRequest(msm_id=1_000_001, **common).create()
    assert good
    assert 10 < len(results) <= 20
    good, latest = AtlasLatestRequest(
        msm_id=1_000_002, probe_ids=[one["prb_id"] for one in results[:3]], **common
    ).create()
    assert good
    assert {one["type"] for one in latest} == {"traceroute"}

    shown = Measurement(id=1_000_001, **common)
    assert (shown.status, shown.status_id, shown.is_oneoff, shown.type) == ("Ongoing", 2, True, "ping")
    found = MeasurementRequest(server=common["server"], verify=common["verify"], tags="plat-job-7")
    assert [one["id"] for one in found] == [1_000_001]

    assert AtlasStopRequest(msm_id=1_000_001, **common).create()[0]
    assert Measurement(id=1_000_001, **common).status == "Stopped"
    good, credits_ = AtlasRequest(url_path="/api/v2/credits/", **common).get()
    assert (good, credits_["max_daily_credits"]) == (True, 1_000_000)


def test_cousteau_follows_the_pages_of_a_list(simulator: AtlasSimulator, common: dict[str, str]) -> None:
    for number in range(5):
        many = [Ping(af=4, target=f"192.0.2.{number}", description="many")] * 20
        sources = [AtlasSource(type="probes", value="11,12", requested=2)]
        assert AtlasCreateRequest(measurements=many, sources=sources, is_oneoff=True, **common).create()[0]
    found = MeasurementRequest(server=common["server"], verify=common["verify"], page_size=30, sort="id")
    assert [one["id"] for one in found] == list(range(1_000_001, 1_000_101))
    assert len(simulator.world.measurements) == 100


def test_cousteau_reports_a_refusal_and_a_lost_reply(simulator: AtlasSimulator, common: dict[str, str]) -> None:
    sources = [AtlasSource(type="area", value="WW", requested=1)]

    def create(description: str) -> tuple[bool, object]:
        measurements = [Ping(af=4, target="192.0.2.1", description=description)]
        made: tuple[bool, object] = AtlasCreateRequest(
            measurements=measurements, sources=sources, is_oneoff=True, **common
        ).create()
        return made

    good, answer = create("<")
    assert not good
    assert "Text contains disallowed characters" in str(answer)
    simulator.add_fault(Fault(kind="drop_after", method="POST"))
    good, answer = create("fine")
    assert not good
    assert len(simulator.audit()["measurements"]) == 1
