"""A secret that is put into every secret field is found nowhere in the clear: no log, page, error, export or file."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.monitors.definition import parse_stored_spec
from paceline.core.monitors.values import PutMonitor
from tests.shells.cli.support.program import Program, Running

CANARY = "canary-5e81d0b7-secret"


class _Target(BaseHTTPRequestHandler):
    seen: list[tuple[str | None, bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        type(self).seen.append((self.headers.get("X-Secret"), body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def target() -> Iterator[tuple[str, list[tuple[str | None, bytes]]]]:
    handler = type("Target", (_Target,), {"seen": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/", handler.seen  # type: ignore[attr-defined]
        server.shutdown()


def check_of(url: str) -> dict[str, Any]:
    return {"kind": "http", "url": url, "method": "POST", "headers": {"X-Secret": CANARY}, "body": f"pw={CANARY}"}


def url_of(up: Running) -> str:
    return str(up.said["url"])


def ask(url: str, token: str, method: str, path: str, body: object = None) -> tuple[int, bytes]:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=30)
    with closing(connection):
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_secrets_of_checks_and_providers_are_nowhere_in_the_clear_and_reach_their_target(program: Program) -> None:
    token = program.json("user", "add", "alice", "--role", "admin")["token"]
    provider = {"base_url": "http://127.0.0.1:9", "headers": {"X-Secret": CANARY}}
    with (
        target() as (url, seen),
        program.running("up", "--port", "0", "--log-level", "debug", outbound_allow="127.0.0.0/8") as up,
    ):
        answers = [
            ask(url_of(up), token, "PUT", "/v1/users/me/monitors/home", {"check": check_of(url), "every": "1s"}),
            ask(url_of(up), token, "GET", "/v1/users/me/monitors/home"),
            ask(url_of(up), token, "PATCH", "/v1/users/me/monitors/home", {"check": {"headers": {"X-Other": CANARY}}}),
            ask(
                url_of(up),
                token,
                "PUT",
                "/v1/users/me/monitors",
                {"items": [{"id": "b", "check": check_of(url), "every": "1h"}]},
            ),
            ask(url_of(up), token, "PUT", "/v1/users/me/monitors/bad", {"check": check_of("nonsense"), "every": "1s"}),
            ask(url_of(up), token, "PUT", "/v1/providers/shop", provider),
            ask(url_of(up), token, "GET", "/v1/providers/shop"),
            ask(url_of(up), token, "GET", "/v1/users/me/monitors"),
            ask(url_of(up), token, "GET", "/ui/monitors"),
            ask(url_of(up), token, "GET", "/metrics"),
        ]
        until_s = time.monotonic() + 60
        while not seen and time.monotonic() < until_s:
            time.sleep(0.05)
        answers.append(ask(url_of(up), token, "GET", "/v1/users/me/monitors/home/runs"))
    assert seen
    assert set(seen) == {(CANARY, f"pw={CANARY}".encode())}
    assert [status for status, _ in answers[:4]] == [201, 200, 200, 200]
    assert answers[4][0] == 422
    assert [body for _, body in answers if CANARY.encode() in body] == []
    said = [program.ok("monitor", "show", "home"), program.ok("monitor", "show", "home", "--json")]
    program.ok("export", "moved.ndjson")
    program.ok("backup", "copy.db")
    assert CANARY not in "".join(said)
    assert _files_with_the_canary(program) == []


def test_export_is_sealed_and_its_import_makes_the_same_checks(program: Program) -> None:
    program.ok("user", "add", "alice")
    document = json.dumps({"id": "home", "check": check_of("http://127.0.0.1:9/"), "every": "1h"})
    (program.folder / "monitors.ndjson").write_text(document + "\n")
    program.ok("monitor", "import", "monitors.ndjson")
    (program.folder / "monitors.ndjson").unlink()
    program.ok("export", "moved.ndjson")
    (program.folder / "other.key").write_text((program.folder / "paceline.key").read_text())
    program.ok("import", "moved.ndjson", "--store", "sqlite:///other.db")
    with (
        closing(SqliteStore(str(program.folder / "other.db"))) as moved,
        closing(SqliteStore(str(program.folder / "paceline.db"))) as first,
    ):
        there, here = moved.monitor("alice", "home"), first.monitor("alice", "home")
    assert there is not None
    assert here is not None
    assert there.spec == here.spec
    assert _files_with_the_canary(program) == []


def test_upgrade_seals_plain_secrets_and_leaves_no_trace_in_the_files(program: Program) -> None:
    program.ok("user", "add", "alice")
    spec = parse_stored_spec(json.dumps({"check": check_of("http://127.0.0.1:9/"), "every": "1h"}))
    with closing(SqliteStore(str(program.folder / "paceline.db"))) as store:
        store.put_monitors([PutMonitor("alice", "home", spec)], monitors_max=9, now_ms=1)
    assert _files_with_the_canary(program) != []
    program.ok("migrate")
    assert _files_with_the_canary(program) == []
    assert program.json("monitor", "show", "home")["check"]["headers"] == {"X-Secret": "***"}


def _files_with_the_canary(program: Program) -> list[str]:
    return [file.name for file in program.folder.iterdir() if file.is_file() and CANARY.encode() in file.read_bytes()]
