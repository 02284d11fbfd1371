"""CPU time of one request through paceline-client, beside bare httpx with the same request and the same JSON."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import httpx

from bench.harness import Context, Result, in_turns, judged
from bench.rest import CHECK, server
from paceline_client import AsyncClient, Client

COST_MAX = 1.5
PAGE_ITEMS = 100
BODY: Any = {"check": CHECK, "every": "60s", "tags": ["bench"]}
MONITOR = "/v1/users/me/monitors/home"
SUBJECTS = {
    "get": "GET one monitor",
    "put": "PUT one monitor",
    "list": "GET a page",
    "async": "GET, asynchronous",
}


def run(context: Context) -> list[Result]:
    requests, rounds = (1_000, 15) if context.full else (300, 9)
    with server(context.folder) as (port, token), asyncio.Runner() as runner:
        rates = in_turns(rounds, contestants(f"http://127.0.0.1:{port}", token, requests, runner))
    return [
        row(subject, PAGE_ITEMS if name == "list" else 1, rates[f"client {name}"], rates[f"httpx {name}"])
        for name, subject in SUBJECTS.items()
    ]


def row(subject: str, monitors: int, ours: list[float], bare: list[float]) -> Result:
    """Returns a result. Rates are per second of CPU; the cost ratio is the median over the rounds."""
    cost = statistics.median(floor / mine for mine, floor in zip(ours, bare, strict=True))
    return {
        "subject": subject,
        "size": monitors,
        "per_s": round(statistics.median(ours), 1),
        "floor_per_s": round(statistics.median(bare), 1),
        "ratio_to_floor": round(1 / cost, 3),
        "cost_ratio": round(cost, 3),
        **judged(cost, at_most=COST_MAX),
    }


def contestants(url: str, token: str, requests: int, runner: asyncio.Runner) -> dict[str, Callable[[], float]]:
    client, async_client = Client(url, token), AsyncClient(url, token)
    options: Any = {"base_url": url, "headers": {"Authorization": f"Bearer {token}"}, "timeout": 30.0}
    http, async_http = httpx.Client(**options), httpx.AsyncClient(**options)
    client.monitors.put("home", **BODY)
    client.monitors.put_many([BODY | {"id": f"m{number:03}"} for number in range(PAGE_ITEMS)])

    async def read() -> Any:
        return (await async_http.get(MONITOR)).json()

    pages = max(1, requests // 10)
    return {
        "httpx get": partial(per_cpu_s, lambda: http.get(MONITOR).json(), requests),
        "client get": partial(per_cpu_s, lambda: client.monitors.get("home"), requests),
        "httpx put": partial(per_cpu_s, lambda: http.put(MONITOR, json=BODY).json(), requests),
        "client put": partial(per_cpu_s, lambda: client.monitors.put("home", **BODY), requests),
        "httpx list": partial(
            per_cpu_s, lambda: http.get("/v1/users/me/monitors", params={"limit": PAGE_ITEMS}).json()["items"], pages
        ),
        "client list": partial(per_cpu_s, lambda: list(client.monitors.list(limit=PAGE_ITEMS)), pages),
        "httpx async": partial(async_per_cpu_s, runner, read, requests),
        "client async": partial(async_per_cpu_s, runner, lambda: async_client.monitors.get("home"), requests),
    }


def per_cpu_s(ask: Callable[[], object], requests: int) -> float:
    """Returns requests per second of this process's CPU time; the server has its own process."""
    start_s = time.process_time()
    for _ in range(requests):
        ask()
    return requests / (time.process_time() - start_s)


def async_per_cpu_s(runner: asyncio.Runner, ask: Callable[[], Awaitable[object]], requests: int) -> float:
    async def measure() -> float:
        start_s = time.process_time()
        for _ in range(requests):
            await ask()
        return requests / (time.process_time() - start_s)

    return runner.run(measure())
