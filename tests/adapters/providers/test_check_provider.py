from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from paceline.adapters.providers.checks import TOGETHER_MAX, CheckProvider
from paceline.core.http.expectations import HttpExpect
from paceline.core.monitors.checks import DnsCheck, HttpCheck, PolledCheck, TcpCheck, TlsCheck
from paceline.core.monitors.values import CheckOrder
from paceline.ports import Provider
from paceline.simulators.http import ModelHttpServer
from tests.adapters.providers.support.dns_server import dns_server
from tests.adapters.providers.support.drive import LOOPBACK, gather, open_provider, order


def mixed_checks(url: str, port: int, dns_port: int) -> list[PolledCheck]:
    return [
        HttpCheck(url=f"{url}/ok"),
        HttpCheck(url=f"{url}/status/500"),
        HttpCheck(url=f"{url}/slow/50", headers={"X-A": "1"}),
        HttpCheck(url=f"{url}/hang", timeout="300ms"),
        HttpCheck(url=f"{url}/drip?every=10", timeout="300ms", method="POST", body="x"),
        HttpCheck(url=f"{url}/endless", max_bytes=50_000, expect=HttpExpect(body_contains="on")),
        HttpCheck(url=f"{url}/redirect?to=/ok", follow_redirects=2),
        HttpCheck(url="http://10.0.0.1/"),
        HttpCheck(url="http://[::gg]/"),
        HttpCheck(url="http://127.0.0.1/", headers={"X-Broken": "\udcff"}),
        HttpCheck(url=f"{url}/ok", timeout="no duration"),
        TcpCheck(host="127.0.0.1", port=port),
        TcpCheck(host="127.0.0.1", port=1),
        TlsCheck(host="127.0.0.1", port=port, timeout="500ms"),
        DnsCheck(name="web.example", server="127.0.0.1", port=dns_port),
        DnsCheck(name="gone.example", server="127.0.0.1", port=dns_port),
        DnsCheck(name="silent.example", server="127.0.0.1", port=dns_port, timeout="300ms"),
        DnsCheck(name="web.example", server="10.0.0.1"),
    ]


def test_check_provider_implements_the_port() -> None:
    provider: Provider = open_provider()
    assert provider.in_flight == 0
    provider.close()


def test_every_check_of_a_mixed_load_finishes_exactly_once(provider: CheckProvider, server: ModelHttpServer) -> None:
    with dns_server({("web.example", "A"): ["192.0.2.1"], ("silent.example", "A"): None}) as dns_port:
        checks = mixed_checks(server.base_url, server.port, dns_port)
        orders = [order(checks[handle % len(checks)], handle) for handle in range(20 * len(checks))]
        for begin in range(0, len(orders), 60):
            provider.start(orders[begin : begin + 60])
        assert provider.in_flight == len(orders)
        finished = gather(provider, len(orders), within_s=20)
    assert sorted(item.handle for item in finished) == list(range(len(orders)))
    assert provider.in_flight == 0
    by_kind = {
        index: {item.outcome.ok for item in finished if item.handle % len(checks) == index}
        for index in range(len(checks))
    }
    good = {index for index, verdicts in by_kind.items() if verdicts == {True}}
    assert good == {0, 2, 5, 6, 11, 14}
    assert all(len(verdicts) == 1 for verdicts in by_kind.values())
    assert all(item.outcome.ok or item.outcome.reason for item in finished)
    assert all(item.started_ms <= item.ended_ms for item in finished)


def test_a_slot_is_freed_at_the_deadline_whatever_the_server_does(
    provider: CheckProvider, server: ModelHttpServer
) -> None:
    paths = ["/drip?every=5", "/endless", "/gzip-bomb", "/hang", "/slow/60000"]
    checks = [HttpCheck(url=server.base_url + path, timeout="500ms", max_bytes=16_000_000) for path in paths]
    began_s = time.monotonic()
    provider.start([order(check, handle) for handle, check in enumerate(checks * 4)])
    gather(provider, 20, within_s=20)
    assert time.monotonic() - began_s < 10
    assert provider.in_flight == 0


def test_waiting_uses_no_processor_time_and_ends_when_the_wait_is_over(provider: CheckProvider) -> None:
    began_s, cpu_s = time.monotonic(), time.process_time()
    assert provider.finished(wait_ms=400) == []
    assert 0.39 < time.monotonic() - began_s < 5
    assert time.process_time() - cpu_s < 0.1


def test_waiting_with_a_hanging_check_uses_no_processor_time(provider: CheckProvider, server: ModelHttpServer) -> None:
    provider.start([order(HttpCheck(url=f"{server.base_url}/hang"), handle) for handle in range(50)])
    provider.finished(wait_ms=200)
    cpu_s = time.thread_time()
    assert provider.finished(wait_ms=500) == []
    assert time.thread_time() - cpu_s < 0.1


def test_finished_without_a_wait_returns_at_once(provider: CheckProvider) -> None:
    began_s = time.monotonic()
    for _ in range(20):
        assert provider.finished(wait_ms=0) == []
    assert time.monotonic() - began_s < 2


def test_wake_ends_a_wait_from_another_thread(provider: CheckProvider) -> None:
    timer = threading.Timer(0.1, provider.wake)
    timer.start()
    began_s = time.monotonic()
    assert provider.finished(wait_ms=20_000) == []
    assert 0.05 < time.monotonic() - began_s < 10
    timer.join()


