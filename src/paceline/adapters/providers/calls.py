"""Calls of batches to their providers, through one libcurl loop with the guard on every socket."""

from __future__ import annotations

import codecs
import io
import math
import time
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from pathlib import Path

import msgspec
import pycurl

from paceline.adapters.providers.authorities import Authorities, find_authorities
from paceline.adapters.providers.curl import CurlLoop
from paceline.adapters.providers.faults import fault_words
from paceline.adapters.providers.guard import AddressGuard, Network
from paceline.adapters.providers.transfer import NO_SOCKET, Transfer
from paceline.core.batches.calls import PAYLOAD_BYTES_MAX, RETRY_AFTER_MS_MAX, Call, CallResult, Fault
from paceline.core.batches.provider import SAFE_METHODS
from paceline.core.durations import format_duration
from paceline.core.instants import to_ms
from paceline.core.monitors.outcome import REASON_CHARS_MAX
from paceline.ports import Clock

ANSWER_BYTES_MAX = 1_048_576
"""Reading stops after this many bytes. Up to here an answer is read to its end, so that its connection can
be used again."""
TOGETHER_MAX = 32
"""Calls that are begun before answers are read; with more at a time, the first answer would count as slow."""
POOLED_MAX = 64
"""Handles of each shape that are kept for the next calls."""
JSON_TYPE = "Content-Type: application/json"
TEXT_TYPE = "Content-Type: text/plain; charset=utf-8"
NO_TYPE = "Content-Type:"
"""Without this empty header, libcurl declares a body to be a form."""
_UNSENDABLE = frozenset({pycurl.E_URL_MALFORMAT, pycurl.E_UNSUPPORTED_PROTOCOL})
_LOST = {pycurl.E_SEND_FAIL_REWIND: "the connection was closed without an answer"}

Shape = tuple[str, bool, bool]
"""Method, whether there is a body, whether certificates are verified. Handles of one shape differ in little else."""


class HttpCaller:
    """Fills ``ports.Caller``. ``own`` are the endpoints of the API, which no call may reach."""

    def __init__(
        self,
        *,
        allow: Sequence[Network],
        clock: Clock,
        own: Sequence[tuple[str, int]] = (),
        ca_file: Path | None = None,
    ) -> None:
        self._clock = clock
        self._guard = AddressGuard(allow, own=own)
        self._authorities = find_authorities(ca_file)
        self._curl: CurlLoop[_CallTransfer] = CurlLoop()
        self._pools: dict[Shape, list[Transfer]] = {}
        self._finished: list[CallResult] = []
        self._in_flight = 0
        self._closed = False

    @property
    def in_flight(self) -> int:
        return self._in_flight

    def start(self, calls: Sequence[Call]) -> None:
        assert not self._closed
        self._in_flight += len(calls)
        for first in range(0, len(calls), TOGETHER_MAX):
            started_ms = self._clock.now_ms()
            for call in calls[first : first + TOGETHER_MAX]:
                try:
                    self._begin(call, started_ms)
                except Exception as error:  # noqa: BLE001 - every call ends in exactly one result
                    self._finished.append(_not_made(call, error, started_ms))
            self._curl.kick()
            self._gather(0)

    def finished(self, *, wait_ms: int) -> list[CallResult]:
        until_s = time.monotonic() + wait_ms / 1_000
        while True:
            left_s = 0.0 if self._finished else until_s - time.monotonic()
            self._gather(math.ceil(left_s * 1_000) if left_s > 0 else 0)
            if self._finished or self._curl.woken or time.monotonic() >= until_s:
                self._curl.woken = False
                finished, self._finished = self._finished, []
                self._in_flight -= len(finished)
                return finished

    def wake(self) -> None:
        self._curl.wake()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._curl.close()
        for pool in self._pools.values():
            for transfer in pool:
                transfer.curl.close()
        self._pools.clear()
        self._in_flight = 0

    def _begin(self, call: Call, started_ms: int) -> None:
        shape = (call.method, call.body is not None, call.verify_tls)
        pool = self._pools.setdefault(shape, [])
        taken = pool.pop() if pool else _CallTransfer(self._guard, self._authorities, pool, shape)
        assert isinstance(taken, _CallTransfer)
        taken.prepare(call, started_ms)
        self._curl.add(taken.curl, taken)

    def _gather(self, wait_ms: int) -> None:
        """Run one turn of the libcurl loop and collect the results of the calls that ended in it."""
        ended = self._curl.turn(wait_ms)
        now_ms = self._clock.now_ms()
        for transfer, error in ended:
            try:
                result = transfer.result(error, now_ms)
            except Exception as exception:  # noqa: BLE001 - every call ends in exactly one result
                result = _not_understood(transfer.call, exception, transfer.started_ms, now_ms)
            self._finished.append(result)
            transfer.clear()
            if len(transfer.pool) < POOLED_MAX:
                transfer.pool.append(transfer)
            else:
                transfer.curl.close()


