"""blaeu as it comes from PyPI, against a real ``paceline up``. Its host name is fixed, so a proxy leads it there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from paceline.adapters.certificates import make_certificates
from tests.shells.ripe_api.support.ripe_proxy import RipeProxy, ripe_proxy
from tests.shells.ripe_api.support.stage import HURRIED, Stage, staged

HOST = "atlas.ripe.net"
PROGRAMS = Path(sys.executable).parent
PATIENT = msgspec.structs.replace(HURRIED, one_off_ms=600_000)
"""A one-off is shown as ongoing for ten minutes, as RIPE does: blaeu wants to see it so."""
ORDERS: dict[str, tuple[str, ...]] = {
    "reach": ("blaeu-reach", "192.0.2.1"),
    "reach by area": ("blaeu-reach", "--area=West", "--size=100", "192.0.2.2"),
    "traceroute": ("blaeu-traceroute", "--simpleformat", "192.0.2.3"),
    "traceroute by TCP": ("blaeu-traceroute", "--protocol=TCP", "192.0.2.4"),
    "resolve": ("blaeu-resolve", "--type=AAAA", "www.example.org"),
    "cert": ("blaeu-cert", "www.example.org"),
    "ntp": ("blaeu-ntp", "ntp.example.org"),
    "http": ("blaeu-http", "--path=/100", "fr-par-as2486.anchors.atlas.ripe.net"),
}
DONE = re.compile(r"#(\d+) done at ")
DEADLINE_S = 240.0
pytestmark = pytest.mark.timeout(600)


class Blaeu(NamedTuple):
    stage: Stage
    proxy: RipeProxy

    def begin(self, *words: str) -> subprocess.Popen[str]:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.stage.folder),
            "ATLASAUTH": self.stage.tokens["ann"],
            "HTTPS_PROXY": self.proxy.url,
            "SSL_CERT_FILE": str(self.stage.authority),
        }
        return subprocess.Popen(
            [sys.executable, str(PROGRAMS / words[0]), *words[1:]],
            cwd=self.stage.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


@pytest.fixture(scope="module")
def blaeu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Blaeu]:
    folder = tmp_path_factory.mktemp("blaeu")
    made = make_certificates(folder, "ripe", names=[HOST], now=datetime.now(UTC))
    with staged(folder, model=PATIENT, made=made) as stage, ripe_proxy(stage.server) as proxy:
        yield Blaeu(stage, proxy)
        assert set(proxy.asked) == {f"{HOST}:443"}


@pytest.fixture(scope="module")
def orders(blaeu: Blaeu) -> dict[str, tuple[int, str]]:
    """All at once, since each of them sleeps for most of its time: exit code and what was printed."""
    begun = {name: blaeu.begin(words[0], "--requested=3", *words[1:]) for name, words in ORDERS.items()}
    return {name: (one.wait(DEADLINE_S), one.communicate()[0]) for name, one in begun.items()}


@pytest.mark.parametrize("name", ORDERS)
def test_blaeu_orders_waits_and_reports(orders: dict[str, tuple[int, str]], name: str) -> None:
    code, said = orders[name]
    assert code == 0, said
    assert DONE.search(said), said


def test_blaeu_reads_the_results_of_an_older_measurement(blaeu: Blaeu) -> None:
    ordered = blaeu.begin("blaeu-reach", "--requested=3", "192.0.2.9")
    said = ordered.communicate(timeout=DEADLINE_S)[0]
    found = DONE.search(said)
    assert found, said
    number = found[1]
    again = blaeu.begin("blaeu-reach", f"--measurement-ID={number}", "192.0.2.9")
    told = again.communicate(timeout=DEADLINE_S)[0]
    assert again.returncode == 0, told
    assert f"Test #{number}" in told, told
    assert "successful tests" in told, told
