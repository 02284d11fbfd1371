"""The child process that sends notes through apprise, apart from Paceline's memory, environment and files.

It reads one JSON line with the module path and the addresses that the guard allows, then one line for each note, and
writes one line for each result. Before the first note it installs an audit hook, which cannot be removed again. The
hook refuses connections to addresses that the guard refuses, the start of other programs, and all files other than
Python's own and a few of the system.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from ipaddress import ip_network
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote

THREADS_MAX = 64
"""More than there are notes in flight: a service that hangs must not keep other notes waiting."""
REASON_CHARS_MAX = 300
SECRET_CHARS_MIN = 4
TIMEOUT_S = 20
"""Time-out of one connect or read, for services of apprise that let it be set."""
READ_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
SYSTEM_FILES = ("/etc/ssl/", "/etc/pki/", "/usr/share/", "/usr/lib/", "/dev/null", "/dev/urandom", "/etc/mime.types")
FORBIDDEN = (
    "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "pty.", "os.startfile",
    "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown",
    "shutil.", "sqlite3.", "dbm.", "os.putenv", "os.kill", "signal.", "tempfile.", "syslog.",
)  # fmt: skip
_thread = threading.local()


class Guarded(PermissionError):
    """Raised when a message would reach a refused address, start a program, or open a forbidden file."""


class AuditHook:
    """The audit hook. ``refusal`` judges an address and a port."""

    def __init__(self, refusal: Any, roots: tuple[str, ...]) -> None:
        self._refusal = refusal
        self._roots = roots

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
            self._judge_address(args[1])
        elif event == "open":
            self._judge_file(args[0], args[2])
        elif event.startswith(FORBIDDEN):
            raise Guarded(f"{event} is not allowed")

    def _judge_address(self, address: Any) -> None:
        if address is None:
            return  # sent on a socket that is connected
        if not isinstance(address, tuple):
            raise Guarded("only addresses of the network can be reached")
        reason = self._refusal(str(address[0]).partition("%")[0], int(address[1]))
        if reason is not None:
            _thread.refused = reason
            raise Guarded(reason)

    def _judge_file(self, path: Any, flags: Any) -> None:
        if isinstance(path, int):
            return
        real = os.path.realpath(os.fsdecode(path))
        if not real.startswith(self._roots) or (isinstance(flags, int) and flags & READ_FLAGS):
            raise Guarded("files cannot be opened")


class Warnings(logging.Handler):
    """Keeps the last warning of each thread: why a service did not take a message."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            _thread.warning = record.getMessage()


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    begin = json.loads(sys.stdin.readline())
    sys.path[:] = begin["path"]
    apprise, hook = _load(begin)
    lock = threading.Lock()
    sys.addaudithook(hook)
    with ThreadPoolExecutor(THREADS_MAX) as threads:
        for line in sys.stdin:
            threads.submit(_carry_out, apprise, json.loads(line), answers, lock)


def _load(begin: Mapping[str, Any]) -> tuple[Any, AuditHook]:
    """Import what messages need while files may still be opened."""
    from paceline.adapters.providers.guard import AddressGuard  # noqa: PLC0415  it is found by the path that came first

    # Imported by name: they belong to an extra, which may be missing where this file is only type-checked.
    apprise, requests, certifi = (import_module(name) for name in ("apprise", "requests", "certifi"))
    logger = logging.getLogger("apprise")
    logger.addHandler(Warnings())
    logger.setLevel(logging.WARNING)
    apprise.Apprise().details()  # imports every service
    requests.Session().close()
    guard = AddressGuard([ip_network(one) for one in begin["allow"]], own=[(host, port) for host, port in begin["own"]])
    folders = [sys.prefix, sys.base_prefix, os.path.dirname(certifi.where()), *begin["path"]]  # noqa: PTH120
    roots = tuple(f"{Path(folder).resolve()}/" for folder in folders if folder)
    return apprise, AuditHook(guard.refusal, (*roots, *SYSTEM_FILES))


def _carry_out(apprise: Any, order: Mapping[str, Any], answers: IO[str], lock: threading.Lock) -> None:
    _thread.refused, _thread.warning = None, ""
    try:
        reason = _send(apprise, order)
    except Exception as error:  # noqa: BLE001 - every note ends in exactly one result
        reason = f"{type(error).__name__}: {error}"
    reason = _thread.refused or _without_secrets(reason, order["url"])
    answer = json.dumps({"handle": order["handle"], "attempt": order["attempt"], "reason": reason[:REASON_CHARS_MAX]})
    with lock:
        answers.write(f"{answer}\n")


def _send(apprise: Any, order: Mapping[str, Any]) -> str:
    """Send one note. Returns why it was not taken; empty if it was."""
    asset = apprise.AppriseAsset(secure_logging=True, plugin_paths=[], app_id="Paceline", app_desc="Paceline")
    service = apprise.Apprise.instantiate(order["url"], asset=asset, suppress_exceptions=True)
    if service is None:
        return "apprise does not understand the URL of the channel; put it again"
    service.socket_connect_timeout = min(service.socket_connect_timeout, TIMEOUT_S)
    service.socket_read_timeout = min(service.socket_read_timeout, TIMEOUT_S)
    taken = service.notify(body=order["text"], title=order["title"], notify_type=order["severity"])
    return "" if taken else _thread.warning or "the service did not take it"


def _without_secrets(reason: str, url: str) -> str:
    """Return the reason without any part of the URL that could be a secret."""
    rest = unquote(url.partition("://")[2])
    for mark in "/?&=:@":
        rest = rest.replace(mark, " ")
    for part in sorted({*rest.split(), *url.partition("://")[2].split("/")}, key=len, reverse=True):
        if len(part) >= SECRET_CHARS_MIN:
            reason = reason.replace(part, "***")
    return reason


if __name__ == "__main__":
    main()
