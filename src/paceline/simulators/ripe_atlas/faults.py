"""Faults to inject: which requests they strike, how often, and with what chance."""

from __future__ import annotations

import random
import re
import threading
from typing import Any, Literal, get_args

import msgspec

from paceline.simulators.ripe_atlas.accounts import UNKNOWN_KEY
from paceline.simulators.ripe_atlas.messages import HTML, JSON, NO_SUCH_KEY, AtlasAnswer, AtlasRequest, ErrorAnswer

Kind = Literal[
    "rate_limit",
    "error_before",
    "error_after",
    "drop_before",
    "drop_after",
    "half_reply",
    "delay",
    "maintenance",
    "no_ids",
    "wrong_json",
    "refuse_key",
]
KINDS: tuple[str, ...] = get_args(Kind)
BEFORE = ("rate_limit", "error_before", "drop_before", "maintenance", "refuse_key")
FAULTS_MAX = 1_000
_STATUSES = {"rate_limit": 429, "error_before": 500, "error_after": 500, "maintenance": 503, "refuse_key": 401}
_PAGE = (
    b"<!DOCTYPE html>\n<html><head><title>RIPE Atlas</title></head><body><h1>Down for maintenance</h1></body></html>\n"
)


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule. It strikes at most ``times`` (None: no limit), after ``skip`` matching requests, each with ``chance``.

    ``method`` and ``path`` (a regular expression, searched) choose the requests; ``key`` limits them to that key.
    """

    kind: Kind
    method: str = ""
    path: str = ""
    key: str = ""
    times: int | None = 1
    skip: int = 0
    chance: float = 1.0
    status: int | None = None
    retry_after_s: int | None = None
    delay_ms: int = 0

    def fits(self, request: AtlasRequest) -> bool:
        if self.method and self.method != request.method:
            return False
        if self.key and self.key not in (request.query.get("key"), request.headers.get("authorization", "")[4:]):
            return False
        return re.search(self.path, request.path) is not None


class Faults:
    """The list of rules.

    The first one that strikes is applied; chance is drawn from the seed for each matching request.
    """

    def __init__(self, seed: int) -> None:
        self._lock = threading.Lock()
        self._chance = random.Random(f"faults/{seed}")  # noqa: S311 - a model, not a secret
        self._rules: list[_Rule] = []

    def add(self, fault: Fault) -> None:
        re.compile(fault.path)
        if fault.kind == "refuse_key":
            if not fault.key:
                raise ValueError("refuse_key needs the key.")
            fault = msgspec.structs.replace(fault, times=None)  # a key that is gone stays gone
        with self._lock:
            if len(self._rules) >= FAULTS_MAX:
                raise ValueError(f"There are {FAULTS_MAX} faults already.")
            self._rules.append(_Rule(fault))

    def clear(self) -> None:
        with self._lock:
            self._rules.clear()

    def striking(self, request: AtlasRequest) -> Fault | None:
        with self._lock:
            for rule in self._rules:
                if rule.strikes(request, self._chance):
                    return rule.fault
        return None

    def document(self) -> list[dict[str, Any]]:
        with self._lock:
            return [msgspec.to_builtins(rule.fault) | {"struck": rule.struck, "met": rule.met} for rule in self._rules]


class _Rule:
    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.met = 0
        self.struck = 0

    def strikes(self, request: AtlasRequest, chance: random.Random) -> bool:
        fault = self.fault
        if (fault.times is not None and self.struck >= fault.times) or not fault.fits(request):
            return False
        self.met += 1
        if self.met <= fault.skip or (fault.chance < 1 and chance.random() >= fault.chance):
            return False
        self.struck += 1
        return True


def answer_before(fault: Fault) -> AtlasAnswer:
    """Return the answer of a fault that prevents any effect of the request."""
    status = fault.status or _STATUSES.get(fault.kind, 500)
    match fault.kind:
        case "drop_before":
            return AtlasAnswer(status, cut="all", delay_ms=fault.delay_ms)
        case "maintenance":
            return AtlasAnswer(status, _PAGE, HTML, fault.delay_ms)
        case "rate_limit":
            answer = ErrorAnswer(status, "Request was throttled. Please try again later.").answer()
        case "refuse_key":
            answer = ErrorAnswer(status, UNKNOWN_KEY, code=NO_SUCH_KEY).answer()
        case _:
            answer = ErrorAnswer(status, "There was an internal error.").answer()
    retry = () if fault.retry_after_s is None else (("Retry-After", str(fault.retry_after_s)),)
    return answer._replace(headers=answer.headers + retry, delay_ms=fault.delay_ms)


def answer_after(fault: Fault, answer: AtlasAnswer) -> AtlasAnswer:
    """Return the answer with the fault applied, after the request took effect."""
    changed = answer._replace(delay_ms=fault.delay_ms)
    match fault.kind:
        case "error_after":
            error = ErrorAnswer(fault.status or 500, "There was an internal error.").answer()
            return error._replace(delay_ms=fault.delay_ms)
        case "drop_after":
            return changed._replace(cut="all")
        case "half_reply":
            return changed._replace(cut="half")
        case "no_ids" if answer.status < 300:
            return changed._replace(body=b"{}", headers=JSON)
        case "wrong_json":
            return changed._replace(body=answer.body[: len(answer.body) // 2] or b"{", headers=JSON)
        case _:
            return changed
