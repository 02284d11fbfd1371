"""The real daemon with one user who reads lists all the time: how long does another user's list, or put, take?

The first user has 60 connections, and on each asks for a page of 1,000 monitors, again and again. The second asks for a
page of ten and puts a monitor, one after the other. The same without the first user is shown beside it.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.harness import Context, Result, judged, percentile
from bench.real_daemon import Daemon, add_user, connect, daemon

READERS = 60
MONITORS = 5_000
LEAD_S = 2.0
"""Time in which the first user's requests fill the daemon before anything is measured."""
LIST_P99_MS_MAX = 250.0
MONITOR = {"check": {"kind": "outgoing", "what": "look"}, "every": "1d"}
PATH = "/v1/users/me/monitors"


def run(context: Context) -> list[Result]:
    seconds = 20 if context.full else 8
    file = context.file("fairness-lists.db")
    with daemon(file, monitors_max=str(MONITORS * 2)) as running:
        busy, quiet = (add_user(file, name) for name in ("busy", "quiet"))
        _ask(running.connect(), busy, "PUT", PATH, {"items": [{"id": f"m{n}", **MONITOR} for n in range(MONITORS)]})
        context.say(f"fairness: lists of one user beside {READERS} of another, {seconds} s each")
        results = []
        for readers in (READERS, 0):
            with _reading(running, busy, readers):
                time.sleep(LEAD_S)
                results += _measure(running, quiet, readers, seconds)
        return results


def _measure(running: Daemon, token: str, readers: int, seconds: int) -> list[Result]:
    connection, took_ms = running.connect(), {"lists": list[float](), "puts": list[float]()}
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        took_ms["lists"].append(_ask(connection, token, "GET", f"{PATH}?limit=10"))
        number = len(took_ms["puts"])
        took_ms["puts"].append(_ask(connection, token, "PUT", f"{PATH}/{readers}-{number}", MONITOR))
    beside = "beside another user's lists" if readers else "alone"
    return [_result(f"{what} {beside}", readers, sorted(times)) for what, times in took_ms.items()]


def _result(subject: str, readers: int, ordered: list[float]) -> Result:
    p99_ms = percentile(ordered, 0.99)
    figures = {"p50_ms": percentile(ordered, 0.5), "p99_ms": p99_ms, "max_ms": ordered[-1]}
    shown = {name: round(value, 1) for name, value in figures.items()}
    target = judged(p99_ms, at_most=LIST_P99_MS_MAX) if readers else {}
    return {"subject": subject, "size": readers, **shown, **target}


@contextmanager
def _reading(running: Daemon, token: str, readers: int) -> Iterator[None]:
    """Reads lists in a process of its own while the block runs."""
    process = multiprocessing.get_context("spawn").Process(target=_read_always, args=(running.url, token, readers))
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _read_always(url: str, token: str, readers: int) -> None:
    def read() -> None:
        connection = connect(url)
        while True:
            _ask(connection, token, "GET", f"{PATH}?limit=1000")

    threads = [threading.Thread(target=read) for _ in range(readers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _ask(connection: http.client.HTTPConnection, token: str, method: str, path: str, body: Any = None) -> float:
    """Makes a request. Returns how many milliseconds it took."""
    began_s = time.perf_counter()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    answer.read()
    if answer.status >= 400:
        raise RuntimeError(f"{method} {path} was answered with {answer.status}")
    return (time.perf_counter() - began_s) * 1_000