def test_a_wake_before_the_wait_is_not_lost_and_counts_once(provider: CheckProvider) -> None:
    for _ in range(100_000 if os.environ.get("PACELINE_TEST_PROFILE") == "deep" else 5_000):
        provider.wake()
    began_s = time.monotonic()
    assert provider.finished(wait_ms=20_000) == []
    assert time.monotonic() - began_s < 10
    assert provider.finished(wait_ms=100) == []
    assert time.monotonic() - began_s > 0.09


def test_next_check_reuses_the_connection_and_reports_it(provider: CheckProvider, server: ModelHttpServer) -> None:
    check = HttpCheck(url=f"{server.base_url}/ok")
    reused = []
    for handle in range(3):
        provider.start([order(check, handle)])
        reused.append(gather(provider, 1)[0].outcome.detail["reused"])
    assert reused == [False, True, True]


def test_a_kept_connection_that_its_server_closed_is_replaced(provider: CheckProvider) -> None:
    with ModelHttpServer() as first:
        port = first.port
        provider.start([order(HttpCheck(url=f"{first.base_url}/ok"))])
        assert gather(provider, 1)[0].outcome.ok
    cpu_s = time.process_time()
    assert provider.finished(wait_ms=300) == []
    assert time.process_time() - cpu_s < 0.1, "a closed idle connection must not keep the loop busy"
    with ModelHttpServer(port=port) as second:
        provider.start([order(HttpCheck(url=f"{second.base_url}/ok"))])
        done = gather(provider, 1)[0].outcome
    assert (done.ok, done.detail["reused"]) == (True, False)


def test_close_drops_checks_in_flight_and_leaves_no_connection_open(server: ModelHttpServer) -> None:
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    provider = open_provider(*LOOPBACK)
    checks: list[PolledCheck] = [HttpCheck(url=f"{server.base_url}/hang") for _ in range(20)]
    checks += [HttpCheck(url=f"{server.base_url}/ok") for _ in range(20)]
    checks += [TcpCheck(host="127.0.0.1", port=server.port) for _ in range(20)]
    checks += [DnsCheck(name="web.example", server="127.0.0.1", port=server.port)]
    provider.start([order(check, handle) for handle, check in enumerate(checks)])
    gather(provider, 30)
    provider.close()
    provider.close()
    provider.wake()
    until_s = time.monotonic() + 2.0  # the server closes its ends of the connections on its own thread
    while len(list(Path("/proc/self/fd").iterdir())) > before and time.monotonic() < until_s:
        time.sleep(0.02)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
    assert not [thread for thread in threading.enumerate() if thread.name in ("dns-checks", "curl-close")]


def test_many_connections_leave_no_descriptor_behind(provider: CheckProvider, server: ModelHttpServer) -> None:
    def run(count: int) -> int:
        provider.start([order(TcpCheck(host="127.0.0.1", port=server.port), handle) for handle in range(count)])
        assert all(item.outcome.ok for item in gather(provider, count))
        time.sleep(0.1)
        return len(list(Path("/proc/self/fd").iterdir()))

    first = run(50)
    assert run(200) <= first + 5


def test_check_times_come_from_the_given_clock(server: ModelHttpServer) -> None:
    class Clock:
        now = 1_000_000

        def now_ms(self) -> int:
            self.now += 7
            return self.now

    provider = CheckProvider(allow=[], clock=Clock())
    try:
        provider.start([order(HttpCheck(url=f"{server.base_url}/ok"))])
        (finished,) = gather(provider, 1)
    finally:
        provider.close()
    assert finished.started_ms == 1_000_007
    assert finished.ended_ms > finished.started_ms
    assert finished.ended_ms % 7 == 1_000_000 % 7


def test_answers_are_read_while_a_large_load_is_still_being_sent(
    provider: CheckProvider, server: ModelHttpServer
) -> None:
    checks = 20 * TOGETHER_MAX
    provider.start([order(HttpCheck(url=f"{server.base_url}/ok"), handle) for handle in range(checks)])
    finished = gather(provider, checks)
    assert min(item.ended_ms for item in finished) < max(item.started_ms for item in finished)
    assert provider.in_flight == 0


@pytest.mark.parametrize("attempt", [1, 5])
def test_an_outcome_names_its_order(attempt: int, provider: CheckProvider, server: ModelHttpServer) -> None:
    check = HttpCheck(url=f"{server.base_url}/ok")
    provider.start([CheckOrder(77, attempt, owner="ada", monitor="web", generation=1, counter=1, check=check)])
    (finished,) = gather(provider, 1)
    assert (finished.handle, finished.attempt) == (77, attempt)


SCARCE = """
import resource, sys
from paceline.core.monitors.checks import HttpCheck
from tests.adapters.providers.support.drive import LOOPBACK, gather, open_provider, order

provider = open_provider(*LOOPBACK)
resource.setrlimit(resource.RLIMIT_NOFILE, (30, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
provider.start([order(HttpCheck(url=sys.argv[1] + "/slow/200"), handle) for handle in range(60)])
finished = gather(provider, 60)
assert sorted(item.handle for item in finished) == list(range(60))
good = sum(item.outcome.ok for item in finished)
said = sum("out of file descriptors" in item.outcome.reason for item in finished)
assert good and said and good + said == 60, finished
provider.start([order(HttpCheck(url=sys.argv[1] + "/ok"))])
assert gather(provider, 1)[0].outcome.ok, "and it recovers"
provider.close()
"""


def test_every_check_ends_with_a_reason_when_file_descriptors_run_out(server: ModelHttpServer) -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCARCE, server.base_url],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
