"""Acts on a store that may hang: each in its own thread, so that a slow reply delays nothing else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
S = TypeVar("S")

SETTLES_MAX = 8
"""Most settlements at the same time: while one hangs, the next results are settled in another."""


class EndedAct(NamedTuple, Generic[S, T]):
    """The end of an act: its result, or the error that it raised."""

    subject: S
    result: T | None
    error: Exception | None


class StoreActs(Generic[S, T]):
    """Acts of one kind on the store.

    With ``apart`` each runs in its own thread, at most ``most`` at the same time. Without it each runs in ``begin``.
    """

    def __init__(self, name: str, *, apart: bool, done: Callable[[], None], most: int = 1) -> None:
        """``done`` is called in the act's own thread when the act has ended."""
        self._name = f"paceline-{name}"
        self._apart = apart
        self._done = done
        self._most = most
        self._under_way = 0
        self._ended: SimpleQueue[EndedAct[S, T]] = SimpleQueue()

    @property
    def busy(self) -> bool:
        """True if an act was begun whose end was not fetched yet."""
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

    def fetch(self, *, wait_s: float = 0.0) -> list[EndedAct[S, T]]:
        """Returns the acts that have ended since the last call; waits up to ``wait_s`` for the first of them."""
        found: list[EndedAct[S, T]] = []
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
        """Returns the result of the only act, or raises its error. None: it has not ended, or none was begun."""
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
            self._ended.put(EndedAct(subject, act(subject), None))
        except Exception as error:  # noqa: BLE001 - the caller of ``fetch`` raises it
            self._ended.put(EndedAct(subject, None, error))


Fence = tuple[int, int]


class Returns:
    """Runs to be given back to the store. They are kept until the store has taken them, even if it is unavailable."""

    def __init__(
        self, name: str, release: Callable[[list[Fence]], object], *, apart: bool, done: Callable[[], None]
    ) -> None:
        self._release = release
        self._waiting: list[Fence] = []
        self._acts: StoreActs[list[Fence], object] = StoreActs(name, apart=apart, done=done)

    def add(self, fences: Iterable[Fence]) -> None:
        self._waiting += fences

    def turn(self, *, wait_s: float = 0.0) -> None:
        if self._waiting and not self._acts.full:
            given, self._waiting = self._waiting, []
            self._acts.begin(given, self._release)
        for ended in self._acts.fetch(wait_s=wait_s):
            if ended.error is not None:
                self._waiting += ended.subject
                raise ended.error
