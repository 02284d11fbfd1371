"""Acts on a store that may hang: each on a thread of its own, so that a slow reply holds up nothing else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
S = TypeVar("S")

SETTLES_MAX = 8
"""So many settlements may be under way at once: while one hangs, the next answers are settled beside it."""


class Ended(NamedTuple, Generic[S, T]):
    """What came of an act: its result, or what it raised."""

    subject: S
    result: T | None
    error: Exception | None


class Errands(Generic[S, T]):
    """Acts of one kind, some at once. ``apart``: beside the loop that begins them; else in place, one by one."""

    def __init__(self, name: str, *, apart: bool, done: Callable[[], None], most: int = 1) -> None:
        """``done`` is called, on the act's own thread, when one has ended beside the loop."""
        self._name = f"paceline-{name}"
        self._apart = apart
        self._done = done
        self._most = most
        self._under_way = 0
        self._ended: SimpleQueue[Ended[S, T]] = SimpleQueue()

    @property
    def busy(self) -> bool:
        """Something was begun whose end was not fetched yet."""
        return self._under_way > 0

    @property
    def full(self) -> bool:
        return self._under_way >= self._most

    def begin(self, subject: S, act: Callable[[S], T]) -> None:
        assert not self.full
        self._under_way += 1
        if self._apart:
            threading.Thread(target=self._run, args=(subject, act), name=self._name, daemon=True).start()
        else:
            self._carry_out(subject, act)

    def fetch(self, *, wait_s: float = 0.0) -> list[Ended[S, T]]:
        """What has ended since it was asked last; waits for the first that is under way."""
        found: list[Ended[S, T]] = []
        until_s = time.monotonic() + wait_s
        while self._under_way:
            left_s = 0.0 if found else until_s - time.monotonic()
            try:
                found.append(self._ended.get(timeout=left_s) if left_s > 0 else self._ended.get_nowait())
            except Empty:
                break
            self._under_way -= 1
        return found

    def result(self) -> T | None:
        """Of kinds with one act at a time: what it came to, or what it raised is raised. None: it has not ended."""
        for ended in self.fetch():
            if ended.error is not None:
                raise ended.error
            return ended.result
        return None

    def _run(self, subject: S, act: Callable[[S], T]) -> None:
        self._carry_out(subject, act)
        self._done()

    def _carry_out(self, subject: S, act: Callable[[S], T]) -> None:
        try:
            self._ended.put(Ended(subject, act(subject), None))
        except Exception as error:  # noqa: BLE001 - whoever fetches it raises it
            self._ended.put(Ended(subject, None, error))


Fence = tuple[int, int]


class Returns:
    """Runs that are given back: until the store has taken them, however often it is unavailable."""

    def __init__(
        self, name: str, release: Callable[[list[Fence]], object], *, apart: bool, done: Callable[[], None]
    ) -> None:
        self._release = release
        self._waiting: list[Fence] = []
        self._errands: Errands[list[Fence], object] = Errands(name, apart=apart, done=done)

    def add(self, fences: Iterable[Fence]) -> None:
        self._waiting += fences

    def turn(self, *, wait_s: float = 0.0) -> None:
        if self._waiting and not self._errands.full:
            given, self._waiting = self._waiting, []
            self._errands.begin(given, self._release)
        for ended in self._errands.fetch(wait_s=wait_s):
            if ended.error is not None:
                self._waiting += ended.subject
                raise ended.error
