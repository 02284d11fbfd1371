"""A small SMTP server on loopback that keeps the messages it takes."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import Message


class MailSink(socketserver.ThreadingTCPServer):
    """``messages`` are those that were taken; ``refusing`` makes it refuse the next ones."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.messages: list[Message] = []
        self.refusing = False

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Session(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, MailSink)
        self._say("220 sink")
        for line in self.rfile:
            verb = line.strip().upper().split(b" ")[0].split(b":")[0]
            if verb == b"EHLO":
                self._say("250-sink")
                self._say("250 8BITMIME")
            elif verb == b"DATA" and not self.server.refusing:
                self._say("354 go on")
                self.server.messages.append(message_from_bytes(b"".join(iter(self.rfile.readline, b".\r\n"))))
                self._say("250 taken")
            elif verb == b"QUIT":
                self._say("221 bye")
                return
            else:
                self._say("550 refused" if self.server.refusing and verb != b"HELO" else "250 ok")

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


@contextmanager
def mail_sink() -> Iterator[MailSink]:
    with MailSink() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield server
        server.shutdown()
