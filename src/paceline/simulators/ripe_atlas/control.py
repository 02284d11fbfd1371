"""``/simulator/…``: drive the clock, script faults, add accounts and keys, and read the audit."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from paceline.core.durations import DURATION_RULE, parse_duration_ms
from paceline.simulators.ripe_atlas.accounts import PERMISSIONS, Limits, SimulatedAccount, SimulatedGrant
from paceline.simulators.ripe_atlas.audit import audit
from paceline.simulators.ripe_atlas.faults import Fault, Faults
from paceline.simulators.ripe_atlas.messages import AtlasAnswer, AtlasRequest, ErrorAnswer, json_answer
from paceline.simulators.ripe_atlas.world import Fate, World

PREFIX = "/simulator"


class NewAccount(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    name: str
    limits: Limits = Limits()
    balance: int = 10_000_000
    http_allowed: bool = False
    forbidden_types: list[str] = []
    pays_for: list[str] = []


class NewKey(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    account: str
    label: str = ""
    grants: list[str] | None = None
    secret: str = ""


class SimulatedKeyChange(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    enabled: bool | None = None
    grants: list[str] | None = None


class ClockChange(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    advance: str | None = None
    speed: float | None = None


class StatusChange(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    id: int
    status: int


class Control:
    def __init__(self, world: World, faults: Faults, counts: Callable[[], dict[str, int]]) -> None:
        self._world = world
        self._faults = faults
        self._counts = counts
        self._routes: dict[tuple[str, str], Callable[[AtlasRequest], Any]] = {
            ("GET", "model"): lambda _: msgspec.to_builtins(world.model),
            ("GET", "clock"): lambda _: self._clock(),
            ("POST", "clock"): self._change_clock,
            ("GET", "faults"): lambda _: {"faults": faults.document()},
            ("POST", "faults"): self._add_faults,
            ("DELETE", "faults"): lambda _: self._clear_faults(),
            ("GET", "audit"): self._audit,
            ("POST", "accounts"): self._add_account,
            ("GET", "accounts"): lambda _: self._accounts(),
            ("POST", "keys"): self._add_key,
            ("POST", "targets"): self._set_targets,
            ("POST", "fates"): self._add_fate,
            ("POST", "statuses"): self._force_status,
        }

    def answer(self, request: AtlasRequest) -> AtlasAnswer:
        name = request.path.removeprefix(PREFIX).strip("/")
        try:
            if request.method == "PATCH" and name.startswith("keys/"):
                return json_answer(self._change_key(name.removeprefix("keys/"), request))
            route = self._routes.get((request.method, name))
            if route is None:
                known = sorted({f"{method} {PREFIX}/{path}" for method, path in self._routes})
                return json_answer({"error": "There is no such path.", "known": known}, 404)
            return json_answer(route(request))
        except ErrorAnswer as refused:
            return refused.answer()
        except (ValueError, re.error, KeyError, msgspec.ValidationError, msgspec.DecodeError) as error:
            return json_answer({"error": str(error)}, 400)

    def _clock(self) -> dict[str, Any]:
        clock = self._world.clock
        now_ms = clock.now_ms()
        stamp = datetime.fromtimestamp(now_ms / 1_000, UTC).isoformat(timespec="milliseconds")
        return {"now": stamp.replace("+00:00", "Z"), "now_ms": now_ms, "speed": clock.speed}

    def _change_clock(self, request: AtlasRequest) -> dict[str, Any]:
        change = msgspec.json.decode(request.body, type=ClockChange)
        advance_ms = parse_duration_ms(change.advance) if change.advance is not None else 0
        if advance_ms is None:
            raise ValueError(f"advance is {DURATION_RULE}.")
        if change.speed is not None:
            self._world.clock.set_speed(change.speed)
        self._world.clock.advance(advance_ms)
        return self._clock()

    def _add_faults(self, request: AtlasRequest) -> dict[str, Any]:
        """Add one fault or a list of faults."""
        document = msgspec.json.decode(request.body)
        for one in document if isinstance(document, list) else [document]:
            self._faults.add(msgspec.convert(one, Fault))
        return {"faults": self._faults.document()}

    def _clear_faults(self) -> dict[str, Any]:
        self._faults.clear()
        return {"faults": []}

    def _audit(self, request: AtlasRequest) -> dict[str, Any]:
        return audit(self._world, marker=request.query.get("marker", "")) | {"requests": self._counts()}

    def _add_account(self, request: AtlasRequest) -> dict[str, Any]:
        new = msgspec.json.decode(request.body, type=NewAccount)
        with self._world.lock:
            account = SimulatedAccount(
                new.name, new.limits, new.balance, new.http_allowed, set(new.forbidden_types), set(new.pays_for)
            )
            self._world.registry.add_account(account)
        return self._accounts()

    def _accounts(self) -> dict[str, Any]:
        """Return the accounts with their keys. Callers who may drive the simulator may know them."""
        with self._world.lock:
            registry = self._world.registry
            return {
                "accounts": [
                    {
                        "name": one.name,
                        "email": one.email,
                        "limits": msgspec.to_builtins(one.limits),
                        "balance": one.balance,
                        "keys": [key.uuid for key in registry.keys.values() if key.account == one.name],
                    }
                    for one in registry.accounts.values()
                ]
            }

    def _add_key(self, request: AtlasRequest) -> dict[str, Any]:
        new = msgspec.json.decode(request.body, type=NewKey)
        with self._world.lock:
            if new.account not in self._world.registry.accounts:
                raise ValueError(f"There is no account {new.account}.")
            grants = {} if new.grants is None else {"grants": _grants(new.grants)}
            now_ms = self._world.clock.now_ms()
            key = self._world.registry.add_key(new.account, now_ms=now_ms, label=new.label, secret=new.secret, **grants)
        return {"key": key.uuid, "account": key.account, "label": key.label}

    def _change_key(self, secret: str, request: AtlasRequest) -> dict[str, Any]:
        change = msgspec.json.decode(request.body, type=SimulatedKeyChange)
        with self._world.lock:
            key = self._world.registry.keys.get(secret)
            if key is None:
                raise ValueError("There is no such key.")
            if change.enabled is not None:
                key.enabled = change.enabled
            if change.grants is not None:
                key.grants = _grants(change.grants)
        return {"key": key.uuid, "enabled": key.enabled, "grants": [one.permission for one in key.grants]}

    def _set_targets(self, request: AtlasRequest) -> dict[str, Any]:
        """Set how many measurements of other people run against each target."""
        counts = msgspec.json.decode(request.body, type=dict[str, int])
        with self._world.lock:
            self._world.others.update({target: count - self._world.others[target] for target, count in counts.items()})
            return dict(self._world.others)

    def _add_fate(self, request: AtlasRequest) -> dict[str, Any]:
        fate = msgspec.json.decode(request.body, type=Fate)
        with self._world.lock:
            self._world.add_fate(fate)
            return {"fates": msgspec.to_builtins(self._world.fates)}

    def _force_status(self, request: AtlasRequest) -> dict[str, Any]:
        change = msgspec.json.decode(request.body, type=StatusChange)
        with self._world.lock:
            measurement = self._world.measurements.get(change.id)
            if measurement is None:
                raise ValueError(f"There is no measurement {change.id}.")
            self._world.force(measurement, change.status, self._world.now_ms())
        return {"id": change.id, "status": change.status}


def _grants(names: list[str]) -> tuple[SimulatedGrant, ...]:
    unknown = [name for name in names if name not in PERMISSIONS]
    if unknown:
        raise ValueError(f"There is no permission {unknown[0]}; there are {', '.join(PERMISSIONS)}.")
    return tuple(SimulatedGrant(name) for name in names)
