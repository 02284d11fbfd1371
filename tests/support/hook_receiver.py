"""A receiver of webhooks on loopback: it verifies signatures, keeps what it was told, and may be slow or refuse."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class HookReceiver(ThreadingHTTPServer):
    """``GET`` of any path is answered with 500 unless ``healthy``: a target that is down."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.secret = ""
        self.delay_s = 0.0
        self.status = 204
        self.healthy = False
        self.calls: Counter[str] = Counter()
        """How often each alert came, by its Idempotency-Key."""
        self.told: dict[str, dict[str, Any]] = {}
        self.wrong: list[str] = []
        """What was not signed as it should be."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: HookReceiver

    def do_GET(self) -> None:
        self._answer(200 if self.server.healthy else 500)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        key, signature = self.headers["Idempotency-Key"], self.headers["Paceline-Signature"]
        self.server.calls[key] += 1
        time.sleep(self.server.delay_s)
        stamp, _, digest = signature.removeprefix("t=").partition(",v1=")
        expected = hmac.new(self.server.secret.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
        document = json.loads(body)
        if not hmac.compare_digest(digest, expected) or document["id"] != key:
            self.server.wrong.append(key)
        if 200 <= self.server.status < 300:
            self.server.told[key] = document
        self._answer(self.server.status)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


@contextmanager
def hook_receiver() -> Iterator[HookReceiver]:
    with HookReceiver() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield server
        server.shutdown()
