"""URLs, hosts and headers: those that can be reached are saved, the others are refused with what is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.targets import (
    HEADER_CHARS_MAX,
    HOST_CHARS_MAX,
    RESERVED_HEADERS,
    URL_CHARS_MAX,
    header_problem,
    host_problem,
    url_problem,
)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org",
        "https://example.org:8443/a?b=c#d",
        "http://192.0.2.1/",
        "http://[2001:db8::1]:80/",
        "https://xn--bcher-kva.example/",
        "http://under_score.example./",
    ],
)
def test_url_with_a_host_is_saved(url: str) -> None:
    assert url_problem(url) is None


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://example.org/" + "a" * URL_CHARS_MAX, "at most 2048 characters"),
        ("http://example.org/a b", "must be percent-encoded"),
        ("http://b\u00fccher.example/", "must be percent-encoded; write a host name that has them as xn--…"),
        ("http://example.org\\@evil.example/", "must be percent-encoded"),
        ("http://[::1/", "not a URL"),
        ("http://example.org:port/", "not a URL"),
        ("http://example.org:65536/", "not a URL"),
        ("ftp://example.org/", "must begin with http:// or https://"),
        ("example.org", "must begin with http:// or https://"),
        ("https://ada:secret@example.org/", "user and password do not belong in the URL"),
        ("https:///path", "needs a host"),
        ("https://example.org:0/", "a port from 1 to 65535"),
        ("https://-example.org/", "not a host name or address"),
    ],
)
def test_url_that_cannot_be_called_is_refused_with_what_is_wrong(url: str, words: str) -> None:
    problem = url_problem(url)
    assert problem is not None
    assert words in problem


@pytest.mark.parametrize("host", ["::1", "[2001:db8::1]", "a", "a.b.", "192.0.2.1", "a" * 63 + ".org"])
def test_host_name_or_address_is_saved(host: str) -> None:
    assert host_problem(host) is None


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("", f"1 to {HOST_CHARS_MAX} characters"),
        ("a." * 127 + "a", f"1 to {HOST_CHARS_MAX} characters"),
        ("example.org:80", "not an IPv6 address; a port is given apart from the host"),
        ("[example.org]", "not an IPv6 address"),
        ("fe80::1%eth0", "not an IPv6 address"),
        ("a..b", "not a host name or address"),
        ("a" * 64 + ".org", "not a host name or address"),
        ("b\u00fccher.example", "write international names in their xn-- form"),
    ],
)
def test_text_that_is_no_host_is_refused_with_what_is_wrong(host: str, words: str) -> None:
    problem = host_problem(host)
    assert problem is not None
    assert words in problem


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("X Y", "a", "not a header name"),
        ("", "a", "not a header name"),
        ("X-Long", "a" * (HEADER_CHARS_MAX + 1), "at most 4096 characters"),
        ("X-Split", "a\r\nb: c", "no line breaks or control characters"),
        ("X-Delete", "a\x7f", "no line breaks or control characters"),
        ("X-Name", "b\u00fccher", "must be ASCII"),
    ],
)
def test_header_that_cannot_be_sent_is_refused_with_what_is_wrong(name: str, value: str, words: str) -> None:
    problem = header_problem(name, value)
    assert problem is not None
    assert words in problem


@pytest.mark.parametrize("name", sorted(RESERVED_HEADERS))
def test_header_that_paceline_sets_cannot_be_given_in_any_case(name: str) -> None:
    for spelling in (name, name.upper(), name.title()):
        assert header_problem(spelling, "a") == f"{spelling} is set by Paceline and cannot be given"


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126) | st.just("\t"), max_size=HEADER_CHARS_MAX))
def test_header_of_printable_ascii_and_tabs_is_saved(value: str) -> None:
    assert header_problem("X-Any", value) is None
