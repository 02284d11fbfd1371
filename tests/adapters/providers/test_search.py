"""Bodies are searched while they arrive and are not stored."""

from __future__ import annotations

import socket
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import given
from hypothesis import strategies as st

from paceline.adapters.providers.search import StreamSearch
from paceline.adapters.providers.transfer import HEAD_BYTES_MAX
from paceline.core.http.expectations import HttpExpect
from paceline.core.monitors.checks import ANSWER_BYTES_MAX, BYTES_CAP_MAX, HttpCheck
from paceline.core.parsing import TEXT_CHARS_MAX
from tests.adapters.providers.support.drive import gather, open_provider, order

MIB = 1_048_576
PIECE_BYTES_MAX = 16_384
"""libcurl hands over no more at a time."""


@given(st.lists(st.text("ab", max_size=6), max_size=8), st.lists(st.text("ab", max_size=5), max_size=3))
def test_stream_search_finds_a_text_exactly_if_the_whole_body_contains_it(
    pieces: list[str], needles: list[str]
) -> None:
    search = StreamSearch(needle.encode() for needle in needles)
    for piece in pieces:
        search.feed(piece.encode())
    for needle in needles:
        assert search.found(needle.encode()) == (needle in "".join(pieces))


def test_buffers_of_a_search_fit_into_the_memory_of_one_answer() -> None:
    window_bytes = 4 * TEXT_CHARS_MAX + PIECE_BYTES_MAX
    assert HEAD_BYTES_MAX + window_bytes + PIECE_BYTES_MAX <= ANSWER_BYTES_MAX


@contextmanager
def endless_bodies(mebibytes: int, ending: bytes) -> Iterator[str]:
    """Answers every request with so many mebibytes of dots, and the ending."""
    chunk = b"." * 65_536
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer(connection: socket.socket) -> None:
            with connection:
                connection.recv(65_536)
                length = mebibytes * MIB + len(ending)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length)
                for _ in range(mebibytes * MIB // len(chunk)):
                    connection.sendall(chunk)
                connection.sendall(ending)

        def serve() -> None:
            threads = []
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    break
                threads.append(threading.Thread(target=answer, args=(connection,)))
                threads[-1].start()
            for thread in threads:
                thread.join()

        server = threading.Thread(target=serve)
        server.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        listener.shutdown(socket.SHUT_RDWR)
        server.join()


def test_text_at_the_end_of_a_large_body_is_found_in_bounded_memory() -> None:
    checks = 12
    provider = open_provider("127.0.0.0/8")
    with endless_bodies(8, b"the end") as url:
        wanted = HttpCheck(url=url, timeout="60s", max_bytes=BYTES_CAP_MAX, expect=HttpExpect(body_contains="e end"))
        tracemalloc.start()
        try:
            provider.start([order(wanted, handle) for handle in range(1, checks + 1)])
            finished = gather(provider, checks, within_s=120.0)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            provider.close()
    assert [(item.outcome.ok, item.outcome.reason) for item in finished] == [(True, "")] * checks
    assert peak_bytes < checks * ANSWER_BYTES_MAX + 4 * MIB
