"""Turns the options of ``monitor set`` into the JSON document of the API, so that one parser checks both."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, NamedTuple

import msgspec

from paceline.core.monitors.schedule import Missed, Overlap
from paceline.errors import FieldProblem, InvalidInput
from paceline.shells.cli.options import PausedOption, flag, option

_JSON = re.compile(r"\s*(?:(/.*?)\s+)?(is|matches|at_least|at_most)\s+(.*)", re.DOTALL)


class MonitorOptions(NamedTuple):
    """Options of ``monitor set``; None for an option that was not given."""

    url: Annotated[str | None, option("URL", "HTTP check of this address.")] = None
    tcp: Annotated[str | None, option("HOST:PORT", "TCP check: is the connection accepted?")] = None
    dns: Annotated[str | None, option("NAME", "DNS check: does the name resolve?")] = None
    tls: Annotated[str | None, option("HOST[:PORT]", "TLS check: is the certificate good?")] = None
    outgoing: Annotated[str | None, option("JSON", "Give each run, with this JSON object, to your own checker.")] = None
    every: Annotated[str | None, option("DURATION", "Interval, for example 30s.")] = None
    cron: Annotated[str | None, option("EXPRESSION", "Five cron fields, instead of --every.")] = None
    timezone: Annotated[str | None, option("ZONE", "Time zone of --cron. [default: UTC]")] = None
    method: Annotated[str | None, option("METHOD", "HTTP method. [default: GET]")] = None
    header: Annotated[list[str] | None, option("NAME:VALUE", "A header to send, kept sealed; may be repeated.")] = None
    body: Annotated[str | None, option("TEXT", "Body to send with POST, PUT or PATCH, kept sealed.")] = None
    basic: Annotated[str | None, option("USER:PASSWORD", "Basic authentication, kept sealed.")] = None
    bearer: Annotated[str | None, option("TOKEN", "Bearer authentication, kept sealed.")] = None
    no_auth: Annotated[bool, flag("--no-auth", "Remove the authentication.")] = False
    follow_redirects: Annotated[int | None, option("N", "How many redirects to follow. [default: 0]")] = None
    verify_tls: Annotated[bool | None, flag("--verify-tls/--no-verify-tls", "Whether to verify the certificate.")] = (
        None
    )
    max_bytes: Annotated[int | None, option("N", "How many bytes of the body to read. [default: 1048576]")] = None
    expect_status: Annotated[
        list[str] | None, option("N|Nxx", "Good HTTP status, or class such as 2xx; may be repeated. [default: 2xx]")
    ] = None
    contains: Annotated[str | None, option("TEXT", "Text that the HTTP body must contain.")] = None
    lacks: Annotated[str | None, option("TEXT", "Text that the HTTP body must not contain.")] = None
    matches: Annotated[str | None, option("PATTERN", "Pattern that the HTTP body must match (RE2).")] = None
    expect_json: Annotated[
        list[str] | None,
        option(
            "'POINTER is|matches|at_least|at_most VALUE'",
            "Condition on a JSON body, such as '/status is up'; may be repeated.",
        ),
    ] = None
    expect_header: Annotated[
        list[str] | None,
        option("NAME:VALUE", "Header that the answer must have, with its whole value; may be repeated."),
    ] = None
    latency_max: Annotated[str | None, option("DURATION", "A good answer that takes longer is a failure.")] = None
    days_left: Annotated[int | None, option("N", "Days that the certificate must stay valid, for https and --tls.")] = (
        None
    )
    dns_type: Annotated[str | None, option("TYPE", "Record type of --dns. [default: A]")] = None
    dns_server: Annotated[str | None, option("HOST[:PORT]", "Name server to ask. [default: the system's resolver]")] = (
        None
    )
    answer: Annotated[
        list[str] | None, option("TEXT", "Value that must be among the DNS answers; may be repeated.")
    ] = None
    only_answer: Annotated[
        list[str] | None, option("TEXT", "The only DNS answers that are allowed; may be repeated.")
    ] = None
    timeout: Annotated[str | None, option("DURATION", "Total deadline of a check. [default: 10s]")] = None
    initial_delay: Annotated[
        str | None,
        option("DURATION", "Wait before the first run. Without it Paceline allots the phase of an interval."),
    ] = None
    jitter: Annotated[str | None, option("DURATION", "Shift all firings by a fixed part of this.")] = None
    missed: Annotated[
        Missed | None, option("skip|once|all", "What to do with runs missed while Paceline was down. [default: skip]")
    ] = None
    overlap: Annotated[
        Overlap | None, option("skip|queue", "What a firing does while another run is open. [default: skip]")
    ] = None
    attempts: Annotated[
        int | None, option("N", "Tries of a check before it counts as failed, 1 to 5. [default: 1]")
    ] = None
    paused: PausedOption = None
    tag: Annotated[list[str] | None, option("TEXT", "A tag; may be repeated. Replaces all existing tags.")] = None
    no_tags: Annotated[bool, flag("--no-tags", "Remove all tags.")] = False
    alert_after: Annotated[
        int | None, option("N", "Failures in a row before it counts as failing and somebody is told. [default: 1]")
    ] = None
    alert_recover: Annotated[
        int | None, option("N", "Successes in a row before it counts as ok again. [default: 1]")
    ] = None
    channel: Annotated[
        list[str] | None, option("ID", "A channel to tell; may be repeated. [default: the user's default channels]")
    ] = None
    no_channels: Annotated[
        bool, flag("--no-channels", "Remove all channels; the user's default channels are told.")
    ] = False
    no_expect: Annotated[bool, flag("--no-expect", "Remove all existing expectations.")] = False

    @property
    def names_check(self) -> bool:
        """True if a monitor can be created with these options."""
        return any(value is not None for value in (self.url, self.tcp, self.dns, self.tls, self.outgoing))


def document_of(options: MonitorOptions) -> dict[str, Any]:
    """Returns the document. Raises InvalidInput if the options contradict each other."""
    document = {
        name: value
        for name in ("every", "cron", "timezone", "initial_delay", "jitter", "missed", "overlap", "attempts", "paused")
        if (value := getattr(options, name)) is not None
    }
    if options.tag and options.no_tags:
        raise InvalidInput("Give either --tag or --no-tags.")
    if options.tag or options.no_tags:
        document["tags"] = options.tag or []
    if alert := _alert(options):
        document["alert"] = alert
    check = _check(options)
    return {"check": check, **document} if check or options.no_expect else document


def patch_of(options: MonitorOptions, there: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the merge patch (RFC 7396) that changes only what the options name. ``there`` is the stored check."""
    document = document_of(options)
    check = document.get("check")
    if check is None:
        return document
    kind = check.get("kind", there["kind"])
    if kind != there["kind"]:
        return document | {"check": {"timeout": there["timeout"], **check}} if "timeout" in there else document
    if options.outgoing is not None:  # the object for a checker is replaced as a whole
        check = {name: None for name in there if name != "timeout"} | check
    if options.tls is not None:
        check = {"port": None} | check
    if "auth" in check and check["auth"] is not None:  # one kind of auth replaces the other as a whole
        check = check | {"auth": dict.fromkeys(there.get("auth") or ()) | check["auth"]}
    if options.no_expect:
        given = check.get("expect")
        check = check | {"expect": given and dict.fromkeys(there.get("expect", ())) | given}
    return document | {"check": check}