class _CallTransfer(Transfer):
    """A handle for calls of one shape: it keeps the beginning of the answer's body and its head."""

    __slots__ = ("_shape", "call")

    call: Call

    def __init__(self, guard: AddressGuard, authorities: Authorities, pool: list[Transfer], shape: Shape) -> None:
        self._shape = shape
        super().__init__(guard, authorities, pool)

    def reset(self) -> None:
        super().reset()
        method, has_body, verify_tls = self._shape
        set_option = self.curl.setopt
        set_option(pycurl.WRITEFUNCTION, self._take_body)
        self.keep_head()
        if has_body or method in ("POST", "PUT", "PATCH"):
            set_option(pycurl.POST, 1)
        if method not in ("GET", "POST") or (has_body and method == "GET"):
            set_option(pycurl.CUSTOMREQUEST, method)
        if not has_body and method not in SAFE_METHODS:
            # If a kept connection dies, libcurl sends the request again by itself, though the first may have arrived.
            set_option(pycurl.FRESH_CONNECT, 1)
        if not verify_tls:
            set_option(pycurl.SSL_VERIFYPEER, 0)
            set_option(pycurl.SSL_VERIFYHOST, 0)

    def prepare(self, call: Call, started_ms: int) -> None:
        """Set what differs from call to call: URL, time-out, headers and body."""
        self.call = call
        self.started_ms = started_ms
        self.aim(call.url, format_duration(call.timeout_ms))
        body, content_type = _content(call)
        headers = [_header_line(name, value) for name, value in call.headers.items()]
        if not any(name.lower() == "content-type" for name in call.headers):
            headers.append(content_type)
        self.curl.setopt(pycurl.HTTPHEADER, headers)
        if body is None:
            if call.method in ("POST", "PUT", "PATCH"):
                self.curl.setopt(pycurl.POSTFIELDS, b"")
        elif call.method in SAFE_METHODS:
            self.curl.setopt(pycurl.POSTFIELDS, body)
        else:
            # Read once and never rewound, so that libcurl cannot send it a second time by itself.
            self.curl.setopt(pycurl.POSTFIELDSIZE, len(body))
            self.curl.setopt(pycurl.READFUNCTION, io.BytesIO(body).read)

    def result(self, error: int, now_ms: int) -> CallResult:
        """Return the result of the call.

        Reason and payload quote nothing of the request, unless the provider echoes it.
        """
        if self.capped and error == pycurl.E_WRITE_ERROR:
            error = 0
        info = self.curl.getinfo
        arrived = info(pycurl.REQUEST_SIZE) > 0  # bytes that were handed to a connection
        code = info(pycurl.RESPONSE_CODE) or None
        fault = self._fault(error) if error or code is None else None
        return CallResult(
            handle=self.call.handle,
            attempt=self.call.attempt,
            started_ms=self.started_ms,
            ended_ms=now_ms,
            latency_ms=info(pycurl.TOTAL_TIME_T) / 1_000 if arrived else None,
            code=code if fault is None else None,
            fault=fault,
            arrived=arrived,
            reason=self._reason(error, code)[:REASON_CHARS_MAX],
            payload=payload_text(b"".join(self.pieces)) if fault is None else None,
            retry_after_ms=_retry_after_ms(self.head, now_ms),
        )

    def _fault(self, error: int) -> Fault:
        refusal = self.refusal if error == pycurl.E_COULDNT_CONNECT else None
        # Having no free socket is temporary, and says nothing about the address.
        if error in _UNSENDABLE or (refusal is not None and refusal != NO_SOCKET):
            return "refused"
        return "time_out" if error == pycurl.E_OPERATION_TIMEDOUT else "network"

    def _reason(self, error: int, code: int | None) -> str:
        if error:
            words = _LOST.get(error) or fault_words(self, error, timeout=format_duration(self.call.timeout_ms))
            return f"status {code}, then {words}" if code else words
        if code is None:
            return "the answer has no status"
        if 300 <= code < 400:
            return f"status {code}; redirects are not followed"
        return "" if 200 <= code < 300 else f"status {code}"

    def _take_body(self, piece: bytes) -> int | None:
        """Keep the beginning of the body and count its unpacked bytes.

        Return 0 to end the transfer when there are too many.
        """
        room = PAYLOAD_BYTES_MAX - self.bytes_read
        if room > 0:
            self.pieces.append(piece[:room])
        self.bytes_read += len(piece)
        if self.bytes_read <= ANSWER_BYTES_MAX:
            return None
        self.capped = True
        return 0


