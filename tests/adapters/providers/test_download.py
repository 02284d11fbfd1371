"""Files over HTTP: complete, unpacked, and only from addresses that the guard allows."""

from __future__ import annotations

import gzip
import io
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_network

import pytest

from paceline.adapters.providers.download import download
from paceline.errors import InvalidInput

LOOPBACK = (ip_network("127.0.0.0/8"),)
CONTENT = b"id,provider\n" + b"r,shop\n" * 1_000


class Files(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/moved":
            self._say(302, b"", ("Location", "/records.csv"))
        elif self.path == "/away":
            self._say(302, b"", ("Location", "http://10.1.2.3/secret"))
        elif self.path == "/packed":
            self._say(200, gzip.compress(CONTENT), ("Content-Encoding", "gzip"))
        elif self.path == "/records.csv":
            self._say(200, CONTENT)
        else:
            self._say(404, b"nothing")

    def _say(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Silence."""


@pytest.fixture
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Files) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def fetched(url: str, *, bytes_max: int = 1_000_000) -> bytes:
    into = io.BytesIO()
    download(url, into, allow=LOOPBACK, bytes_max=bytes_max)
    return into.getvalue()


@pytest.mark.parametrize("path", ["/records.csv", "/packed", "/moved"])
def test_file_is_downloaded_whole(address: str, path: str) -> None:
    assert fetched(address + path) == CONTENT


def test_failed_download_says_why(address: str) -> None:
    for url, words in (
        (f"{address}/gone", "status 404"),
        (f"{address}/away", "not public"),
        ("ftp://127.0.0.1/x", "http"),
    ):
        with pytest.raises(InvalidInput, match=words):
            fetched(url)
    with pytest.raises(InvalidInput, match="too large"):
        fetched(f"{address}/records.csv", bytes_max=100)


def test_guard_forbids_a_private_address(address: str) -> None:
    with pytest.raises(InvalidInput, match="not public"):
        download(f"{address}/records.csv", io.BytesIO(), allow=(), bytes_max=1_000_000)