def _alert(options: MonitorOptions) -> dict[str, Any]:
    if options.channel and options.no_channels:
        raise InvalidInput("Give either --channel or --no-channels.")
    counts = {"after": options.alert_after, "recover": options.alert_recover}
    alert: dict[str, Any] = {name: count for name, count in counts.items() if count is not None}
    if options.channel or options.no_channels:
        alert["channels"] = options.channel or []
    return alert


def _check(options: MonitorOptions) -> dict[str, Any]:
    readers = {"url": _http, "tcp": _tcp, "dns": _dns, "tls": _tls, "outgoing": _outgoing}
    checks = [read(value) for name, read in readers.items() if (value := getattr(options, name)) is not None]
    if len(checks) > 1:
        raise InvalidInput("Give only one of --url, --tcp, --dns, --tls and --outgoing.")
    check = checks[0] if checks else {}
    check |= _named(options, ("timeout", "body", "follow_redirects", "verify_tls", "max_bytes"))
    if options.method is not None:
        check["method"] = options.method.upper()
    if options.header:
        check["headers"] = _headers(options.header, "--header")
    if options.dns_type is not None:
        check["type"] = options.dns_type.upper()
    if options.dns_server is not None:
        host, port = _endpoint(options.dns_server, "--dns-server")
        check |= {"server": host} | ({} if port is None else {"port": port})
    check |= _auth(options)
    expect = _expect(options)
    return {**check, "expect": expect} if expect else check


