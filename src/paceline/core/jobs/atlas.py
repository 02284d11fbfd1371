"""Answers and statuses of RIPE Atlas, and markers in sends, so that a lost send is found."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal, NamedTuple

import msgspec

from paceline.core.jobs.measurement import Measurement, is_oneoff, kinds_of, span_s
from paceline.core.monitors.outcome import REASON_CHARS_MAX

RETRY_AFTER_MS_MAX = 86_400_000
DESCRIPTION_CHARS_MAX = 255
ONEOFF_DEADLINE_MS = 3_600_000
"""Time after which nothing more is expected of a one-off; it ends at RIPE about ten minutes after it began."""
ONEOFF_MS = 600_000
"""Observed time for which RIPE counts a one-off as running."""
STOP_DEADLINE_MS = 3_600_000

Scope = Literal["account", "type", "target", "request", "key", "global"]
"""Scope of a refusal.

The account or the target is full, the account may not make measurements of a type, the request or the key is wrong, or
all sends must pause.
"""
MeterName = Literal["concurrent", "results", "credits", "balance"]


class Created(NamedTuple):
    """Measurements that RIPE created. ``ids`` are in the order of the definitions."""

    ids: tuple[int, ...]
    warnings: str = ""


class Refused(NamedTuple):
    """Refusal by RIPE: nothing was created. ``reason`` holds RIPE's own words."""

    scope: Scope
    reason: str
    meter: MeterName | None = None
    limit: int | None = None
    current: int | None = None
    """Use that RIPE counts on that meter, if RIPE says so."""
    target: str = ""
    retry_after_ms: int | None = None
    types: tuple[str, ...] = ()
    """Types that the account may not make, for the scope ``type``."""


class Lost(NamedTuple):
    """Lost reply: a measurement may have been created or not. Look it up before anything is sent again."""

    reason: str
    retry_after_ms: int | None = None


Answer = Created | Refused | Lost


class _Text(NamedTuple):
    pattern: re.Pattern[str]
    scope: Scope
    meter: MeterName | None = None


_TEXTS = (
    _Text(
        re.compile(r"not permitted to run more than (?P<limit>\d+) concurrent measurements", re.IGNORECASE),
        "account",
        "concurrent",
    ),
    _Text(
        re.compile(
            r"your current \((?P<current>[\d.]+)\) number of results by (?P<more>[\d.]+) totalling (?P<total>[\d.]+)"
            r" which is higher than your maximum daily results limit (?P<limit>\d+)",
            re.IGNORECASE,
        ),
        "account",
        "results",
    ),
    _Text(re.compile(r"maximum daily results limit(?: (?P<limit>\d+))?", re.IGNORECASE), "account", "results"),
    _Text(
        re.compile(
            r"(?:your current \((?P<current>[\d.]+)\).*?)?maximum daily [^.]*(?:credit|spend)[^.\d]*(?P<limit>\d+)?",
            re.IGNORECASE | re.DOTALL,
        ),
        "account",
        "credits",
    ),
    _Text(
        re.compile(r"(?:not (?:have )?enough|insufficient) (?:\w+ ){0,3}credit", re.IGNORECASE), "account", "balance"
    ),
    _Text(
        re.compile(
            r"do not allow more than (?P<limit>\d+) concurrent measurements to the same target: "
            r"(?P<target>\S+?)\.?(?:\s|$)",
            re.IGNORECASE,
        ),
        "target",
    ),
    _Text(re.compile(r"selected ASN is not covered by our network", re.IGNORECASE), "request"),
    _Text(re.compile(r"This target cannot be resolved", re.IGNORECASE), "request"),
    _Text(re.compile(r"Text contains disallowed characters", re.IGNORECASE), "request"),
    _Text(re.compile(r"API key does not exist", re.IGNORECASE), "key"),
)


_TYPE = re.compile(r"\b(\w+) measurements?\b", re.IGNORECASE)
HTTP = "http"


class _Created(msgspec.Struct):
    measurements: list[int]
    warnings: msgspec.Raw = msgspec.Raw(b"")


_CREATED = msgspec.json.Decoder(_Created)
_ANY = msgspec.json.Decoder(Any)


def read_answer(
    measurement: Measurement, *, status: int | None, body: bytes = b"", retry_after: str = "", fault: str = ""
) -> Answer:
    """Return the result of a send. ``status`` is None if there was no answer, and ``fault`` says why."""
    pause_ms = retry_after_ms(retry_after)
    if status is None:
        return Lost(_cut(fault or "there was no answer"), pause_ms)
    if 200 <= status < 300:
        return _read_success(measurement, status, body)
    if status >= 500 or status == 408:
        return Lost(f"RIPE answered {status}: {_words(body)}", pause_ms)
    if status == 429:
        return Refused("global", f"RIPE asks for a pause (429): {_words(body)}", retry_after_ms=pause_ms)
    details = refusal_details(body)
    if not details or status in (404, 405):
        # A gateway, a maintenance page, a wrong address: neither the key nor the request is wrong, and all sends wait.
        return Refused("global", f"{status}, not RIPE's word on a request: {_words(body)}", retry_after_ms=pause_ms)
    return _classify(measurement, status, details)


