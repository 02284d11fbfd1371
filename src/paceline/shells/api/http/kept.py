"""Cache of answers that take long to compute, so that many open pages cost as much as one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

FACTOR = 10
"""An answer is kept for this many times as long as it took to compute."""
KEPT_S_MAX = 60.0
KEYS_MAX = 1_000


class KeptAnswers:
    """Answers by key. Belongs to one event loop. Callers wait only while the answer for their own key is computed."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Any, float]] = {}
        self._computing: dict[str, asyncio.Lock] = {}

    async def get(self, key: str, compute: Callable[[], Awaitable[Any]]) -> Any:
        """Returns the answer that is kept for the key, or computes it if there is none or it is too old."""
        lock = self._computing.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                value, until_s = self._kept.get(key, (None, 0.0))
                if time.monotonic() < until_s:
                    return value
                return await self._compute(key, compute)
        finally:
            if not lock.locked():
                self._computing.pop(key, None)

    async def _compute(self, key: str, compute: Callable[[], Awaitable[Any]]) -> Any:
        begun_s = time.monotonic()
        value = await compute()
        ended_s = time.monotonic()
        if len(self._kept) >= KEYS_MAX:
            self._kept.clear()
        self._kept[key] = (value, ended_s + min(FACTOR * (ended_s - begun_s), KEPT_S_MAX))
        return value
