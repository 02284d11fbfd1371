"""libcurl's multi interface on one poll loop: many transfers at once, asleep until a socket, a timer or ``wake``."""

from __future__ import annotations

import contextlib
import resource
import select
import socket
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import pycurl

T = TypeVar("T")
CONNECTIONS_KEPT_MAX = 1_024
CLOSE_TIMEOUT_S = 1.0
_ENDED_READ_MAX = 1_000

# A poll event mask is small, so libcurl's flags for it come from a table instead of being computed for each event.
_IN, _OUT, _ERR, _HUP = select.POLLIN, select.POLLOUT, select.POLLERR, select.POLLHUP
_ACTIONS = tuple(
    (pycurl.CSELECT_IN if events & (_IN | _HUP) else 0)
    | (pycurl.CSELECT_OUT if events & _OUT else 0)
    | (pycurl.CSELECT_ERR if events & _ERR else 0)
    for events in range(64)
)
_MASKS = {pycurl.POLL_NONE: 0, pycurl.POLL_IN: _IN, pycurl.POLL_OUT: _OUT, pycurl.POLL_INOUT: _IN | _OUT}


Ended = tuple[T, int]
"""A transfer that has ended and libcurl's error code, 0 for none."""


class CurlLoop(Generic[T]):
    """A loop that drives transfers. One thread calls it; any other thread may call ``wake``."""

    def __init__(self) -> None:
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        descriptors_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._multi.setopt(pycurl.M_MAXCONNECTS, min(CONNECTIONS_KEPT_MAX, max(1, descriptors_max // 2)))
        self._poller, self._poll = _open_poller()
        self._watched: set[int] = set()
        self._resting: set[int] = set()
        self._wake_socket, self._wake_sender = socket.socketpair()
        self._wake_socket.setblocking(False)
        self._wake_sender.setblocking(False)
        self._wake_fd = self._wake_socket.fileno()
        self._poller.register(self._wake_fd, _IN)
        self._flying: dict[pycurl.Curl, T] = {}
        self.woken = False
        """True after ``wake`` was called, until the caller that reads it sets it to False again."""

    def add(self, curl: pycurl.Curl, transfer: T) -> None:
        """Add a transfer. It begins with the next ``turn`` or ``kick``, and ``turn`` returns it when it has ended."""
        self._multi.add_handle(curl)
        self._flying[curl] = transfer

    def kick(self) -> None:
        """Begin the added transfers without running a turn."""
        self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)

    def turn(self, wait_ms: int) -> list[Ended[T]]:
        """Run timers, then sockets, and return what has ended.

        Waits up to ``wait_ms`` for the first event, unless a transfer has ended. Added transfers begin with the timers:
        libcurl counts them as due at once.
        """
        multi = self._multi
        if multi.timeout() == 0:
            multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
        ended: list[Ended[T]] = []
        if wait_ms:
            ended = self._read_ended()
            due_ms = 0 if ended else multi.timeout()
            wait_ms = min(wait_ms, due_ms) if due_ms >= 0 else wait_ms
        act = multi.socket_action
        for fd, events in self._poll(wait_ms):
            if fd == self._wake_fd:
                self._drain_wake_socket()
            elif fd in self._resting:
                self._forget(fd)
            else:
                act(fd, _ACTIONS[events & 63])
        return ended + self._read_ended()

    def wake(self) -> None:
        """End the current or the next wait. May be called from any thread, also after ``close``."""
        # A full buffer means that the loop is awake already; a closed socket means that nobody waits any more.
        with contextlib.suppress(BlockingIOError, OSError):
            self._wake_sender.send(b"!")

    def close(self) -> None:
        """Drop the transfers in flight and close all sockets."""
        for curl in self._flying:
            self._multi.remove_handle(curl)
            curl.close()
        self._flying.clear()
        # libcurl waits here for name lookups that the system's resolver has not answered, which can take long. They end
        # by themselves, so a thread waits for them.
        closing = threading.Thread(target=self._multi.close, name="curl-close", daemon=True)
        closing.start()
        closing.join(CLOSE_TIMEOUT_S)
        if hasattr(self._poller, "close"):
            self._poller.close()
        self._wake_socket.close()
        self._wake_sender.close()

    def _read_ended(self) -> list[Ended[T]]:
        ended: list[Ended[T]] = []
        remove, flying = self._multi.remove_handle, self._flying
        more = True
        while more:
            more, good, bad = self._multi.info_read(_ENDED_READ_MAX)
            for curl in good:
                remove(curl)
                ended.append((flying.pop(curl), 0))
            for curl, error, _ in bad:
                remove(curl)
                ended.append((flying.pop(curl), error))
        return ended

    def _on_socket(self, what: int, fd: int, _multi: pycurl.CurlMulti, _data: object) -> None:
        """Watch a socket for the events that libcurl asks for.

        A socket that libcurl releases stays with the poller: most often the next transfer on a kept connection uses it
        again, and that saves a system call each time. If an event comes in between, the poller drops the socket.
        """
        if what == pycurl.POLL_REMOVE:
            self._resting.add(fd)
            return
        if fd in self._watched:
            self._resting.discard(fd)
            try:
                self._poller.modify(fd, _MASKS[what])
            except FileNotFoundError:
                pass  # closed in between, which removed it from the poller: this is a new socket with the same number
            else:
                return
        self._watched.add(fd)
        self._poller.register(fd, _MASKS[what])

    def _forget(self, fd: int) -> None:
        self._resting.discard(fd)
        self._watched.discard(fd)
        with contextlib.suppress(OSError, KeyError):
            self._poller.unregister(fd)

    def _drain_wake_socket(self) -> None:
        self.woken = True
        with contextlib.suppress(BlockingIOError):
            while self._wake_socket.recv(4_096):
                pass


def _open_poller() -> tuple[Any, Callable[[int], list[tuple[int, int]]]]:
    """Open epoll if the system has it, else poll, which has the same methods but counts in milliseconds."""
    if hasattr(select, "epoll"):
        epoll = select.epoll()
        wait = epoll.poll
        return epoll, lambda wait_ms: wait(wait_ms / 1_000)
    poller = select.poll()
    return poller, poller.poll
