"""What an open page asks for in 20 seconds, counted without a browser: the requests that its script makes."""

from __future__ import annotations

from typing import Any

from tests.shells.api.conftest import HTTP, OUTGOING, Client, World

LOOKS = 7
"""Every three seconds, for 20 of them."""
BYTES_MAX = 100_000
PAGES = ("/", "/ui/monitors", "/ui/providers", "/ui/providers?id=p0000", "/ui/batches", "/ui/jobs", "/ui/accounts")


def polled_bytes(client: Client, path: str, *, changes: bool) -> int:
    """Bytes of the answers, headers included. ``changes``: the page is another one at each look."""
    total, tag = 0, ""
    for _ in range(LOOKS):
        seen = {"If-None-Match": tag} if tag and not changes else {}
        answer = client("GET", path, headers={"X-Paceline-Page": "1", "Accept-Encoding": "gzip", **seen})
        assert answer.status in (200, 304), (path, answer.body)
        tag = answer.headers.get("etag", tag)
        total += len(answer.body) + sum(len(name) + len(value) + 4 for name, value in answer.headers.items())
    return total


def fill(root: Client, *, monitors: int, providers: int) -> None:
    """Makes this many monitors and providers; the first sixty monitors are for an outside checker."""
    for start in range(0, monitors, 500):
        items: list[dict[str, Any]] = [
            (OUTGOING | {"initial_delay": "0s"} if number < 60 else HTTP | {"paused": True})
            | {"id": f"m{number:05d}", "tags": ["web", "eu"]}
            for number in range(start, min(start + 500, monitors))
        ]
        assert root("PUT", "/v1/users/me/monitors", {"items": items}).status == 200
    for number in range(providers):
        assert root("PUT", f"/v1/providers/p{number:04d}", {"base_url": "https://example.org/"}).status == 201


def fail_checks(world: World, root: Client, *, count: int) -> None:
    """So many checks have been made, and each failed with a reason of its own: the longest rows that there are."""
    ended = 0
    while ended < count:
        world.fire()
        claimed = root("POST", "/v1/outgoing/claim", {"max": 100}).json["items"]
        outcomes = [
            {
                "run": one["run"],
                "lease": one["lease"],
                "status": "failed",
                "detail": {"reason": f"status 503, expected 2xx from host {ended + place}", "latency_ms": 40 + place},
            }
            for place, one in enumerate(claimed)
        ]
        if outcomes:
            assert root("POST", "/v1/outgoing/outcomes", {"items": outcomes}).status == 200
        ended += len(outcomes)
