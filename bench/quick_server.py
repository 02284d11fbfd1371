"""An HTTP server that costs next to nothing, so that its client is the bottleneck. Used only by the benchmarks.

It answers 200 to every request without a body, and looks only for the end of the request's head.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 3\r\n\r\nok\n"
END = b"\r\n\r\n"


class Answering(asyncio.Protocol):
    """Answers requests. Heads may come in pieces, and several may come at once."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transport does not inherit from it

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        if self._rest:
            data = self._rest + data
        requests = data.count(END)
        self._rest = b"" if data.endswith(END) else data[data.rfind(END) + len(END) :] if requests else data
        if requests:
            self._transport.write(ANSWER * requests)


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", 0, backlog=4_096)
    sys.stdout.write(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/ok\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve())
