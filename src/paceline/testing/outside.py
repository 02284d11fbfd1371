"""The services outside, scripted by a test: one function answers every check and call, on a virtual clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import count
from typing import Generic, Literal, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from paceline.core.batches.calls import RETRY_AFTER_MS_MAX, Call, CallResult
from paceline.core.durations import parse_duration_ms
from paceline.core.http.answers import Body, HttpAnswer, http_mismatch
from paceline.core.instants import to_datetime
from paceline.core.monitors.checks import DnsCheck, HttpCheck, PolledCheck, TcpCheck, TlsCheck
from paceline.core.monitors.definition import duration_ms
from paceline.core.monitors.outcome import Done
from paceline.core.monitors.values import CheckOrder, Finished
from paceline.ports import Clock

T = TypeVar("T")


class Request(msgspec.Struct, frozen=True):
    """A check, a batch's call or a webhook as it reaches the outside."""

    kind: Literal["http", "tcp", "dns", "tls", "call"]
    """The kind of a check; ``call`` for a batch's call and for a job's webhook."""
    target: str
    """The host that is asked."""
    at: datetime
    run: str
    attempt: int
    method: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    body: str | None = None


class Answer(msgspec.Struct, frozen=True):
    """The answer of the outside. It takes ``after``; if that is longer than the time-out, the answer is a time-out."""

    status: int = 200
    body: str = ""
    headers: dict[str, str] = {}
    after: str = "20ms"
    days_left: int | None = 90
    """Days that the certificate is still valid, for checks that ask for it; None if there is no certificate."""
    fails: str = ""
    """Reason why there is no answer at all, for example ``connection refused``. The request has not arrived then."""

    @property
    def after_ms(self) -> int:
        took_ms = parse_duration_ms(self.after)
        if took_ms is None:
            raise ValueError(f"Answer.after: {self.after!r} is not a duration such as 20ms or 5s")
        return took_ms


Answers = Callable[[Request], Answer]


class _Flight(NamedTuple, Generic[T]):
    ends_ms: int
    number: int
    result: T


class Flights(Generic[T]):
    """Results in flight, ordered by the moment at which each arrives."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._flights: list[_Flight[T]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._flights)

    @property
    def next_ms(self) -> int | None:
        return self._flights[0].ends_ms if self._flights else None

    def add(self, result: T, *, ends_ms: int) -> None:
        heapq.heappush(self._flights, _Flight(ends_ms, next(self._numbers), result))

    def arrived(self) -> list[T]:
        found: list[T] = []
        while self._flights and self._flights[0].ends_ms <= self._clock.now_ms():
            found.append(heapq.heappop(self._flights).result)
        return found


class Outside:
    """Asks the test's function for each answer and keeps the requests."""

    def __init__(self, clock: Clock, answers: Answers) -> None:
        self.answers = answers
        self.requests: list[Request] = []
        self.checks: Flights[Finished] = Flights(clock)
        self.calls: Flights[CallResult] = Flights(clock)
        self.webhooks: Flights[CallResult] = Flights(clock)
        self._clock = clock

    def start_checks(self, orders: Sequence[CheckOrder]) -> None:
        for order in orders:
            now_ms, check = self._clock.now_ms(), order.check
            answer = self._ask(_check_request(order, to_datetime(now_ms)))
            took_ms = min(answer.after_ms, duration_ms(check.timeout))
            ended_ms = now_ms + took_ms
            done = _judge(check, answer, took_ms)
            finished = Finished(order.handle, order.attempt, done, now_ms, ended_ms, order.attempts)
            self.checks.add(finished, ends_ms=ended_ms)

    def start_calls(self, calls: Sequence[Call], *, into: Flights[CallResult]) -> None:
        for call in calls:
            now_ms = self._clock.now_ms()
            answer = self._ask(_call_request(call, to_datetime(now_ms)))
            took_ms = min(answer.after_ms, call.timeout_ms)
            into.add(_call_result(call, answer, now_ms=now_ms, took_ms=took_ms), ends_ms=now_ms + took_ms)

    def _ask(self, request: Request) -> Answer:
        self.requests.append(request)
        return self.answers(request)


def _check_request(order: CheckOrder, at: datetime) -> Request:
    check = order.check
    match check:
        case HttpCheck():
            request = Request(
                "http",
                urlsplit(check.url).hostname or "",
                at,
                order.run_id,
                order.attempt,
                method=check.method,
                url=check.url,
                headers=check.headers,
                body=check.body,
            )
        case TcpCheck():
            request = Request("tcp", check.host, at, order.run_id, order.attempt)
        case TlsCheck():
            request = Request("tls", check.host, at, order.run_id, order.attempt)
        case DnsCheck():
            request = Request("dns", check.name, at, order.run_id, order.attempt)
    return request


def _call_request(call: Call, at: datetime) -> Request:
    host = urlsplit(call.url).hostname or ""
    return Request("call", host, at, call.run_id, call.attempt, call.method, call.url, call.headers, call.body)


def _judge(check: PolledCheck, answer: Answer, took_ms: int) -> Done:
    """Judge HTTP by the same rule as in production. A check of another kind is good if there was an answer."""
    latency_ms = float(took_ms)
    if answer.fails:
        return Done(ok=False, reason=answer.fails, latency_ms=latency_ms)
    if answer.after_ms > duration_ms(check.timeout):
        return Done(ok=False, reason=f"no answer within {check.timeout}", latency_ms=latency_ms)
    if not isinstance(check, HttpCheck):
        return Done(ok=True, latency_ms=latency_ms)
    headers = {name.lower(): value for name, value in answer.headers.items()}
    body = answer.body
    answered = HttpAnswer(
        answer.status,
        lambda: headers,
        lambda text: text in body,
        body=lambda: Body(body.encode()),
        latency_ms=latency_ms,
        days_left=answer.days_left,
    )
    reason = http_mismatch(check, answered)
    return Done(ok=not reason, reason=reason, latency_ms=latency_ms, code=answer.status)


def _call_result(call: Call, answer: Answer, *, now_ms: int, took_ms: int) -> CallResult:
    result = CallResult(call.handle, call.attempt, now_ms, now_ms + took_ms, latency_ms=float(took_ms))
    if answer.fails:
        return msgspec.structs.replace(result, fault="network", arrived=False, reason=answer.fails)
    if answer.after_ms > call.timeout_ms:
        return msgspec.structs.replace(result, fault="time_out", reason="no answer in time")
    retry_after = {name.lower(): value for name, value in answer.headers.items()}.get("retry-after", "")
    return msgspec.structs.replace(
        result,
        code=answer.status,
        payload=answer.body or None,
        reason="" if 200 <= answer.status < 300 else f"status {answer.status}",
        retry_after_ms=min(int(retry_after) * 1_000, RETRY_AFTER_MS_MAX) if retry_after.isdigit() else None,
    )
