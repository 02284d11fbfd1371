"""Model batch providers on one HTTP server: /NAME/… is the provider NAME, and behaves as its script says.

    GET /NAME/calls/KEY    whether a call with this Idempotency-Key has had its effect: 200 or 404
    anything else          a call: it is written down, has its effect, and is answered

Every call and every effect is written down, so that a test can tell what was doubled, lost or out of turn.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import NamedTuple
from urllib.parse import unquote

import msgspec

from paceline.simulators.http import ModelAnswer, ModelHttpServer, ModelRequest

ARRIVALS_MAX = 1_000_000
LOOK_UP = "calls"


class Script(msgspec.Struct, frozen=True):
    """The behaviour of a provider. Every ``…_every`` counts its calls from one; 0 is never."""

    latency_ms: int = 0
    status: int = 200
    """Status of calls to which none of the fields below applies."""
    body: bytes = b'{"ok": true}'
    unavailable_every: int = 0
    """Every n-th call is answered with 503 and has no effect."""
    busy_every: int = 0
    """Every n-th call is answered with 429 and ``retry_after``, and has no effect."""
    retry_after: str | None = None
    """Value of the header Retry-After."""
    lost_every: int = 0
    """Every n-th call has its effect, and then the connection is closed without an answer."""
    hang_every: int = 0
    """Every n-th call has its effect, and its answer comes too late."""
    flap_ms: int = 0
    """The provider answers normally for this long, then 503 for this long, in turns."""
    calls_per_s_max: int = 0
    """Calls beyond this many in any second are answered with 429 and ``Retry-After: 1``."""
    honours_keys: bool = True
    """True: a repeated call with an Idempotency-Key is answered as before and has no second effect."""


class Arrival(NamedTuple):
    """One call as it came in. ``others``: calls of the same provider that were being answered at that moment."""

    at_s: float
    at_ms: int
    provider: str
    method: str
    target: str
    key: str
    headers: dict[str, str]
    body: bytes
    status: int | None
    """None if the call was not answered."""
    others: int


class _Provider:
    def __init__(self) -> None:
        self.script = Script()
        self.calls = 0
        self.recent_s: list[float] = []
        self.busy_until_s: list[float] = []
        self.effects: Counter[str] = Counter()


class ModelProviders:
    """Fills the ``HttpModel`` of the model HTTP server. Any thread may read and script it."""

    HANG_MS = 600_000

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._providers: dict[str, _Provider] = {}
        self._arrivals: list[Arrival] = []
        self._began_s = time.monotonic()

    def behave(self, name: str, script: Script) -> None:
        """Let the provider behave by this script from now on."""
        with self._lock:
            self._providers.setdefault(name, _Provider()).script = script

    def arrivals(self, name: str | None = None) -> list[Arrival]:
        """Return the calls in the order in which they came; those of one provider if a name is given."""
        with self._lock:
            return [one for one in self._arrivals if name in (None, one.provider)]

    def effects(self, name: str) -> Counter[str]:
        """Return how often each Idempotency-Key had its effect; calls without a key count under the empty one."""
        with self._lock:
            return Counter(self._providers.setdefault(name, _Provider()).effects)

    def answer(self, request: ModelRequest) -> ModelAnswer:
        name, _, rest = request.path.removeprefix("/").partition("/")
        with self._lock:
            provider = self._providers.setdefault(name, _Provider())
            word, _, key = rest.partition("/")
            if word == LOOK_UP and request.method == "GET":
                return ModelAnswer(200 if provider.effects[unquote(key)] else 404)
            return self._call(name, provider, request)

    def _call(self, name: str, provider: _Provider, request: ModelRequest) -> ModelAnswer:
        now_s = time.monotonic()
        key = next((value for field, value in request.headers.items() if field.lower() == "idempotency-key"), "")
        provider.calls += 1
        answer, takes_effect = self._decide(provider, now_s)
        if takes_effect and not (provider.script.honours_keys and key and provider.effects[key]):
            provider.effects[key] += 1
        # A tolerance of 1 ms: the answer may be on its way while this clock is read.
        provider.busy_until_s = [until_s for until_s in provider.busy_until_s if until_s > now_s + 0.001]
        assert len(self._arrivals) < ARRIVALS_MAX
        self._arrivals.append(
            Arrival(
                at_s=now_s,
                at_ms=time.time_ns() // 1_000_000,
                provider=name,
                method=request.method,
                target=request.target,
                key=key,
                headers=request.headers,
                body=request.body,
                status=None if answer.cut or answer.delay_ms >= self.HANG_MS else answer.status,
                others=len(provider.busy_until_s),
            )
        )
        provider.busy_until_s.append(now_s + (0 if answer.cut else answer.delay_ms / 1_000))
        return answer

    def _decide(self, provider: _Provider, now_s: float) -> tuple[ModelAnswer, bool]:
        """Return the answer, and whether the call has its effect."""
        script, count = provider.script, provider.calls
        well = ModelAnswer(script.status, script.body, (("Content-Type", "application/json"),), script.latency_ms)
        provider.recent_s = [at_s for at_s in provider.recent_s if at_s > now_s - 1]
        provider.recent_s.append(now_s)
        if script.calls_per_s_max and len(provider.recent_s) > script.calls_per_s_max:
            return _busy("1"), False
        if _is_turn(count, script.busy_every):
            return _busy(script.retry_after), False
        flapping = script.flap_ms and int((now_s - self._began_s) * 1_000) // script.flap_ms % 2
        if flapping or _is_turn(count, script.unavailable_every):
            return ModelAnswer(503, b"unavailable\n", _retry_after(script.retry_after), script.latency_ms), False
        if _is_turn(count, script.hang_every):
            return well._replace(delay_ms=self.HANG_MS), True
        return well._replace(cut="all" if _is_turn(count, script.lost_every) else ""), 200 <= script.status < 300


def serve_providers() -> tuple[ModelHttpServer, ModelProviders]:
    """Return a server to be started (``with``) and its model; the base_url of a provider is ``base_url/NAME``."""
    model = ModelProviders()
    return ModelHttpServer(model=model), model


def _is_turn(count: int, every: int) -> bool:
    return every > 0 and count % every == 0


def _busy(retry_after: str | None) -> ModelAnswer:
    return ModelAnswer(429, b"slow down\n", _retry_after(retry_after))


def _retry_after(value: str | None) -> tuple[tuple[str, str], ...]:
    return () if value is None else (("Retry-After", value),)
