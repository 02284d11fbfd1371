"""HTTP checks: preparing the request that the user declared, and judging its answer."""

from __future__ import annotations

import re
from typing import Any

import pycurl

from paceline.adapters.providers.certificates import ask_for_certificate, certificate_facts
from paceline.adapters.providers.faults import fault_words
from paceline.adapters.providers.search import StreamSearch
from paceline.adapters.providers.transfer import Transfer, encode_like, in_utf8, phases_ms
from paceline.core.http.answers import Body, HttpAnswer, http_mismatch
from paceline.core.http.auth import AUTHORIZATION, authorization
from paceline.core.http.expectations import ANY_2XX, KEPT_BYTES_MAX, HttpExpect
from paceline.core.monitors.checks import HttpCheck
from paceline.core.monitors.outcome import REASON_CHARS_MAX, Done

TEXT_TYPE = "Content-Type: text/plain; charset=utf-8"
NO_TYPE = "Content-Type:"
"""Without this empty header, libcurl declares a body to be a form."""

_CODE, _ADDRESS = pycurl.RESPONSE_CODE, pycurl.PRIMARY_IP
_VERSION, _NEW_CONNECTIONS = pycurl.INFO_HTTP_VERSION, pycurl.NUM_CONNECTS
_HTTP_VERSIONS = {1: "1.0", 2: "1.1", 3: "2", 30: "3"}
_USERINFO = re.compile(r"//[^/?#]*@")
_OBEY_CODE = 2
"""Follow redirects with the method that their status code asks for; older libcurl takes any number for "follow"."""


def is_plain(check: HttpCheck) -> bool:
    """Return True if only URL and time-out set the check apart. Most checks are plain; their handles need no reset."""
    return (
        check.method == "GET"
        and not check.headers
        and check.auth is None
        and check.verify_tls
        and not check.follow_redirects
        and (check.expect is ANY_2XX or _asks_for_status(check.expect))
    )


def _asks_for_status(expect: HttpExpect) -> bool:
    """Return True if only a status, and perhaps a latency, is expected."""
    return (
        not expect.header
        and expect.body_contains is None
        and expect.body_lacks is None
        and not expect.needs_body
        and expect.days_left is None
    )


def prepare(transfer: Transfer, check: HttpCheck) -> None:
    transfer.aim(check.url, check.timeout)
    transfer.judge = judge
    transfer.bytes_max = check.max_bytes


def prepare_in_full(transfer: Transfer, check: HttpCheck) -> None:
    """Set all options of the check on a handle that was reset."""
    prepare(transfer, check)
    expect = check.expect
    transfer.wanted, transfer.search = _wanted(expect), None
    transfer.kept_max = min(check.max_bytes, KEPT_BYTES_MAX) if expect.needs_body else 0
    set_option = transfer.curl.setopt
    headers = [_header_line(name, value) for name, value in check.headers.items()]
    if check.method == "HEAD":
        set_option(pycurl.NOBODY, 1)
    elif check.method != "GET":
        set_option(pycurl.CUSTOMREQUEST, check.method)
        if check.body is not None or check.method in ("POST", "PUT", "PATCH"):
            set_option(pycurl.POSTFIELDS, (check.body or "").encode())
            if not any(name.lower() == "content-type" for name in check.headers):
                headers.append(TEXT_TYPE if check.body else NO_TYPE)
    if check.auth is not None:
        # libcurl sends this header to the first host only, not to the target of a redirect.
        headers.append(f"{AUTHORIZATION}: {authorization(check.auth)}")
    if headers:
        set_option(pycurl.HTTPHEADER, headers)
    if not check.verify_tls:
        set_option(pycurl.SSL_VERIFYPEER, 0)
        set_option(pycurl.SSL_VERIFYHOST, 0)
    if check.follow_redirects:
        set_option(pycurl.FOLLOWLOCATION, _OBEY_CODE)
        set_option(pycurl.MAXREDIRS, check.follow_redirects)
    if expect.days_left is not None:
        ask_for_certificate(transfer.curl)
    if expect.header or transfer.wanted or transfer.kept_max:  # the character set of the body is in the head
        transfer.keep_head()


