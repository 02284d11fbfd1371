"""An HTTP server on loopback that answers by a script, and remembers what it was asked."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self


class Request(NamedTuple):
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Say(NamedTuple):
    """An answer. ``cut``: the connection ends after so many bytes of the body."""

    status: int = 200
    document: Any = None
    headers: Mapping[str, str] = {}
    raw: bytes | None = None
    cut: int | None = None


class HangUp(NamedTuple):
    """The connection ends without an answer."""


Act = Say | HangUp
Answering = Callable[[Request], Act]


def problem(status: int, code: str, detail: str = "no", **members: Any) -> Say:
    document = {"type": "", "title": "", "status": status, "code": code, "detail": detail, "errors": []} | members
    return Say(status, document, {"content-type": "application/problem+json"})


class ScriptedServer:
    """Takes the acts one by one; the last one stays. Or asks a function what to answer."""

    def __init__(self, script: Sequence[Act] | Answering, *, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        self._script = script
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _act(self, request: Request) -> Act:
        with self._lock:
            self.requests.append(request)
            if not callable(self._script):
                return self._script[min(len(self.requests), len(self._script)) - 1]
        return self._script(request)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except ConnectionError:
                    self.close_connection = True

            def answer(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Request(self.command, self.path, headers, self.read_body(headers))
                act = scripted._act(request)
                if isinstance(act, HangUp):
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                else:
                    self.say(act)

            def read_body(self, headers: Mapping[str, str]) -> bytes:
                if headers.get("transfer-encoding") != "chunked":
                    return self.rfile.read(int(headers.get("content-length", 0)))
                body = b""
                while size := int(self.rfile.readline(), 16):
                    body += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
                return body

            def say(self, act: Say) -> None:
                body = (
                    act.raw
                    if act.raw is not None
                    else b""
                    if act.document is None
                    else json.dumps(act.document).encode()
                )
                self.send_response(act.status)
                for name, value in {"content-type": "application/json", **act.headers}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: act.cut])
                if act.cut is not None:
                    self.wfile.flush()
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)

            def log_message(self, *_: Any) -> None:
                pass

            do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815

        return Handler