def _auth(options: MonitorOptions) -> dict[str, Any]:
    """Returns the field ``auth`` if an option sets it. None removes the stored one."""
    if [options.basic, options.bearer, options.no_auth or None].count(None) < 2:
        raise InvalidInput("Give only one of --basic, --bearer and --no-auth.")
    if options.bearer is not None:
        return {"auth": {"kind": "bearer", "token": options.bearer}}
    if options.basic is not None:
        username, colon, password = options.basic.partition(":")
        if not colon:
            raise InvalidInput.of(FieldProblem("--basic", "write USER:PASSWORD"))
        return {"auth": {"kind": "basic", "username": username, "password": password}}
    return {"auth": None} if options.no_auth else {}


def _expect(options: MonitorOptions) -> dict[str, Any]:
    expect = _named(options, ("latency_max", "days_left"))
    if options.expect_status:
        expect["status"] = [int(code) if code.isdecimal() else code for code in options.expect_status]
    for name, text in (("contains", options.contains), ("lacks", options.lacks), ("matches", options.matches)):
        if text is not None:
            expect[f"body_{name}"] = text
    if options.expect_json:
        expect["json"] = [_json(text) for text in options.expect_json]
    if options.expect_header:
        expect["header"] = _headers(options.expect_header, "--expect-header")
    if options.answer:
        expect["contains"] = options.answer
    if options.only_answer:
        expect["equals"] = options.only_answer
    return expect


def _named(options: MonitorOptions, names: Iterable[str]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(options, name)) is not None}


def _headers(lines: Iterable[str], option: str) -> dict[str, str]:
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise InvalidInput.of(FieldProblem(option, "write NAME:VALUE, for example 'Accept: text/html'"))
        headers[name.strip()] = value.strip()
    return headers


def _json(text: str) -> dict[str, Any]:
    """Parses ``POINTER word VALUE``. The value is JSON; anything else is taken as text."""
    match = _JSON.fullmatch(text)
    if match is None:
        example = "'/status is up' or '/free at_least 10'"
        raise InvalidInput.of(FieldProblem("--expect-json", f"write POINTER WORD VALUE, for example {example}"))
    pointer, word, value = match[1] or "", match[2], match[3]
    if word == "matches":
        return {"pointer": pointer, word: value}
    try:
        return {"pointer": pointer, word: msgspec.json.decode(value)}
    except msgspec.DecodeError:
        return {"pointer": pointer, word: value}


def _http(url: str) -> dict[str, Any]:
    return {"kind": "http", "url": url}


def _tcp(text: str) -> dict[str, Any]:
    host, port = _endpoint(text, "--tcp")
    if port is None:
        raise InvalidInput.of(FieldProblem("--tcp", "write HOST:PORT, for example example.org:25"))
    return {"kind": "tcp", "host": host, "port": port}


def _dns(name: str) -> dict[str, Any]:
    return {"kind": "dns", "name": name}


def _tls(text: str) -> dict[str, Any]:
    host, port = _endpoint(text, "--tls")
    return {"kind": "tls", "host": host} | ({} if port is None else {"port": port})


def _outgoing(text: str) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(text or "{}", type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise InvalidInput.of(FieldProblem("--outgoing", f"write a JSON object: {error}")) from None
    return {**document, "kind": "outgoing"}


def _endpoint(text: str, option: str) -> tuple[str, int | None]:
    """Parses HOST, HOST:PORT, or an IPv6 address in brackets with or without a port."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        return text.strip("[]"), None
    if not port.isascii() or not port.isdigit() or len(port) > 5:
        raise InvalidInput.of(FieldProblem(option, f"{port!r} is not a port"))
    return host.strip("[]"), int(port)
