"""The audit: every measurement, its cost for each account, and what was created twice."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from paceline.simulators.ripe_atlas.accounts import SimulatedAccount
from paceline.simulators.ripe_atlas.measurements import SimulatedMeasurement
from paceline.simulators.ripe_atlas.model import DAY_MS
from paceline.simulators.ripe_atlas.world import World


def audit(world: World, *, marker: str = "") -> dict[str, Any]:
    """Return the audit. ``marker``: a regular expression for descriptions and tags, instead of the model's."""
    pattern = re.compile(marker or world.model.marker)
    with world.lock:
        now_ms = world.now_ms()
        rows = [_row(one, _markers(one, pattern), now_ms) for one in world.measurements.values()]
        return {
            "now_ms": now_ms,
            "posts": world.posts,
            "measurements": rows,
            "accounts": {name: _account(one, world, now_ms) for name, one in world.registry.accounts.items()},
            "doubled": _doubled(rows),
        }


def _row(measurement: SimulatedMeasurement, markers: list[str], now_ms: int) -> dict[str, Any]:
    results = measurement.results_until(now_ms)
    return {
        "id": measurement.id,
        "post": measurement.post,
        "account": measurement.account,
        "payer": measurement.payer,
        "key": f"…{measurement.key[-4:]}",
        "markers": markers,
        "type": measurement.type,
        "target": measurement.target,
        "tags": list(measurement.tags),
        "is_oneoff": measurement.is_oneoff,
        "created_ms": measurement.created_ms,
        "status": measurement.status_at(now_ms).id,
        "results": results,
        "price": measurement.price,
        "charge": results * measurement.price,
        "charge_max": measurement.results_per_day * measurement.price if measurement.is_oneoff else None,
    }


def _markers(measurement: SimulatedMeasurement, pattern: re.Pattern[str]) -> list[str]:
    found = [pattern.search(text) for text in (measurement.description, *measurement.tags)]
    return sorted({match[1] if pattern.groups else match[0] for match in found if match})


def _account(account: SimulatedAccount, world: World, now_ms: int) -> dict[str, Any]:
    """Return the figures of an account.

    ``spent`` counts delivered results, charged or not; the peaks are RIPE's own counts when it accepted orders.
    """
    created = [one for one in world.measurements.values() if one.account == account.name]
    paid = [one for one in world.measurements.values() if one.payer == account.name]
    day = [(one, one.results_between(now_ms - DAY_MS, now_ms)) for one in created]
    return {
        "created": len(created),
        "running": len(world.running_of(account.name, now_ms)),
        "spent": sum(one.results_until(now_ms) * one.price for one in paid),
        "charged": world.books.spent[account.name],
        "balance": account.balance,
        "past_day_results": sum(results for _, results in day),
        "past_day_credits": sum(results * one.price for one, results in day),
        "peaks": dict(world.peaks.get(account.name, {})),
        "limits": msgspec.to_builtins(account.limits),
        "refusals": dict(world.refusals.get(account.name, {})),
    }


def _doubled(rows: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Return markers that came in more than one request; the definitions of one request may share a marker."""
    by_marker: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        for marker in row["markers"]:
            by_marker.setdefault(marker, []).append(row)
    return {
        marker: [row["id"] for row in those]
        for marker, those in by_marker.items()
        if len({row["post"] for row in those}) > 1
    }
