"""Stands between boto3 and the emulator and does, from a seed, what a network and a busy AWS do."""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, NamedTuple, get_args
from urllib.parse import urlsplit

Fault = Literal["drop_before", "drop_after", "throttle", "duplicate", "delay", "reorder", "partial", "stale", "hold"]
FAULTS: tuple[Fault, ...] = get_args(Fault)
HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "x-amz-crc32", "host"})
BATCHES = frozenset({"BatchWriteItem", "BatchGetItem", "SendMessageBatch"})
READS = frozenset({"GetItem", "BatchGetItem", "TransactGetItems", "Query", "Scan"})


@dataclass(frozen=True)
class Faults:
    """How likely each is, of 1, for each request; at most one hits a request.

    drop_before: the connection ends before anything happened. drop_after: it happened, and the answer is lost.
    duplicate: it arrives twice. delay: it is late. reorder: a later request overtakes it. throttle: AWS is busy.
    partial: of a batch AWS takes the first half. stale: an index answers as it did before, or knows nothing yet.
    hold: it happened at once, and the answer comes ``hold_s`` later, for example when a lease is over.
    """

    drop_before: float = 0.0
    drop_after: float = 0.0
    throttle: float = 0.0
    duplicate: float = 0.0
    delay: float = 0.0
    reorder: float = 0.0
    partial: float = 0.0
    stale: float = 0.0
    hold: float = 0.0
    delay_s: float = 0.02
    overtaken_s_max: float = 0.2
    hold_s: float = 0.0
    only: frozenset[str] = frozenset()
    """The operations that are hit; empty: all."""
    reads: float = 1.0
    """Factor on the likelihood for reads: most requests are reads, and faults of writes find more."""
    spared: str = ""
    """Requests that contain this text are not hit; empty: none is exempt."""
    meant: str = ""
    """Only requests that contain this text are hit; empty: all of them."""


class Answer(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes


class FaultProxy:
    """``faults`` may be set at any time. ``requests`` and ``hits`` count the requests and the faults."""

    def __init__(self, upstream: str, *, seed: int, faults: Faults) -> None:
        self.faults = faults
        self.requests: Counter[str] = Counter()
        self.hits: Counter[Fault] = Counter()
        self._upstream = urlsplit(upstream).netloc
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._indexes: dict[str, Answer] = {}
        self._passed = threading.Condition()
        self._passes = 0
        self._server = _Server(self)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def begin(self, seed: int, faults: Faults) -> None:
        """Starts the sequence of faults over."""
        with self._lock:
            self.faults = faults
            self.requests.clear()
            self.hits.clear()
            self._random = random.Random(seed)
            self._indexes.clear()

    def choose(self, operation: str, *, index: str = "", body: bytes = b"") -> Fault | None:
        """One draw for each request, in the order in which they come. ``index``: which one is asked, if one is."""
        with self._lock:
            self.requests[operation] += 1
            at = self._random.random()
            if self.faults.only and operation not in self.faults.only:
                return None
            if self.faults.spared and self.faults.spared.encode() in body:
                return None
            if self.faults.meant.encode() not in body:
                return None
            share = self.faults.reads if operation in READS else 1.0
            for fault in FAULTS:
                at -= getattr(self.faults, fault) * share
                if at < 0:
                    break
            else:
                return None
            if (fault == "partial" and operation not in BATCHES) or (fault == "stale" and not index):
                return None
            self.hits[fault] += 1
            return fault

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> Answer | None:
        """None: the connection just ends."""
        operation = (request.headers.get("X-Amz-Target") or "none").rpartition(".")[2]
        index = asked_index(body) if operation in {"Query", "Scan"} else ""
        match self.choose(operation, index=index, body=body):
            case "drop_before":
                return None
            case "throttle":
                return throttled(request.headers.get("X-Amz-Target") or "")
            case "partial":
                return self._partly(request, body, operation)
            case "stale":
                return self._indexes.get(index, EMPTY)
            case "delay":
                time.sleep(self.faults.delay_s)
            case "reorder":
                self._let_another_pass()
            case "duplicate":
                answer = self._forward(request, body)
                self._forward(request, body)
                return answer
            case "drop_after":
                self._forward(request, body)
                return None
            case "hold":
                answer = self._forward(request, body)
                time.sleep(self.faults.hold_s)
                return answer
            case None:
                pass
        answer = self._forward(request, body)
        if index:
            self._indexes[index] = answer
        return answer

    def _forward(self, request: BaseHTTPRequestHandler, body: bytes) -> Answer:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP}
        upstream = HTTPConnection(self._upstream, timeout=60)
        try:
            upstream.request(request.command, request.path, body, headers | {"Host": self._upstream})
            got: HTTPResponse = upstream.getresponse()
            answer = Answer(got.status, [one for one in got.getheaders() if one[0].lower() not in HOP], got.read())
        finally:
            upstream.close()
        with self._passed:
            self._passes += 1
            self._passed.notify_all()
        return answer

    def _let_another_pass(self) -> None:
        with self._passed:
            seen = self._passes
            self._passed.wait_for(lambda: self._passes > seen, self.faults.overtaken_s_max)

    def _partly(self, request: BaseHTTPRequestHandler, body: bytes, operation: str) -> Answer:
        """Processes the first half of a batch and returns the rest as unprocessed, as AWS does."""
        asked = json.loads(body)
        if operation == "SendMessageBatch":
            half, rest = _halves(asked["Entries"])
            got = self._forward(request, json.dumps(asked | {"Entries": half}).encode())
            told = json.loads(got.body)
            busy = {"Code": "InternalError", "SenderFault": False, "Message": "left by the proxy"}
            told["Failed"] = told.get("Failed", []) + [busy | {"Id": entry["Id"]} for entry in rest]
            return replace_body(got, told)
        key = "UnprocessedItems" if operation == "BatchWriteItem" else "UnprocessedKeys"
        taken: dict[str, Any] = {}
        left: dict[str, Any] = {}
        for table, wanted in asked["RequestItems"].items():
            many = wanted if isinstance(wanted, list) else wanted["Keys"]
            half, rest = _halves(many)
            taken[table] = half if isinstance(wanted, list) else wanted | {"Keys": half}
            if rest:
                left[table] = rest if isinstance(wanted, list) else wanted | {"Keys": rest}
        got = self._forward(request, json.dumps(asked | {"RequestItems": taken}).encode())
        return replace_body(got, json.loads(got.body) | {key: left}) if got.status == 200 else got

    def run(self) -> None:
        self._server.serve_forever(poll_interval=0.05)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