def payload_text(body: bytes) -> str | None:
    """Return at most PAYLOAD_BYTES_MAX bytes of the body as text, without NULs; None if nothing is left."""
    text = _cut(body).replace("\0", "")
    # A replacement character is longer than the byte it stands for.
    return _cut(text.encode()) or None


def _cut(body: bytes) -> str:
    """Decode the beginning of the body. A character split by the cut is left out; other broken bytes are replaced."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return decoder.decode(body[:PAYLOAD_BYTES_MAX], final=len(body) < PAYLOAD_BYTES_MAX)


def _content(call: Call) -> tuple[bytes | None, str]:
    """Return the body as bytes and its Content-Type header. A JSON string is sent as plain text."""
    if call.body is None:
        return None, NO_TYPE
    if call.body.lstrip().startswith('"'):
        return msgspec.json.decode(call.body, type=str).encode(), TEXT_TYPE
    return call.body.encode(), JSON_TYPE


def _header_line(name: str, value: str) -> str:
    """Return a header line for libcurl. "Name:" would leave the header out; "Name;" sends it without a value."""
    return f"{name}: {value}" if value.strip() else f"{name};"


def _retry_after_ms(head: Sequence[bytes], now_ms: int) -> int | None:
    """Return the pause that Retry-After asks for, as seconds or as an HTTP date; None if there is none."""
    for line in head:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"retry-after":
            return parse_retry_after_ms(value.decode("latin-1").strip(), now_ms=now_ms)
    return None


def parse_retry_after_ms(value: str, *, now_ms: int) -> int | None:
    if value.isascii() and value.isdigit():
        return min(int(value[:12]) * 1_000, RETRY_AFTER_MS_MAX)
    try:
        wanted_ms = to_ms(parsedate_to_datetime(value))
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return min(max(wanted_ms - now_ms, 0), RETRY_AFTER_MS_MAX)


def _not_made(call: Call, error: Exception, now_ms: int) -> CallResult:
    """Return the result of a call that could not be made.

    The error's text is left out: it may quote a header or a body.
    """
    reason = f"the call could not be made ({type(error).__name__}); look at the provider's and the record's fields"
    return CallResult(call.handle, call.attempt, now_ms, now_ms, fault="refused", arrived=False, reason=reason)


def _not_understood(call: Call, error: Exception, started_ms: int, now_ms: int) -> CallResult:
    reason = f"the answer could not be understood ({type(error).__name__})"
    return CallResult(call.handle, call.attempt, started_ms, now_ms, fault="network", reason=reason)
