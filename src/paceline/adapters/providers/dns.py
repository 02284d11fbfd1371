"""DNS checks on an event loop in a thread of its own, where many can wait without delaying each other."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Coroutine, Sequence
from ipaddress import ip_address
from typing import Any

import dns.asyncresolver
import dns.exception
import dns.name
import dns.rdata
import dns.resolver
import dns.reversename
from dns.rdtypes.ANY.TXT import TXT

from paceline.adapters.providers.guard import AddressGuard
from paceline.adapters.providers.transfer import timeout_ms
from paceline.core.monitors.checks import DnsCheck
from paceline.core.monitors.outcome import REASON_CHARS_MAX, Done
from paceline.core.monitors.values import CheckOrder

ANSWERS_SHOWN_MAX = 32
ANSWERS_NAMED_MAX = 5
ANSWER_CHARS_MAX = 300
SYSTEM_CONFIG_KEPT_S = 30.0
CLOSE_TIMEOUT_S = 5.0

Report = Callable[[CheckOrder, int, Done], None]


class DnsLoop:
    """Asks DNS questions.

    ``report`` is called on the loop's thread, once for each check that ``close`` did not drop.
    """

    def __init__(self, guard: AddressGuard, report: Report) -> None:
        self._guard = guard
        self._report = report
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._thread: threading.Thread | None = None
        self._system: tuple[float, dns.asyncresolver.Resolver] | None = None
        self._asking: set[asyncio.Task[None]] = set()

    def start(self, order: CheckOrder, check: DnsCheck, *, started_ms: int) -> None:
        """Begin a check. The thread that starts checks must always be the same."""
        if self._loop is None:
            self._loop = self._open()
        self._loop.call_soon_threadsafe(self._begin, self._ask_and_report(order, check, started_ms))

    def close(self) -> None:
        """Drop the checks in flight and end the thread."""
        if self._loop is None or self._thread is None:
            return
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(CLOSE_TIMEOUT_S)
        self._loop = None

    def _open(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(loop,), name="dns-checks", daemon=True)
        self._thread.start()
        return loop

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:  # the runner cancels what is left
            runner.run(self._wait_for_stop())

    async def _wait_for_stop(self) -> None:
        await self._stopping.wait()

    def _begin(self, asking: Coroutine[Any, Any, None]) -> None:
        assert self._loop is not None
        task = self._loop.create_task(asking)
        self._asking.add(task)  # the loop itself holds a task only weakly
        task.add_done_callback(self._asking.discard)

    async def _ask_and_report(self, order: CheckOrder, check: DnsCheck, started_ms: int) -> None:
        began_s = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(timeout_ms(check.timeout) / 1_000):
                done = await self._ask(check, began_s)
        except TimeoutError:
            done = _done(f"timed out after {check.timeout}", {}, began_s)
        except Exception as error:  # noqa: BLE001 - every order ends in exactly one outcome
            done = _done(_fault_words(error, check), {}, began_s)
        self._report(order, started_ms, done)

    async def _ask(self, check: DnsCheck, began_s: float) -> Done:
        detail: dict[str, Any] = {}
        if check.server is None:
            resolver = self._system_resolver()
        else:
            address = await self._address_of(check.server)
            if address is None:
                return _done("could not resolve the DNS server's name", {}, began_s)
            if (refusal := self._guard.refusal(address, check.port)) is not None:
                return Done(ok=False, reason=refusal)
            resolver = dns.asyncresolver.Resolver(configure=False)
            resolver.nameservers = [address]
            resolver.port = check.port
            detail["server"] = address
        lifetime_s = timeout_ms(check.timeout) / 1_000
        answer = await resolver.resolve(
            _question(check), check.type, raise_on_no_answer=False, search=False, lifetime=lifetime_s
        )
        if answer.rrset is None:
            return _done(f"the name exists but has no {check.type} record", detail, began_s)
        texts = [_text(rdata) for rdata in answer.rrset]
        detail["answers"] = [text[:ANSWER_CHARS_MAX] for text in texts[:ANSWERS_SHOWN_MAX]]
        detail["ttl_s"] = answer.rrset.ttl
        return _done(_mismatch(check, texts), detail, began_s)

    def _system_resolver(self) -> dns.asyncresolver.Resolver:
        """Return the resolver of this machine, read again every 30 s because its configuration may change."""
        now_s = asyncio.get_running_loop().time()
        if self._system is None or now_s - self._system[0] > SYSTEM_CONFIG_KEPT_S:
            self._system = (now_s, dns.asyncresolver.Resolver())
        return self._system[1]

    async def _address_of(self, server: str) -> str | None:
        """Return the one address of the server that is judged by the guard and then asked; None if there is none."""
        bare = server.removeprefix("[").removesuffix("]").removesuffix(".")
        with contextlib.suppress(ValueError):
            return str(ip_address(bare))
        with contextlib.suppress(OSError):
            return socket.inet_ntoa(socket.inet_aton(bare))  # 127.1, 0x7f000001 and the like
        if bare.lower() == "localhost" or bare.lower().endswith(".localhost"):
            return "127.0.0.1"
        for kind in ("A", "AAAA"):
            with contextlib.suppress(dns.exception.DNSException):
                for rdata in await self._system_resolver().resolve(bare, kind, search=False):
                    return str(ip_address(rdata.to_text()))
        return None


def _done(reason: str, detail: dict[str, Any], began_s: float) -> Done:
    """Return the outcome. An empty reason means that all is as expected."""
    latency_ms = round((asyncio.get_running_loop().time() - began_s) * 1_000, 3)
    return Done(ok=not reason, reason=reason[:REASON_CHARS_MAX], latency_ms=latency_ms, detail=detail)


def _question(check: DnsCheck) -> dns.name.Name:
    if check.type == "PTR":
        with contextlib.suppress(dns.exception.SyntaxError, ValueError):
            return dns.reversename.from_address(check.name.removeprefix("[").removesuffix("]"))
    return dns.name.from_text(check.name)


def _text(rdata: dns.rdata.Rdata) -> str:
    """Return an answer as people write it: names without their last dot, text without quotes."""
    if isinstance(rdata, TXT):
        return b"".join(rdata.strings).decode("utf-8", "replace")
    return rdata.to_text().removesuffix(".")


def _mismatch(check: DnsCheck, texts: list[str]) -> str:
    """Return why the answers are not as expected: a value is missing, or there is one too many; empty if they are."""
    found = {_comparable(check, text): text for text in texts}
    expect = check.expect
    for wanted in (*expect.contains, *expect.equals):
        if _comparable(check, wanted) not in found:
            return f"the answers do not contain {wanted[:ANSWER_CHARS_MAX]!r}; they are {_list(texts)}"
    if expect.equals:
        for wanted in expect.equals:
            found.pop(_comparable(check, wanted), None)
        if found:
            return f"the answers are {_list(texts)}, expected {_list(expect.equals)} alone"
    return ""


def _list(texts: Sequence[str]) -> str:
    return ", ".join(repr(text[:ANSWER_CHARS_MAX]) for text in texts[:ANSWERS_NAMED_MAX])


def _comparable(check: DnsCheck, text: str) -> str:
    if check.type in ("A", "AAAA"):
        with contextlib.suppress(ValueError):
            return str(ip_address(text.strip()))
    return text if check.type == "TXT" else " ".join(text.lower().removesuffix(".").split())


def _fault_words(error: Exception, check: DnsCheck) -> str:
    match error:
        case dns.resolver.NXDOMAIN():
            return "the name does not exist (NXDOMAIN)"
        case dns.exception.Timeout():
            return f"timed out after {check.timeout}"
        case dns.resolver.NoNameservers():
            return _server_words(error)
        case dns.resolver.NoResolverConfiguration():
            return 'this machine has no DNS servers configured; name one with "server"'
        case dns.exception.DNSException() | UnicodeError():
            return "the name cannot be asked for; check its spelling"
        case _:
            return f"the check could not be made: {type(error).__name__}"


def _server_words(error: dns.resolver.NoNameservers) -> str:
    """Return the reason that the last of the servers gave."""
    errors = error.kwargs.get("errors") or []
    cause = errors[-1][3] if errors else None
    if isinstance(cause, str):
        return f"the DNS server answered {cause}"
    return "the DNS server could not be reached or gave no valid answer"
