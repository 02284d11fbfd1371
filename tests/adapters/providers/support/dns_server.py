"""A tiny DNS server on loopback, UDP and TCP on one port, that answers from a table."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

Zone = dict[tuple[str, str], list[str] | dns.rcode.Rcode | None]
"""Answers by name and type: records, an error code, or None for no answer. Any other question gets NXDOMAIN."""


@contextlib.contextmanager
def dns_server(zone: Zone) -> Iterator[int]:
    """Runs the DNS server; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        port = listener.getsockname()[1]
        datagrams.bind(("127.0.0.1", port))
        threads = [
            threading.Thread(target=_serve_datagrams, args=(datagrams, zone)),
            threading.Thread(target=_serve_streams, args=(listener, zone)),
        ]
        for thread in threads:
            thread.start()
        try:
            yield port
        finally:
            with socket.socket(type=socket.SOCK_DGRAM) as last:
                last.sendto(b"", ("127.0.0.1", port))
            listener.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()


def _serve_datagrams(datagrams: socket.socket, zone: Zone) -> None:
    while True:
        wire, sender = datagrams.recvfrom(4_096)
        if not wire:
            return
        answer = _answer(wire, zone, bytes_max=512)
        if answer is not None:
            datagrams.sendto(answer, sender)


def _serve_streams(listener: socket.socket, zone: Zone) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            (length,) = struct.unpack("!H", connection.recv(2, socket.MSG_WAITALL))
            answer = _answer(connection.recv(length, socket.MSG_WAITALL), zone, bytes_max=65_535)
            if answer is not None:
                connection.sendall(struct.pack("!H", len(answer)) + answer)


def _answer(wire: bytes, zone: Zone, *, bytes_max: int) -> bytes | None:
    query = dns.message.from_wire(wire)
    question = query.question[0]
    response = dns.message.make_response(query)
    name, kind = question.name.to_text().removesuffix("."), dns.rdatatype.to_text(question.rdtype)
    found = zone.get((name, kind), dns.rcode.NXDOMAIN)
    if found is None:
        return None
    if isinstance(found, dns.rcode.Rcode):
        response.set_rcode(found)
    elif found:
        response.answer.append(dns.rrset.from_text(question.name, 60, "IN", kind, *found))
    answer = response.to_wire(max_size=65_535)
    if len(answer) > bytes_max:
        response.answer.clear()
        response.flags |= dns.flags.TC
        answer = response.to_wire()
    return answer
