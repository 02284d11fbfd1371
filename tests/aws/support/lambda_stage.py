"""The functions of the deployment in this process: their environment, queues and streams, and what they ask of AWS."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from aws_lambda_powertools.utilities.typing import LambdaContext

from paceline.adapters.aws.client import tables
from paceline.shells.aws_lambda import (
    api,
    carry_out,
    items_stream,
    jobs,
    planner,
    runtime,
    schedulers_stream,
    sender,
    ticks,
)
from paceline.steps.access import add_user
from tests.aws.support.guard import watch
from tests.aws.support.mapping import Handler, QueueMapping, StreamMapping
from tests.aws.support.ministack import (
    Emulator,
    delete_tables,
    fresh_prefix,
    plain_client,
    shared_clients,
    shared_emulator,
)

CACHES = (
    runtime.engine,
    carry_out.loop_metrics,
    api._adapter,
    sender._checks,
    sender._calls,
    planner._machines,
    jobs._desk,
    jobs._atlas,
    jobs._dispatcher,
    jobs._follower,
    jobs._webhooks,
    jobs._alerts,
)
SECRET = "a secret of a test, long enough"
TIME_S = 660.0
"""The remaining time of the function with the longest time-out, in seconds."""


class Context(LambdaContext):
    """The context argument of a function."""

    def __init__(self, left_s: float = TIME_S) -> None:
        self._function_name = "test"
        self._memory_limit_in_mb = 512
        self._invoked_function_arn = "arn:aws:lambda:us-east-1:000000000000:function:test"
        self._aws_request_id = "00000000-0000-0000-0000-000000000000"
        self._left_s = left_s

    def get_remaining_time_in_millis(self) -> int:  # type: ignore[override]  # theirs is a model of it
        return int(self._left_s * 1_000)


def timed(handler: Callable[..., Any], left_s: float = TIME_S) -> Handler:
    """The function with so much time."""
    return lambda event, _context: handler(event, Context(left_s))


@dataclass
class Shifted:
    ahead_ms: int = 0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms


@dataclass
class Stage:
    """One deployment on the emulator. Requests of its functions to AWS are recorded in ``asked``."""

    aws: Emulator
    prefix: str
    token: str = ""
    asked: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    clock: Shifted = field(default_factory=Shifted)

    def at(self, shift_ms: int) -> None:
        """Sets the functions' clock ahead by this much."""
        self.clock.ahead_ms = shift_ms

    @property
    def now(self) -> runtime.FunctionEngine:
        return runtime.engine()

    @property
    def store(self) -> Any:
        return self.now.store

    def stream(self, table: str, handler: Callable[..., Any], **more: Any) -> StreamMapping:
        told = plain_client("dynamodb", self.aws.url).describe_table(TableName=f"{self.prefix}-{table}")["Table"]
        streams = plain_client("dynamodbstreams", self.aws.url)
        return StreamMapping(streams, told["LatestStreamArn"], timed(handler), **more)

    def queue(self, name: str, handler: Callable[..., Any], **more: Any) -> QueueMapping:
        sqs = plain_client("sqs", self.aws.url)
        return QueueMapping(sqs, self.url(name), timed(handler), **more)

    def url(self, name: str) -> str:
        return str(plain_client("sqs", self.aws.url).get_queue_url(QueueName=f"{self.prefix}-{name}")["QueueUrl"])

    def depth(self, name: str) -> int:
        names = [f"ApproximateNumberOfMessages{part}" for part in ("", "NotVisible", "Delayed")]
        sqs = plain_client("sqs", self.aws.url)
        told = sqs.get_queue_attributes(QueueUrl=self.url(name), AttributeNames=names)["Attributes"]
        return sum(int(count) for count in told.values())

    def send(self, name: str, *bodies: str, group: str | None = None) -> None:
        sqs = plain_client("sqs", self.aws.url)
        for body in bodies:
            fifo = {"MessageGroupId": group, "MessageDeduplicationId": f"{hash((group, body))}"} if group else {}
            sqs.send_message(QueueUrl=self.url(name), MessageBody=body, **fifo)

    def rest(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """A request as API Gateway hands it on."""
        answer = api.handler(http_event(method, path, body, token=self.token, headers=headers), Context())
        text = answer.get("body") or ""
        if answer.get("isBase64Encoded"):
            text = base64.b64decode(text).decode()
        kind = answer.get("headers", {}).get("content-type", "")
        return answer["statusCode"], json.loads(text) if "json" in kind and text else text

    def calls(self) -> set[tuple[str, str, str]]:
        """Returns (service, operation, table or queue) of all requests; queues and tables without the prefix."""
        found = set()
        for service, operation, params in self.asked:
            for name in _named(params):
                found.add((service, operation, name.removeprefix(f"{self.prefix}-")))
        return found


@dataclass
class Cycle:
    """The four mappings of the deployment, in this process."""

    items: StreamMapping
    schedulers: StreamMapping
    ticks: QueueMapping
    runs: QueueMapping

    @classmethod
    def of(cls, stage: Stage, **weather: Any) -> Cycle:
        return cls(
            stage.stream("items", items_stream.handler, **weather),
            stage.stream("schedulers", schedulers_stream.handler, **weather),
            stage.queue("ticks", ticks.handler, **weather),
            stage.queue("runs.fifo", sender.handler, **weather),
        )

    def turn(self) -> None:
        for mapping in (self.items, self.schedulers, self.ticks, self.runs):
            mapping.pump()

    def until(self, holds: Callable[[], object], *, within_s: float = 90.0) -> None:
        end_s = time.monotonic() + within_s
        while not holds():
            assert time.monotonic() < end_s, "the condition did not come true in time"
            self.turn()
            time.sleep(0.05)


class Target:
    """An outside service: answers with 200 by default and records its requests."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.takes_s = 0.0
        self.status = 200
        outer = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                size = int(self.headers.get("content-length", 0))
                self.rfile.read(size)
                outer.asked.append(self.path)
                time.sleep(outer.takes_s)
                self.send_response(outer.status)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            do_POST = do_GET  # noqa: N815  the name is the library's

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def http_event(
    method: str, path: str, body: Any = None, *, token: str = "", headers: dict[str, str] | None = None
) -> dict[str, Any]:
    path, _, query = path.partition("?")
    given = {"host": "api.example.org", "content-type": "application/json", "x-forwarded-proto": "https"}
    given |= {"authorization": f"Bearer {token}"} if token else {}
    text = body if isinstance(body, str) else json.dumps(body) if body is not None else ""
    return {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "headers": given | (headers or {}) | ({"content-length": str(len(text.encode()))} if text else {}),
        "requestContext": {"http": {"method": method, "path": path, "sourceIp": "192.0.2.7", "protocol": "HTTP/1.1"}},
        "body": base64.b64encode(text.encode()).decode() if text else None,
        "isBase64Encoded": bool(text),
    }


def _named(params: dict[str, Any]) -> set[str]:
    """The tables and indexes, queues or machines that a request is about."""
    if "QueueUrl" in params:
        return {params["QueueUrl"].rpartition("/")[2]}
    if "QueueName" in params:
        return {params["QueueName"]}
    if "TransactItems" in params:
        actions = [next(iter(one.items())) for one in params["TransactItems"]]
        return {f"{action['TableName']}:{kind}" for kind, action in actions}
    if "RequestItems" in params:
        return set(params["RequestItems"])
    if "TableName" in params:
        index = params.get("IndexName")
        return {f"{params['TableName']}/{index}" if index else params["TableName"]}
    assert "stateMachineArn" in params or "executionArn" in params
    return {"planner"}


@contextmanager
def lambda_stage(**settings: str) -> Iterator[Stage]:
    """Empty tables and queues, an admin, and the functions' environment in this process."""
    aws, prefix = shared_emulator(), fresh_prefix()
    report = tables.create(shared_clients(), prefix)
    assert not report.differences
    names = {
        "PACELINE_STORE": f"aws://?prefix={prefix}",
        "PACELINE_SECRET_KEY": SECRET,
        "PACELINE_OUTBOUND_ALLOW": "127.0.0.0/8",
        "POWERTOOLS_LOG_LEVEL": "WARNING",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**aws.environment, **names, **settings}.items():
            patch.setenv(name, value)
        _forget()
        stage = Stage(aws, prefix)
        object.__setattr__(stage.now.system, "clock", stage.clock)
        _listen(stage)
        _, made = add_user(
            stage.store,
            "boss",
            role="admin",
            daily_credits=1_000_000,
            token_bytes=bytes(32),
            secret_key=stage.now.system.secret_key,
            now_ms=stage.now.now_ms(),
        )
        stage.token = made.secret
        stage.asked.clear()
        try:
            yield stage
        finally:
            _close(stage)
            _forget()
            delete_tables(shared_clients(), prefix)


def _close(stage: Stage) -> None:
    """A function never ends in an orderly way; a test does."""
    for client in stage.store._clients:
        client.close()
    planner._machines().close()
    stage.store.close()
    if sender._checks.cache_info().currsize:
        sender._checks().edge.close()
    if sender._calls.cache_info().currsize:
        sender._calls().edge.close()
    if jobs._atlas.cache_info().currsize:
        jobs._atlas().close()
    if jobs._webhooks.cache_info().currsize:
        jobs._webhooks().work.edge.close()
    if jobs._alerts.cache_info().currsize:
        jobs._alerts().work.edge.close()
    if api._adapter.cache_info().currsize:
        asyncio.get_event_loop_policy().get_event_loop().close()
        asyncio.set_event_loop(None)


def _forget() -> None:
    for cached in CACHES:
        cached.cache_clear()


def _listen(stage: Stage) -> None:
    """Holds all clients of the functions to AWS's limits and records their requests."""
    for client in (*stage.store._clients, planner._machines()):
        watch(client)
        service = client.meta.service_model.service_name

        def note(params: dict[str, Any], model: Any, service: str = service, **_more: Any) -> None:
            stage.asked.append((service, model.name, dict(params)))

        client.meta.events.register(f"before-parameter-build.{client.meta.service_model.service_id.hyphenize()}", note)