def refusal_details(body: bytes) -> list[str]:
    """Return everything that RIPE says is wrong, each with its field; empty if this is not RIPE's error format."""
    try:
        document = _ANY.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    if not isinstance(document, dict):
        return []
    error = document.get("error", document)
    if not isinstance(error, dict):
        return []
    details = []
    errors = error.get("errors")
    for one in errors if isinstance(errors, list) else []:
        if isinstance(one, dict) and (detail := _detail(one)):
            source = one.get("source")
            pointer = source.get("pointer") if isinstance(source, dict) else None
            details.append(f"{pointer}: {detail}" if isinstance(pointer, str) and pointer else detail)
    if not details and (detail := _detail(error)):
        details.append(detail)
    return details


def _detail(error: dict[str, Any]) -> str:
    detail = error.get("detail") or error.get("title")
    if isinstance(detail, list):
        return "; ".join(one for one in detail if isinstance(one, str))
    return detail if isinstance(detail, str) else ""


def retry_after_ms(text: str) -> int | None:
    """Return a Retry-After of seconds in milliseconds, bounded; None for a date: then the usual back-off applies."""
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        return None
    return min(int(text) * 1000, RETRY_AFTER_MS_MAX)


def _read_success(measurement: Measurement, status: int, body: bytes) -> Created | Lost:
    try:
        created = _CREATED.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Lost(f"RIPE answered {status}, and the answer cannot be read: {_words(body)}")
    if len(created.measurements) != len(measurement.definitions):
        wanted = len(measurement.definitions)
        return Lost(f"RIPE answered {status} with {len(created.measurements)} ids for {wanted} definitions")
    if len(set(created.measurements)) != len(created.measurements) or min(created.measurements) < 1:
        return Lost(f"RIPE answered {status} with ids that cannot be: {_words(body)}")
    return Created(tuple(created.measurements), _words(bytes(created.warnings)) if created.warnings else "")


def _classify(measurement: Measurement, status: int, details: Sequence[str]) -> Refused:
    """Return whom a refusal concerns, by its words: its code is always the same. Unknown words concern the request."""
    reason = _cut("; ".join(details))
    for text in _TEXTS:
        for detail in details:
            if (match := text.pattern.search(detail)) is not None:
                found = match.groupdict()
                limit, current = _whole(found.get("limit")), _whole(found.get("current"))
                return Refused(text.scope, reason, text.meter, limit, current, found.get("target") or "")
    if status == 401:
        return Refused("key", reason)
    if status == 403:
        # RIPE forbids some types to most accounts: such a 403 must not put one key after the other out of service.
        types = _forbidden_types(measurement, details)
        return Refused("type", reason, types=types) if types else Refused("key", reason)
    return Refused("request", reason)


def _forbidden_types(measurement: Measurement, details: Sequence[str]) -> tuple[str, ...]:
    """Return the types that RIPE's words name; else http, which most may not make.

    Empty: the refusal is about the key.
    """
    kinds = sorted(kinds_of(measurement))
    words = {word.lower() for detail in details for word in _TYPE.findall(detail)}
    return tuple(kind for kind in kinds if kind in words) or tuple(kind for kind in kinds if kind == HTTP)


def _whole(text: str | None) -> int | None:
    """Return a number that RIPE writes as "104095.0", rounded up."""
    if not text:
        return None
    whole, _, fraction = text.partition(".")
    return int(whole or 0) + (fraction.strip("0") != "")


class Ongoing(NamedTuple):
    pass


class Succeeded(NamedTuple):
    """Good end. ``frees_slot``: RIPE no longer counts the measurement as running."""

    frees_slot: bool = True


class Failed(NamedTuple):
    reason: str
    frees_slot: bool = True
    unknown_status: bool = False
    """True if RIPE used a status that is not documented: worth a line in the log."""


Verdict = Ongoing | Succeeded | Failed
RUNNING = frozenset({0, 1, 2})
_FAILURES = {5: "forced to stop: the credits ran out", 7: "failed: it never ran", 8: "denied or archived"}


