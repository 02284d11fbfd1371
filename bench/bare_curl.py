"""The floor of ``checks``: a bare CurlMulti loop in its own process, with a fixed number of requests in flight.

``python -m bench.bare_curl URL CONCURRENCY``. Handles are made once and used again, so connections are kept alive; each
answer's status and bytes are read, and nothing else is done.
"""

from __future__ import annotations

import json
import select
import sys
import time

import pycurl


class BareLoop:
    """libcurl's socket interface on epoll, as any fast loop would drive it."""

    def __init__(self, url: str, concurrency: int) -> None:
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        self._epoll = select.epoll()
        self._idle = [self._handle(url) for _ in range(concurrency)]
        self.good = self.bytes = 0

    def run(self, requests: int) -> None:
        left = flying = requests
        while flying:
            while left and self._idle:
                self._multi.add_handle(self._idle.pop())
                left -= 1
            self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
            flying -= self._read_ended()
            wait_ms = self._multi.timeout()
            for fd, events in self._epoll.poll(min(wait_ms, 1_000) / 1_000 if wait_ms >= 0 else 1):
                self._multi.socket_action(fd, events & select.EPOLLIN | (events & select.EPOLLOUT) >> 1)
            flying -= self._read_ended()

    def _read_ended(self) -> int:
        more, good, bad = self._multi.info_read(1_000)
        for curl in good:
            self._multi.remove_handle(curl)
            self.good += curl.getinfo(pycurl.RESPONSE_CODE) == 200
            self._idle.append(curl)
        assert not bad, bad
        assert not more
        return len(good)

    def _handle(self, url: str) -> pycurl.Curl:
        curl = pycurl.Curl()
        curl.setopt(pycurl.URL, url)
        curl.setopt(pycurl.NOSIGNAL, 1)
        curl.setopt(pycurl.TIMEOUT_MS, 10_000)
        curl.setopt(pycurl.WRITEFUNCTION, self._take)
        return curl

    def _take(self, piece: bytes) -> None:
        self.bytes += len(piece)

    def _on_socket(self, what: int, fd: int, _multi: object, _data: object) -> None:
        if what == pycurl.POLL_REMOVE:
            self._epoll.unregister(fd)
            return
        mask = {pycurl.POLL_IN: 1, pycurl.POLL_OUT: 4, pycurl.POLL_INOUT: 5}.get(what, 0)
        try:
            self._epoll.register(fd, mask)
        except FileExistsError:
            self._epoll.modify(fd, mask)


class PerformLoop(BareLoop):
    """The loop of pycurl's own examples: perform, read, select."""

    def __init__(self, url: str, concurrency: int) -> None:
        super().__init__(url, concurrency)
        handles = self._idle
        self._multi = pycurl.CurlMulti()
        self._idle = handles

    def run(self, requests: int) -> None:
        left = flying = requests
        while flying:
            while left and self._idle:
                self._multi.add_handle(self._idle.pop())
                left -= 1
            self._multi.perform()
            ended = self._read_ended()
            flying -= ended
            if not ended:
                self._multi.select(1.0)


def main() -> None:
    """Answers each line of input, a number of requests, with requests per CPU-second.

    Measures both loops and counts the cheaper one, so that the floor does not flatter Paceline.
    """
    url, concurrency = sys.argv[1], int(sys.argv[2])
    loops = (BareLoop(url, concurrency), PerformLoop(url, concurrency))
    for loop in loops:
        loop.run(concurrency)  # opens the connections
    for line in sys.stdin:
        print(json.dumps({type(loop).__name__: _per_cpu_s(loop, int(line)) for loop in loops}), flush=True)


def _per_cpu_s(loop: BareLoop, requests: int) -> float:
    good, cpu_s = loop.good, time.process_time()
    loop.run(requests)
    assert loop.good - good == requests, loop.good - good
    return requests / (time.process_time() - cpu_s)


if __name__ == "__main__":
    main()
