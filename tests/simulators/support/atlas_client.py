"""A plain HTTP client of the simulator: it sees statuses, headers and bytes, and hides nothing."""

from __future__ import annotations

import http.client
import json
from typing import Any, NamedTuple
from urllib.parse import urlsplit

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
DAY_MS = 86_400_000
START_MS = 1_780_000_000_000
LOST = (http.client.RemoteDisconnected, http.client.IncompleteRead, ConnectionResetError)


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    @property
    def ids(self) -> list[int]:
        assert self.status == 201, self
        ids: list[int] = self.document["measurements"]
        return ids

    @property
    def details(self) -> list[str]:
        """What RIPE says is wrong."""
        error = self.document["error"]
        return [one["detail"] for one in error.get("errors", [])] or [error["detail"]]

    @property
    def pointers(self) -> set[str]:
        return {next(iter(one["source"].values())) for one in self.document["error"]["errors"]}


class Client:
    """One key, a new connection for each request."""

    def __init__(self, base_url: str, key: str = "") -> None:
        self._address = urlsplit(base_url)
        self.key = key

    def ask(self, method: str, path: str, body: Any = None, *, raw: bytes | None = None) -> Reply:
        connection = http.client.HTTPConnection(self._address.hostname or "", self._address.port, timeout=20)
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Key {self.key}"
        try:
            content = raw if raw is not None else None if body is None else json.dumps(body).encode()
            target = path if path.startswith("/simulator") else f"/api/v2{path}"
            connection.request(method, target, body=content, headers=headers)
            reply = connection.getresponse()
            return Reply(reply.status, dict(reply.getheaders()), reply.read())
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        reply = self.ask("GET", path)
        assert reply.status == 200, reply
        return reply.document

    def create(self, *definitions: dict[str, Any], requested: int = 10, **top: Any) -> Reply:
        return self.ask("POST", "/measurements/", order(*definitions, requested=requested, **top))

    def status(self, measurement_id: int) -> int:
        status: int = self.get(f"/measurements/{measurement_id}/")["status"]["id"]
        return status


def ping(**changes: Any) -> dict[str, Any]:
    return {"type": "ping", "af": 4, "target": "192.0.2.1", "description": "one ping"} | changes


def order(*definitions: dict[str, Any], requested: int = 10, **top: Any) -> dict[str, Any]:
    probes = [{"type": "area", "value": "WW", "requested": requested}]
    return {"definitions": list(definitions) or [ping()], "probes": probes, "is_oneoff": True} | top


def definition_of(type_: str, **changes: Any) -> dict[str, Any]:
    """The least that each type needs."""
    own: dict[str, dict[str, Any]] = {
        "ping": {},
        "traceroute": {"protocol": "ICMP"},
        "dns": {"query_class": "IN", "query_type": "AAAA", "query_argument": "example.org"},
        "sslcert": {},
        "ntp": {},
        "http": {},
    }
    return {"type": type_, "af": 4, "target": "www.example.org", "description": type_} | own[type_] | changes
