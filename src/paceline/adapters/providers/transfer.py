"""One libcurl handle and what it collects from an answer. Handles are reused: making one is slow."""

from __future__ import annotations

import codecs
import re
import socket
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pycurl

from paceline import __version__
from paceline.adapters.providers.authorities import Authorities
from paceline.adapters.providers.guard import NOT_PUBLIC, AddressGuard
from paceline.adapters.providers.search import StreamSearch
from paceline.core.monitors.definition import duration_ms
from paceline.core.monitors.outcome import Done
from paceline.core.monitors.values import CheckOrder

USER_AGENT = f"Paceline/{__version__}"
NO_SOCKET = "no socket could be opened; the machine that runs Paceline may be out of file descriptors (ulimit -n)"
CONNECTION_AGE_S_MAX = 60
CONNECTION_REST_S_MAX = 30
NAMES_KEPT_S = 30
TIMEOUTS_CACHED_MAX = 1_024
HEAD_BYTES_MAX = 65_536
"""Bytes of an answer's header lines that are kept; the rest is dropped."""

_CHARSET = re.compile(r"charset=\"?([\w.-]{1,40})", re.IGNORECASE)
_WEB = pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS
timeout_ms = lru_cache(TIMEOUTS_CACHED_MAX)(duration_ms)
_TOTAL, _FIRST_BYTE = pycurl.TOTAL_TIME_T, pycurl.STARTTRANSFER_TIME_T
_TEXT_CHARSET = re.compile(r"utf-(?:16|32)|iso(?:8859|2022)|cp\d|koi8|gb|hz|big5|euc|shift_jis|mac")
"""Python's names of the character sets that web pages use. Other codecs can be slow on hostile bytes."""
_FAMILIES = frozenset({socket.AF_INET, socket.AF_INET6})


class _Handover:
    """A socket whose descriptor libcurl copies; it is closed when this object is deleted."""

    __slots__ = ("_socket",)

    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened

    def fileno(self) -> int:
        return self._socket.fileno()

    def __del__(self) -> None:
        self._socket.close()