def judge_status(status: int, *, delivered: int, scheduled: int | None, now_ms: int, deadline_ms: int) -> Verdict:
    """Return the verdict on one measurement at RIPE. ``scheduled``: how many results there can be, if that is known.

    Not all probes answer, so the count of results alone would wait for ever; and RIPE says "stopped" minutes after the
    last result, so the status alone would wait too long. Whichever comes first ends the measurement, at the latest the
    deadline.
    """
    if status == 4:
        return Succeeded()
    if status in _FAILURES:
        return Failed(_FAILURES[status])
    if status not in RUNNING and status != 6:
        return Failed(f"RIPE reports a status that is not known: {status}", unknown_status=True)
    if scheduled is not None and delivered >= scheduled > 0:
        return Succeeded(frees_slot=False)
    if now_ms < deadline_ms:
        return Ongoing()
    if status == 6:
        return Failed("no suitable probes")
    if delivered > 0:
        return Succeeded(frees_slot=False)
    return Failed("no result by the deadline", frees_slot=False)


def judge_measurement(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict on all definitions together: it ends when the last one ends, and succeeds only if all did."""
    assert verdicts
    if any(isinstance(one, Ongoing) for one in verdicts):
        return Ongoing()
    frees_slot = all(one.frees_slot for one in verdicts if not isinstance(one, Ongoing))
    failures = [one for one in verdicts if isinstance(one, Failed)]
    if not failures:
        return Succeeded(frees_slot)
    reason = "; ".join(dict.fromkeys(one.reason for one in failures))
    return Failed(_cut(reason), frees_slot, any(one.unknown_status for one in failures))


def deadline_ms(measurement: Measurement, *, sent_ms: int) -> int:
    """Return when a measurement that has not ended by itself is ended."""
    latest_ms = sent_ms + ONEOFF_DEADLINE_MS
    for definition in measurement.definitions:
        start, stop = span_s(measurement, definition)
        latest_ms = max(latest_ms, (start or 0) * 1000 + ONEOFF_DEADLINE_MS, (stop or 0) * 1000 + STOP_DEADLINE_MS)
    return latest_ms


def expected_end_ms(measurement: Measurement, *, sent_ms: int) -> int:
    """Return when RIPE is expected to stop counting it as running: for people who wait, and for the next look."""
    latest_ms = sent_ms
    for definition in measurement.definitions:
        start, stop = span_s(measurement, definition)
        begins_ms = max(sent_ms, (start or 0) * 1000)
        periodic = stop is not None and not is_oneoff(measurement, definition)
        latest_ms = max(latest_ms, stop * 1000 if periodic and stop else begins_ms + ONEOFF_MS)
    return latest_ms


class Marker(msgspec.Struct, frozen=True):
    """Marker by which a send is found at RIPE. It is public, so it names no user.

    ``site`` keeps installations that share an account from taking each other's measurements for their own.
    """

    site: str
    job: str
    index: int
    attempt: int = 1


_SITE = re.compile(r"[0-9a-z]{4,8}")
_JOB = re.compile(r"[0-9a-z]{1,32}")
_TAG = re.compile(r"paceline-([0-9a-z]{4,8})-([0-9a-z]{1,32})-(\d{1,6})")
_PREFIX = re.compile(r"\[paceline:([0-9a-z]{4,8}):([0-9a-z]{1,32}):(\d{1,6}):(\d{1,4})\]")
_DISALLOWED = re.compile(r"[^A-Za-z0-9 .,:;/()\[\]_+@#=-]")


def marker_tag(marker: Marker) -> str:
    """Return the tag, the same for every attempt: one exact search finds the measurements of all of them."""
    assert _SITE.fullmatch(marker.site)
    assert _JOB.fullmatch(marker.job)
    return f"paceline-{marker.site}-{marker.job}-{marker.index}"


def marker_prefix(marker: Marker) -> str:
    """Return the beginning of the description, which tells the attempts apart."""
    assert _SITE.fullmatch(marker.site)
    assert _JOB.fullmatch(marker.job)
    return f"[paceline:{marker.site}:{marker.job}:{marker.index}:{marker.attempt}]"


def site_tag(site: str) -> str:
    """Return the tag of everything that an installation sends.

    A measurement that has the tag and is not stored is an orphan.
    """
    assert _SITE.fullmatch(site)
    return f"paceline-{site}"


def parse_marker_tag(text: str) -> Marker | None:
    """Return the marker of a tag, without its attempt; None if ``marker_tag`` did not write it."""
    match = _TAG.fullmatch(text) if text.isascii() else None
    marker = match and Marker(match[1], match[2], int(match[3]))
    return marker if marker and marker_tag(marker) == text else None


def parse_marker_prefix(description: str) -> Marker | None:
    """Return the marker that a description begins with; None if ``marker_prefix`` did not write it."""
    match = _PREFIX.match(description)
    if match is None or not match[0].isascii():
        return None
    marker = Marker(match[1], match[2], int(match[3]), int(match[4]))
    return marker if marker_prefix(marker) == match[0] else None


def client_id(user: str, secret: bytes) -> str:
    """Return the ``aggregator_client_id`` of a user. It is keyed, so that nobody finds a name by trying names."""
    assert secret
    inner = sha256(b"paceline client id" + sha256(secret).digest() + user.encode("utf-8", "surrogatepass")).digest()
    return sha256(sha256(secret).digest() + inner).hexdigest()


def sanitised(text: str) -> str:
    """Return a description that RIPE takes.

    RIPE does not say which characters it refuses, so only harmless ones stay.
    """
    return " ".join(_DISALLOWED.sub(" ", text).split())


def request_body(measurement: Measurement, marker: Marker, *, client: str, now_ms: int) -> bytes:
    """Return the body of a send: the measurement with its marker, without a start time that has passed."""
    document: dict[str, Any] = msgspec.to_builtins(measurement)
    extra = document.pop("extra", {})
    document = extra.get("", {}) | document
    for name in ("definitions", "probes"):
        document[name] = [extra.get(f"/{name}/{i}", {}) | part for i, part in enumerate(document[name])]
    for part in document["definitions"]:
        text = f"{marker_prefix(marker)} {sanitised(part['description'])}".rstrip()
        part["description"] = text[:DESCRIPTION_CHARS_MAX].rstrip()
        part["tags"] = [*part.get("tags", ()), site_tag(marker.site), marker_tag(marker)]
        part["aggregator_client_id"] = client
    for part in (document, *document["definitions"]):
        if part.get("start_time") is not None and part["start_time"] * 1000 <= now_ms:
            del part["start_time"]
    return msgspec.json.encode(document)


READS = ("/credits/", "/measurements/my/", "/keys/")
"""Paths that are read to test a key when it is added."""
PERMISSIONS = {"/credits/": "get information about your credits", "/measurements/my/": "list your measurements"}
GRANTS = {
    "measurements.create_measurement": "schedule a new measurement",
    "measurements.stop_measurement": "stop a measurement",
}


TRIED_GRANTS = {"measurements.create_measurement": 400, "measurements.stop_measurement": 404}
"""Permissions that are tested by a request without effect.

RIPE answers 400 to an order without content, and 404 to a stop of no measurement.
"""
NON_PUBLIC = "measurements.get_non_public_results"
NON_PUBLIC_WORD = "download results of non-public measurements"


def unverified_permissions(grants: frozenset[str] | None, trials: Mapping[str, int]) -> list[str]:
    """Return the permissions that a key needs and that nothing has shown.

    A private measurement whose results cannot be read is settled on the most that it can cost.
    """
    if grants is not None:
        return [] if NON_PUBLIC in grants else [f"{NON_PUBLIC_WORD} (RIPE does not list this permission of it)"]
    unsure = [word for grant, word in GRANTS.items() if trials.get(grant) != TRIED_GRANTS[grant]]
    return [*unsure, NON_PUBLIC_WORD]


def key_problems(
    statuses: dict[str, int], grants: frozenset[str] | None, trials: Mapping[str, int] | None = None
) -> list[str]:
    """Return what a key lacks: by the statuses of its reads and trials, and by its grants if it may read them."""
    if 401 in statuses.values():
        return ["RIPE does not know this key, or it has expired"]
    problems = [f"it may not {word} (RIPE answers 403)" for read, word in PERMISSIONS.items() if statuses[read] == 403]
    unsure = [read for read in PERMISSIONS if statuses[read] not in (200, 403)]
    problems += [f"RIPE answered {statuses[read]} to {read}; try again" for read in unsure]
    if grants is not None and statuses["/keys/"] == 200:
        problems += [f"it may not {word} ({grant})" for grant, word in GRANTS.items() if grant not in grants]
    elif trials:
        problems += [
            f"it may not {word} (RIPE answers 403)" for grant, word in GRANTS.items() if trials.get(grant) == 403
        ]
    return problems


def _words(body: bytes) -> str:
    """Return a short, printable piece of an answer; of a page, its text without the markup."""
    if details := refusal_details(body):
        return _cut("; ".join(details))
    text = body[:4_096].decode("utf-8", "replace")
    if text.lstrip()[:1] == "<":
        text = re.sub(r"<(script|style)\b.*?(</\1>|$)|<[^>]*>", " ", text, flags=re.DOTALL | re.IGNORECASE)
    text = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return text[:200] or "an empty body"


def _cut(text: str) -> str:
    return text if len(text) <= REASON_CHARS_MAX else text[: REASON_CHARS_MAX - 1] + "…"
