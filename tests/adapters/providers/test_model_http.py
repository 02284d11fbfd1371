from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time

import pytest

from paceline.simulators.http import PATHS_COUNTED_MAX, REQUESTS_LOGGED_MAX, ModelHttpServer


class SetClock:
    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms


def ask(server: ModelHttpServer, target: str, method: str = "GET") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    connection.request(method, target)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, body


def test_model_server_answers_each_path_as_named(server: ModelHttpServer) -> None:
    assert ask(server, "/ok") == (200, b"ok\n")
    assert ask(server, "/status/418")[0] == 418
    assert ask(server, "/status/204") == (204, b"")
    assert ask(server, "/redirect?to=/ok&status=307")[0] == 307
    assert ask(server, "/nothing")[0] == 404
    assert ask(server, "/ok", "HEAD") == (200, b"")
    document = json.loads(ask(server, "/echo?a=1")[1])
    assert (document["method"], document["target"]) == ("GET", "/echo?a=1")


def test_slow_path_of_the_model_server_takes_the_requested_time(server: ModelHttpServer) -> None:
    began_s = time.monotonic()
    assert ask(server, "/slow/150")[0] == 200
    assert 0.15 <= time.monotonic() - began_s < 8


def test_flap_path_of_the_model_server_follows_the_given_clock() -> None:
    clock = SetClock()
    with ModelHttpServer(clock=clock) as server:
        seen = []
        for clock.ms in (0, 999, 1_000, 1_999, 2_000):
            seen.append(ask(server, "/flap?period=1000")[0])
    assert seen == [200, 200, 503, 503, 200]


def test_flaky_path_of_the_model_server_follows_the_seed() -> None:
    def draw(seed: int) -> list[int]:
        with ModelHttpServer(seed=seed) as server:
            return [ask(server, "/flaky?percent=50")[0] for _ in range(20)]

    first = draw(1)
    assert set(first) == {200, 503}
    assert draw(1) == first
    assert draw(2) != first


def test_requests_are_counted_and_the_latest_kept_within_bounds(server: ModelHttpServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    for index in range(PATHS_COUNTED_MAX + 50):
        connection.request("GET", f"/status/200/{index}?q=1", headers={"X-Index": str(index)})
        connection.getresponse().read()
    connection.close()
    assert server.log.count("/status/200/0") == 1
    assert server.log.total == PATHS_COUNTED_MAX + 50
    assert len(server.log.latest) == REQUESTS_LOGGED_MAX
    assert server.log.latest[-1].headers["X-Index"] == str(PATHS_COUNTED_MAX + 49)


def test_requests_sent_at_once_are_answered_in_order(server: ModelHttpServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        requests = "".join(
            f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n" for path in ("/slow/80", "/status/201", "/status/202")
        )
        connection.sendall(requests.encode())
        received = b""
        while received.count(b"HTTP/1.1") < 3 or not received.endswith(b"202\n"):
            received += connection.recv(4_096)
    assert re.findall(rb"HTTP/1.1 (\d+)", received) == [b"200", b"201", b"202"]


def test_model_server_refuses_bytes_that_are_not_http_and_goes_on(server: ModelHttpServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(b"EHLO mail\r\n\r\n")
        while connection.recv(4_096):
            pass
    assert ask(server, "/ok")[0] == 200


def test_taken_port_is_reported_at_start(server: ModelHttpServer) -> None:
    second = ModelHttpServer(port=server.port)
    with pytest.raises(OSError, match="in use"):
        second.start()


def test_stop_ends_the_model_server_with_clients_connected() -> None:
    before = set(threading.enumerate())  # other tests' servers may run in this process
    server = ModelHttpServer()
    server.start()
    assert {thread.name for thread in threading.enumerate() if thread not in before} == {"model-http"}
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(b"GET /hang HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(0.05)
        began_s = time.monotonic()
        server.stop()
        assert time.monotonic() - began_s < 8
    assert not [thread for thread in threading.enumerate() if thread not in before]
