"""Threads for work that takes long. Users take turns for them."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, NamedTuple, ParamSpec, TypeVar

from paceline.core.shares import Claimant, fair_shares

P = ParamSpec("P")
T = TypeVar("T")


class _Ticket(NamedTuple):
    future: Future[Any]
    act: Callable[[], Any]


class FairThreads:
    """A few threads, shared max-min fair among the users who have work for them.

    A free thread goes to the user who uses the fewest, and among equals to the one who has waited longest for a turn.
    Nobody uses more than ``each_max`` at once, so that a thread is free for the next user.
    """

    def __init__(self, name: str, *, threads: int, each_max: int) -> None:
        """``name``: the threads' names begin with it."""
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._each_max = each_max
        self._lock = threading.Lock()  # guards the fields below
        self._closed = False
        self._free = threads
        self._used: Counter[str] = Counter()
        self._waiting: dict[str, deque[_Ticket]] = {}
        """Work by user; the user who has waited longest for a turn comes first."""

    def of(self, user: str) -> Executor:
        """Returns an executor that waits for this user's turns."""
        return _OneUser(self, user)

    def submit(self, user: str, act: Callable[[], T]) -> Future[T]:
        """Does the work once the user has a turn. It is left out if the future is cancelled before."""
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("these threads are closed")
            self._waiting.setdefault(user, deque()).append(_Ticket(future, act))
            self._start_next()
        return future

    def close(self, *, wait: bool) -> None:
        """Leaves out what waits. ``wait``: returns only when what has begun has ended."""
        with self._lock:
            self._closed = True
            left = [ticket for queue in self._waiting.values() for ticket in queue]
            self._waiting.clear()
        for ticket in left:
            ticket.future.cancel()
        self._executor.shutdown(wait=wait)

    def _start_next(self) -> None:
        """Starts what may start now. Called under the lock."""
        while self._free and self._waiting:
            users = list(self._waiting)
            claimants = [Claimant(len(self._waiting[user]), self._used[user]) for user in users]
            shares = fair_shares(1, claimants, ceiling=self._each_max)
            if not any(shares):
                return
            user = users[shares.index(1)]
            queue = self._waiting.pop(user)
            ticket = queue.popleft()
            if queue:
                self._waiting[user] = queue  # behind those who have waited longer
            self._free -= 1
            self._used[user] += 1
            self._executor.submit(self._do, user, ticket)

    def _do(self, user: str, ticket: _Ticket) -> None:
        """Does one piece of work, then starts what waits for its thread. Runs in a thread."""
        if ticket.future.set_running_or_notify_cancel():
            try:
                result = ticket.act()
            except BaseException as error:  # noqa: BLE001  raised again where the result is awaited
                ticket.future.set_exception(error)
            else:
                ticket.future.set_result(result)
        with self._lock:
            self._used -= Counter([user])  # drops counts of zero
            self._free += 1
            self._start_next()


class _OneUser(Executor):
    """The threads, as one user sees them."""

    def __init__(self, threads: FairThreads, user: str) -> None:
        self._threads = threads
        self._user = user

    def submit(self, act: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return self._threads.submit(self._user, lambda: act(*args, **kwargs))