def _wanted(expect: HttpExpect) -> tuple[str, ...]:
    """Return the texts that are searched for in the body."""
    if expect.body_contains is None and expect.body_lacks is None:
        return ()  # the usual case
    return tuple(text for text in (expect.body_contains, expect.body_lacks) if text is not None)


def judge(transfer: Transfer, check: HttpCheck, error: int) -> Done:
    """Return the outcome of the check. Neither reason nor detail quotes the request."""
    code = transfer.curl.getinfo(_CODE)
    if transfer.capped and error == pycurl.E_WRITE_ERROR:
        error = 0
    if error and transfer.refusal is not None and error == pycurl.E_COULDNT_CONNECT:
        return Done(ok=False, reason=transfer.refusal)
    detail = _measure(transfer, check, code)
    if check.expect.days_left is not None:
        detail |= certificate_facts(transfer)
    if error:
        reason = fault_words(transfer, error, timeout=check.timeout)
    elif 200 <= code < 300 and check.expect is ANY_2XX:
        reason = ""  # the usual case
    else:
        reason = http_mismatch(check, _answer(transfer, code, detail))[:REASON_CHARS_MAX]
    return Done(not reason, reason, detail["phases_ms"]["total"], code or None, detail)


def _measure(transfer: Transfer, check: HttpCheck, code: int) -> dict[str, Any]:
    """Return the detail of the outcome. Runs for every check, so it asks libcurl for nothing that cannot be there."""
    curl = transfer.curl
    info = curl.getinfo
    reused = code != 0 and info(_NEW_CONNECTIONS) == 0
    detail: dict[str, Any] = {
        "phases_ms": phases_ms(curl, reused=reused),
        "bytes": transfer.bytes_read,
        "address": info(_ADDRESS),
        "reused": reused,
    }
    if code:
        detail["http_version"] = _HTTP_VERSIONS.get(info(_VERSION), "other")
        if transfer.capped:
            detail["truncated"] = True
        if 300 <= code < 400 and (location := info(pycurl.REDIRECT_URL)):
            detail["location"] = _USERINFO.sub("//", location, count=1)[:REASON_CHARS_MAX]
        if check.follow_redirects and (redirects := info(pycurl.REDIRECT_COUNT)):
            detail["redirects"] = redirects
    return detail


def _answer(transfer: Transfer, code: int, detail: dict[str, Any]) -> HttpAnswer:
    """Return the answer in the form that core judges."""
    return HttpAnswer(
        code,
        lambda: _headers(transfer),
        lambda text: _holds(transfer, text),
        transfer.bytes_max if transfer.capped else None,
        lambda: _body(transfer),
        detail["phases_ms"]["total"],
        detail.get("days_left"),
    )


def _body(transfer: Transfer) -> Body:
    whole = transfer.bytes_read <= transfer.kept_max and not transfer.capped
    body = in_utf8(b"".join(transfer.pieces), transfer.content_type())
    return Body(body, None if whole else transfer.kept_max)


def _headers(transfer: Transfer) -> dict[str, str]:
    received: dict[str, str] = {}
    for line in transfer.head[1:]:
        name, colon, value = line.decode("latin-1").partition(":")
        if colon:
            key = name.strip().lower()
            received[key] = f"{received[key]}, {value.strip()}" if key in received else value.strip()
    return received


def _holds(transfer: Transfer, text: str) -> bool:
    content_type = transfer.content_type()
    search = transfer.search or StreamSearch(encode_like(wanted, content_type) for wanted in transfer.wanted)
    return search.found(encode_like(text, content_type))


def _header_line(name: str, value: str) -> str:
    """Return a header line for libcurl: "Name: value", or "Name;" if the value is empty, as "Name:" would remove it."""
    return f"{name}: {value}" if value.strip() else f"{name};"
