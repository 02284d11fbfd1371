"""URLs, hosts and headers that a user may ask for, judged by their spelling.

Where a name leads is judged on the socket that is really opened; this only refuses what is wrong when it is saved.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from urllib.parse import urlsplit

URL_CHARS_MAX = 2_048
HOST_CHARS_MAX = 253
LABEL_CHARS_MAX = 63
HEADER_CHARS_MAX = 4_096
RESERVED_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "proxy-authorization"}
)
_PRINTABLE = re.compile(r"[!-\[\]-~]*")  # ASCII without blanks, and without the backslash
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_.])?")


def url_problem(url: str) -> str | None:
    """Return why this URL cannot be saved, or None."""
    if len(url) > URL_CHARS_MAX:
        return f"at most {URL_CHARS_MAX} characters"
    if not _PRINTABLE.fullmatch(url):
        return (
            "spaces, control and non-ASCII characters must be percent-encoded; write a host name that has them as xn--…"
        )
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "not a URL; write for example https://example.org/"
    if parts.scheme not in ("http", "https"):
        return "must begin with http:// or https://"
    if "@" in parts.netloc:
        return 'user and password do not belong in the URL; use "headers"'
    if not host or (port is not None and not 1 <= port <= 65_535):
        return "needs a host, and a port from 1 to 65535 if any"
    return host_problem(host)


def host_problem(host: str) -> str | None:
    """Return why this cannot be a host name or an address, or None."""
    if not host or len(host) > HOST_CHARS_MAX:
        return f"a host name or address of 1 to {HOST_CHARS_MAX} characters"
    if ":" in host or "[" in host or "]" in host:
        return None if _is_ipv6(host) else "not an IPv6 address; a port is given apart from the host"
    labels = host.removesuffix(".").split(".")
    if not _HOST.fullmatch(host) or any(not 1 <= len(label) <= LABEL_CHARS_MAX for label in labels):
        return "not a host name or address; write international names in their xn-- form"
    return None


def _is_ipv6(host: str) -> bool:
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        IPv6Address(bare)
    except ValueError:
        return False
    return "%" not in bare


def header_problem(name: str, value: str) -> str | None:
    """Return why this request header cannot be saved, or None."""
    if not _TOKEN.fullmatch(name):
        return "not a header name"
    if name.lower() in RESERVED_HEADERS:
        return f"{name} is set by Paceline and cannot be given"
    if len(value) > HEADER_CHARS_MAX:
        return f"at most {HEADER_CHARS_MAX} characters"
    if any(ord(char) < 32 and char != "\t" for char in value) or "\x7f" in value:
        return "a header value carries no line breaks or control characters"
    if not value.isascii():
        return "a header value must be ASCII"
    return None
