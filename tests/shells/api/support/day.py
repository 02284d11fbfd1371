"""A day of a batch for the scenes of the API: planned ahead, and ended by hand where results are wanted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from paceline.core.batches.calls import CallSettlement
from paceline.steps.batches.providers import set_provider_paused
from tests.shells.api.conftest import Client, World

PROVIDER: dict[str, Any] = {"base_url": "https://shop.example.org/api", "max_in_flight": 1_000}
TOMORROW = str((datetime.now(UTC) + timedelta(days=2)).date())
"""Far enough away that nothing of it is due, nor becomes due at midnight."""
LEASE_MS = 60_000


def put(client: Client, count: int, *, first: int = 0) -> None:
    items = [{"id": f"r{i}", "provider": "ab"[i % 2], "endpoint": f"/{i}"} for i in range(first, first + count)]
    assert client("PUT", "/v1/batches/daily/records", {"items": items}).json["created"] == count


def plan(client: Client, date: str = TOMORROW, **query: str) -> Any:
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    return client("POST", f"/v1/batches/daily/plan?{asked}", {"date": date}).json


def end_all(
    world: World,
    state: Literal["done", "failed", "unknown"],
    *,
    provider: str,
    reason: str,
    payload: str | None = None,
) -> int:
    """Every waiting run of the provider ends so, each when it is due."""
    store = world.system.store
    others = [one for one in store.providers(after="", limit=100) if one.id != provider]
    for other in others:
        world_pause(world, other.id, paused=True)
    ended = 0
    now_ms, ended_ms = 0, world.system.clock.now_ms()
    while (next_ms := store.next_call_ms()) is not None:
        now_ms = max(now_ms + 1, next_ms)
        claimed = store.claim_calls(now_ms=now_ms, runs_max=1_000, lease_ms=LEASE_MS)
        settlements = [
            CallSettlement(
                handle=call.handle,
                attempt=call.attempt,
                state=state,
                started_ms=ended_ms - 5,
                ended_ms=ended_ms,
                reason=reason,
                latency_ms=5.0,
                code=200 if state == "done" else 400,
                payload=payload,
            )
            for call in claimed
        ]
        assert all(store.settle_calls(settlements))
        ended += len(settlements)
    for other in others:
        world_pause(world, other.id, paused=False)
    return ended


def world_pause(world: World, provider: str, *, paused: bool) -> None:
    set_provider_paused(world.system.store, provider, paused=paused, now_ms=world.system.clock.now_ms())


def names(runs: list[dict[str, Any]]) -> list[str]:
    return sorted(run["run"] for run in runs)
