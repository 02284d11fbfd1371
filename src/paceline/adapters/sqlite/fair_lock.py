"""A lock that is given to the thread that has waited longest."""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType
from typing import Self


class FairLock:
    """A reentrant lock that threads get in the order in which they asked for it.

    A plain lock goes to the thread that runs first after a release, which is most often the one that had it: a thread
    that writes without a pause keeps the others out for seconds.
    """

    def __init__(self) -> None:
        self._state = threading.Lock()  # guards the fields below; never held while waiting
        self._owner: int | None = None
        self._depth = 0
        self._waiting: deque[tuple[int, threading.Lock]] = deque()

    def acquire(self, timeout_s: float = -1) -> bool:
        """Wait for the lock, without limit if the time is negative. Return False if the time ran out."""
        thread = threading.get_ident()
        with self._state:
            if self._owner in (None, thread):
                self._owner = thread
                self._depth += 1
                return True
            gate = threading.Lock()
            gate.acquire()
            self._waiting.append((thread, gate))
        try:
            if gate.acquire(timeout=timeout_s):
                return True
        except BaseException:
            if not self._leave(thread, gate):
                self.release()
            raise
        return not self._leave(thread, gate)

    def release(self) -> None:
        """Release the lock and give it to the thread that has waited longest."""
        with self._state:
            assert self._owner == threading.get_ident()
            self._depth -= 1
            if self._depth:
                return
            if not self._waiting:
                self._owner = None
                return
            self._owner, gate = self._waiting.popleft()
            self._depth = 1
            gate.release()

    @property
    def waiting(self) -> int:
        """Number of threads that wait for the lock now."""
        return len(self._waiting)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _leave(self, thread: int, gate: threading.Lock) -> bool:
        """Leave the queue. Return False if the lock was handed over at the very moment at which this thread gave up."""
        with self._state:
            if (thread, gate) not in self._waiting:
                return False
            self._waiting.remove((thread, gate))
            return True
