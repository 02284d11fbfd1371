"""A target that hangs and returns is not flooded: a real daemon, a real server."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.monitors.definition import SpecLimits
from paceline.steps.monitors.define import parse_put, put_monitors
from tests.shells.support.daemons import free_port, new_user, now_ms, start_daemon

MONITORS = 20
HANG_S = 8


class HangingTarget(ThreadingHTTPServer):
    """Answers when its gate is open; notes when each request came."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.arrivals: list[float] = []

        class Handler(BaseHTTPRequestHandler):
            server: HangingTarget

            def do_GET(self) -> None:
                self.server.arrivals.append(time.monotonic())
                self.server.gate.wait(60)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)


def test_promise_7_a_target_that_hung_and_returns_gets_no_burst(tmp_path: Path) -> None:
    new_user(tmp_path, "ann")
    target = HangingTarget()
    serving = threading.Thread(target=target.serve_forever, daemon=True)
    serving.start()
    check = f'{{"kind": "http", "url": "http://127.0.0.1:{target.server_port}/", "timeout": "60s"}}'
    store = SqliteStore(str(tmp_path / "p.db"))
    puts = [
        parse_put("ann", f"m{index}", f'{{"check": {check}, "every": "1s"}}'.encode(), SpecLimits())
        for index in range(MONITORS)
    ]
    put_monitors(store, puts, monitors_max=100, now_ms=now_ms())
    store.close()
    daemon = start_daemon(tmp_path, free_port(), PACELINE_CHECK_LEASE="90s")
    try:
        deadline_s = time.monotonic() + 60
        while len(target.arrivals) < MONITORS and time.monotonic() < deadline_s:
            time.sleep(0.05)
        time.sleep(HANG_S)
        assert len(target.arrivals) == MONITORS, "one run of each monitor is out, and none follows it"
        returned_s = time.monotonic()
        target.gate.set()
        time.sleep(4)
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(90)
        target.shutdown()
        target.server_close()
        serving.join()
    after = Counter(int(arrived_s - returned_s) for arrived_s in target.arrivals[MONITORS:])
    assert after
    assert max(after.values()) <= 2 * MONITORS
