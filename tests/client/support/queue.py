"""The outgoing queue by a script: what is claimed, extended and reported, and what goes wrong."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from tests.client.support.scripted import Act, HangUp, Request, Say, ScriptedServer, problem

NOW = "2026-11-15T00:00:00Z"
STALE = problem(409, "stale_lease", "the lease is over")


def check_item(number: int, **check: Any) -> dict[str, Any]:
    return {
        "run": f"ann/m{number}#1@0",
        "lease": f"lease-{number}",
        "check": {"kind": "outgoing", "number": number} | check,
        "due": NOW,
        "attempt": 1,
        "monitor": f"m{number}",
        "user": "ann",
        "lease_until": NOW,
    }


def record_item(number: int) -> dict[str, Any]:
    record = {"id": f"r{number}", "provider": "shop", "endpoint": f"/orders/{number}", "body": {"number": number}}
    return {
        "run": f"nightly/r{number}@2026-11-15",
        "lease": f"lease-{number}",
        "record": record,
        "due": NOW,
        "attempt": 2,
        "batch": "nightly",
        "date": "2026-11-15",
        "lease_until": NOW,
    }


class QueueScript:
    """Hands out items in order. ``on_claim``, ``on_report`` and ``on_extend`` may answer in its place."""

    def __init__(self, items: list[dict[str, Any]]) -> None:
        self.waiting = deque(items)
        self.claims: list[dict[str, Any]] = []
        self.extended: list[str] = []
        self.reported: dict[str, dict[str, Any]] = {}
        self.refused: list[dict[str, Any]] = []
        self.on_claim: Callable[[int], Act | None] = lambda _: None
        self.on_report: Callable[[int, dict[str, Any]], Act | dict[str, Any] | None] = lambda *_: None
        self.on_extend: Callable[[str], Act | None] = lambda _: None
        self.reports_max = 1_000
        """More in one request are too large a body."""
        self.too_large = 0
        self._lock = threading.Lock()
        self._reports = 0

    def __call__(self, request: Request) -> Act:
        with self._lock:
            if request.path == "/v1/outgoing/claim":
                act = self._claim(request.json)
            elif request.path == "/v1/outgoing/outcomes":
                act = self._report(request.json["items"])
            else:
                run = unquote(request.path.split("/")[3])
                self.extended.append(run)
                act = self.on_extend(run) or Say(200, {"lease_until": NOW})
        if act == Say(200, {"items": []}):
            time.sleep(0.05)
        return act

    def _claim(self, body: dict[str, Any]) -> Act:
        self.claims.append(body)
        if (act := self.on_claim(len(self.claims))) is not None:
            return act
        count = min(body["max"], len(self.waiting))
        return Say(200, {"items": [self.waiting.popleft() for _ in range(count)]})

    def _report(self, items: list[dict[str, Any]]) -> Act:
        if len(items) > self.reports_max:
            self.too_large += 1
            return problem(413, "body_too_large")
        results = []
        for item in items:
            self._reports += 1
            came = self.on_report(self._reports, item)
            if isinstance(came, Say | HangUp):
                return came
            if came is None:
                assert item["run"] not in self.reported, "reported twice"
                self.reported[item["run"]] = item
                came = {"run": item["run"], "disposition": "settled", "state": "ok"}
            else:
                self.refused.append(item)
            results.append(came)
        return Say(200, {"items": results})


def refusal(run: str, disposition: str, code: str, detail: str) -> dict[str, Any]:
    error = {"type": "", "title": "", "status": 409, "code": code, "detail": detail, "errors": []}
    return {"run": run, "disposition": disposition, "error": error}


@contextmanager
def serving_queue(*items: dict[str, Any]) -> Iterator[tuple[QueueScript, str]]:
    script = QueueScript(list(items))
    with ScriptedServer(script) as server:
        yield script, server.url