EMPTY = Answer(
    200,
    [("Content-Type", "application/x-amz-json-1.0")],
    json.dumps({"Items": [], "Count": 0, "ScannedCount": 0}).encode(),
)


def asked_index(body: bytes) -> str:
    """Which part of which index a query asks: its texts, without the numbers, which are instants. Empty: none."""
    asked = json.loads(body)
    if "IndexName" not in asked:
        return ""
    texts = [value["S"] for value in asked.get("ExpressionAttributeValues", {}).values() if "S" in value]
    return json.dumps([asked["TableName"], asked["IndexName"], asked.get("KeyConditionExpression"), sorted(texts)])


def _halves(many: list[Any]) -> tuple[list[Any], list[Any]]:
    middle = (len(many) + 1) // 2
    return many[:middle], many[middle:]


def replace_body(answer: Answer, body: object) -> Answer:
    return answer._replace(body=json.dumps(body).encode())


def throttled(target: str) -> Answer:
    """Returns the throttling error in the form of DynamoDB or SQS."""
    if target.startswith("AmazonSQS"):
        kind, more = "com.amazonaws.sqs#RequestThrottled", [("x-amzn-query-error", "RequestThrottled;Sender")]
    else:
        kind, more = "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException", []
    body = {"__type": kind, "message": "The level of configured provisioned throughput for the table was exceeded."}
    return Answer(400, [("Content-Type", "application/x-amz-json-1.0"), *more], json.dumps(body).encode())


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Many connections come at once when a fan-out starts.
    request_queue_size = 128

    def __init__(self, proxy: FaultProxy) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Head and body leave as one: in two, each answer waits 40 ms for the first to be acknowledged.
            wbufsize = -1
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                if len(body) < length:
                    self.close_connection = True  # the client was killed in the middle of its request
                    return
                try:
                    answer = proxy.answer(self, body)
                except (OSError, HTTPException):
                    answer = None  # the emulator is gone: so are we
                if answer is None:
                    self.close_connection = True
                    return
                self.send_response_only(answer.status)
                for name, value in answer.headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            do_GET = do_PUT = do_DELETE = do_POST  # noqa: N815  the names that http.server calls

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its name in http.server
                del format, args

        super().__init__(("127.0.0.1", 0), Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores clients that were killed; reports all other errors as usual."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@contextmanager
def fault_proxy(upstream: str, *, seed: int = 0, faults: Faults | None = None) -> Iterator[FaultProxy]:
    proxy = FaultProxy(upstream, seed=seed, faults=faults or Faults())
    thread = threading.Thread(target=proxy.run, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join(5)