class Transfer:
    """A handle with the guard on its sockets and a limit on its body."""

    __slots__ = (
        "_authorities",
        "_guard",
        "bytes_max",
        "bytes_read",
        "capped",
        "curl",
        "head",
        "head_bytes",
        "judge",
        "keeps_body",
        "kept_max",
        "order",
        "pieces",
        "pool",
        "refusal",
        "search",
        "started_ms",
        "timeout",
        "url",
        "wanted",
    )

    order: CheckOrder
    judge: Callable[[Transfer, Any, int], Done]
    started_ms: int

    def __init__(self, guard: AddressGuard, authorities: Authorities, pool: list[Transfer]) -> None:
        self._guard = guard
        self._authorities = authorities
        self.pool = pool
        self.curl = pycurl.Curl()
        self.pieces: list[bytes] = []
        self.head: list[bytes] = []
        self.keeps_body = False
        self.kept_max = 0
        """Bytes of the body that are kept to judge a check; nearly always 0."""
        self.head_bytes = 0
        self.wanted: tuple[str, ...] = ()
        self.search: StreamSearch | None = None
        self.bytes_max = 0
        self.clear()
        self.reset()

    def clear(self) -> None:
        """Drop what the last check collected."""
        self.refusal: str | None = None
        self.bytes_read = 0
        self.capped = False
        if self.pieces:
            self.pieces = []
        if self.head:
            self.head = []

    def reset(self) -> None:
        """Set every option to the value that each check begins with."""
        self.url = self.timeout = ""
        self.curl.reset()
        set_option = self.curl.setopt
        set_option(pycurl.NOSIGNAL, 1)
        set_option(pycurl.PROTOCOLS, _WEB)
        set_option(pycurl.REDIR_PROTOCOLS, _WEB)
        # Without these, libcurl takes a proxy from the environment, and the guard would judge the proxy's address.
        set_option(pycurl.PROXY, "")
        set_option(pycurl.NOPROXY, "*")
        set_option(pycurl.USERAGENT, USER_AGENT)
        set_option(pycurl.ACCEPT_ENCODING, "")
        set_option(pycurl.DNS_CACHE_TIMEOUT, NAMES_KEPT_S)
        set_option(pycurl.MAXAGE_CONN, CONNECTION_REST_S_MAX)
        set_option(pycurl.MAXLIFETIME_CONN, CONNECTION_AGE_S_MAX)
        set_option(pycurl.OPENSOCKETFUNCTION, self._open_socket)
        set_option(pycurl.WRITEFUNCTION, self._take_piece)
        if self._authorities.file is not None:
            set_option(pycurl.CAINFO, self._authorities.file)
        if self._authorities.directory is not None:
            set_option(pycurl.CAPATH, self._authorities.directory)

    def aim(self, url: str, timeout: str) -> None:
        """Set the URL and the time limit of the whole transfer."""
        if url != self.url:
            self.curl.setopt(pycurl.URL, url)
            self.url = url
        if timeout != self.timeout:
            self.curl.setopt(pycurl.TIMEOUT_MS, timeout_ms(timeout))
            self.timeout = timeout

    def content_type(self) -> str:
        """Return the content type from the kept header lines; libcurl does not tell it before the transfer is over."""
        for line in self.head:
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"content-type":
                return value.decode("latin-1")
        return ""

    def keep_head(self) -> None:
        """Keep the header lines of the answer."""
        self.curl.setopt(pycurl.HEADERFUNCTION, self._take_head_line)

    def _open_socket(self, _purpose: int, address: tuple[int, int, int, Any]) -> _Handover | int:
        """Ask the guard, and open a socket if it agrees. libcurl opens all its sockets here."""
        family, kind, protocol, place = address
        refusal = self._guard.refusal(place[0], place[1]) if family in _FAMILIES else NOT_PUBLIC
        if refusal is None:
            try:
                return _Handover(socket.socket(family, kind, protocol))
            except OSError:
                refusal = NO_SOCKET
        # Kept even if libcurl goes on to another address of the same name: the reason must not depend on their order.
        self.refusal = refusal
        refused: int = pycurl.SOCKET_BAD
        return refused

    def _take_piece(self, piece: bytes) -> int | None:
        """Count unpacked bytes and keep or search them. Return 0 to end the transfer at the limit."""
        room = self.bytes_max - self.bytes_read
        if len(piece) > room:
            piece = piece[:room]
            self.capped = True
        self.bytes_read += len(piece)
        if self.keeps_body:
            self.pieces.append(piece)
        elif self.wanted or self.kept_max:
            self._look_into(piece)
        return 0 if self.capped else None

    def _look_into(self, piece: bytes) -> None:
        """Search the piece, and keep the beginning of the body if it must be judged as a whole."""
        if self.wanted:
            if self.search is None:
                self.search = StreamSearch(encode_like(text, self.content_type()) for text in self.wanted)
            self.search.feed(piece)
        if (room := self.kept_max - (self.bytes_read - len(piece))) > 0:
            self.pieces.append(piece[:room])

    def _take_head_line(self, line: bytes) -> None:
        if line.startswith(b"HTTP/"):  # the next answer after a redirect
            self.head.clear()
            self.head_bytes = 0
        self.head_bytes += len(line)
        if self.head_bytes <= HEAD_BYTES_MAX:
            self.head.append(line)


def encode_like(text: str, content_type: str) -> bytes:
    """Return the text in the answer's character set, if that is known and has these characters; else in UTF-8."""
    match = _CHARSET.search(content_type)
    try:
        return text.encode(match[1]) if match else text.encode()
    except (LookupError, UnicodeError):
        return text.encode("utf-8", "replace")


def in_utf8(body: bytes, content_type: str) -> bytes:
    """Return the body in UTF-8, read in the character set that the answer declares; unchanged if that is unknown."""
    match = _CHARSET.search(content_type)
    if match is None:
        return body
    try:
        charset = codecs.lookup(match[1]).name
    except LookupError:
        return body
    return body.decode(charset, "replace").encode("utf-8", "replace") if _TEXT_CHARSET.match(charset) else body


def phases_ms(curl: pycurl.Curl, *, reused: bool = False) -> dict[str, float]:
    """Return the duration of each phase and the total; a phase that was not reached or not needed took 0."""
    info = curl.getinfo
    total_us = info(_TOTAL)
    first_us = info(_FIRST_BYTE)
    if reused:
        total_ms = total_us / 1_000
        return {"name_lookup": 0.0, "connect": 0.0, "tls": 0.0, "first_byte": first_us / 1_000, "total": total_ms}
    name_us = info(pycurl.NAMELOOKUP_TIME_T)
    connect_us = info(pycurl.CONNECT_TIME_T)
    tls_us = info(pycurl.APPCONNECT_TIME_T)
    ready_us = tls_us or connect_us or name_us
    return {
        "name_lookup": name_us / 1_000,
        "connect": (connect_us - name_us) / 1_000 if connect_us > name_us else 0.0,
        "tls": (tls_us - connect_us) / 1_000 if tls_us > connect_us else 0.0,
        "first_byte": (first_us - ready_us) / 1_000 if first_us > ready_us else 0.0,
        "total": total_us / 1_000,
    }
