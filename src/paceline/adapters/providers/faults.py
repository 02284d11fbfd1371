"""Reasons why a transfer failed. libcurl's own messages are not quoted whole: they contain what a user sent."""

from __future__ import annotations

import errno
import socket
from urllib.parse import urlsplit

import pycurl

from paceline.adapters.providers.transfer import NO_SOCKET, Transfer

_X509_WORDS = {
    9: "the certificate is not valid yet",
    10: "the certificate has expired",
    18: "the certificate is self-signed",
    19: "the certificate chain ends in a self-signed certificate that is not trusted here",
    20: "the certificate is of an authority that is not trusted here, or its chain is incomplete",
    21: "the certificate is of an authority that is not trusted here, or its chain is incomplete",
    23: "the certificate was revoked",
}
"""Texts by OpenSSL's verify result."""

_ERRNO_WORDS = {
    0: NO_SOCKET,  # not even tried
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "connection reset",
    errno.EHOSTUNREACH: "no route to the host",
    errno.ENETUNREACH: "the network cannot be reached",
    errno.ETIMEDOUT: "the connection timed out in the network",
    errno.EADDRNOTAVAIL: "no local address or port was free to connect from",
}

HEADERS_TOO_LARGE = "the headers of the answer are too large"

_WORDS = {
    pycurl.E_URL_MALFORMAT: "the host or URL cannot be used; check its spelling",
    pycurl.E_COULDNT_RESOLVE_HOST: "could not resolve host",
    8: "the answer is not HTTP",  # E_WEIRD_SERVER_REPLY, which older pycurl does not name
    pycurl.E_PARTIAL_FILE: "the connection was closed before the whole answer had come",
    pycurl.E_GOT_NOTHING: "the connection was closed without an answer",
    pycurl.E_SEND_ERROR: "the connection was lost while sending the request",
    pycurl.E_RECV_ERROR: "the connection was lost while reading the answer",
    pycurl.E_BAD_CONTENT_ENCODING: "the answer cannot be unpacked: its Content-Encoding is broken",
    pycurl.E_OUT_OF_MEMORY: "out of memory",
    77: "the store of trusted certificates cannot be read; name one with SSL_CERT_FILE",  # E_SSL_CACERT_BADFILE
    16: "the HTTP/2 connection failed",  # E_HTTP2
    100: HEADERS_TOO_LARGE,  # E_TOO_LARGE: one line alone
    92: "the HTTP/2 stream was broken off",  # E_HTTP2_STREAM
}


def fault_words(transfer: Transfer, error: int, *, timeout: str) -> str:
    """Return the reason that belongs to libcurl's error code."""
    if error == pycurl.E_COULDNT_CONNECT:
        return transfer.refusal or _ERRNO_WORDS.get(transfer.curl.getinfo(pycurl.OS_ERRNO), "could not connect")
    if error == pycurl.E_OPERATION_TIMEDOUT:
        return f"timed out after {timeout} {_phase_words(transfer.curl)}"
    if error == pycurl.E_SSL_CACERT:
        return certificate_words(transfer.curl)
    if error == pycurl.E_SSL_CONNECT_ERROR:
        return _handshake_words(transfer.curl)
    if error == pycurl.E_UNSUPPORTED_PROTOCOL:
        redirected = transfer.curl.getinfo(pycurl.RESPONSE_CODE) != 0
        return "the redirect leads to something other than http or https" if redirected else "the answer is not HTTP"
    if error == pycurl.E_TOO_MANY_REDIRECTS:
        return "more redirects than follow_redirects allows"
    if error == pycurl.E_RECV_ERROR and "response headers" in transfer.curl.errstr():
        return HEADERS_TOO_LARGE
    return _WORDS.get(error) or f"failed: {pycurl.easy_strerror(error).lower()}"


def certificate_words(curl: pycurl.Curl) -> str:
    """Return what is wrong with the certificate. libcurl itself, not OpenSSL, compares the host name."""
    if "subject name" in curl.errstr():
        return "the certificate is for another host name"
    result = curl.getinfo(pycurl.SSL_VERIFYRESULT)
    return _X509_WORDS.get(result, f"the certificate cannot be verified (OpenSSL's verify result {result})")


def _phase_words(curl: pycurl.Curl) -> str:
    if not curl.getinfo(pycurl.NAMELOOKUP_TIME) and not _is_address(curl.getinfo(pycurl.EFFECTIVE_URL)):
        return "while resolving the host name"
    if not curl.getinfo(pycurl.CONNECT_TIME):
        return "while connecting"
    if curl.getinfo(pycurl.EFFECTIVE_URL).startswith("https") and not curl.getinfo(pycurl.APPCONNECT_TIME):
        return "in the TLS handshake"
    if not curl.getinfo(pycurl.STARTTRANSFER_TIME):
        return "while waiting for the answer"
    return "while reading the answer"


def _is_address(url: str) -> bool:
    """Return True if the host is an IP address in any spelling: there is no name to resolve then."""
    host = urlsplit(url).hostname or ""
    try:
        socket.inet_pton(socket.AF_INET6, host)
    except OSError:
        try:
            socket.inet_aton(host)
        except OSError:
            return False
    return True


def _handshake_words(curl: pycurl.Curl) -> str:
    _, found, cause = curl.errstr().rpartition("::")
    return f"the TLS handshake failed: {cause.strip()}" if found else "the TLS handshake failed"
