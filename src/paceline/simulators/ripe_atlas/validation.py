"""Validates requests to create measurements. The error texts are RIPE's where they are known."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from paceline.simulators.ripe_atlas.messages import ErrorAnswer, ErrorLine

REQUIRED = "This field is required."
DEFINITIONS_MAX = 100
TEXT_MAX = 255
INTERVAL_MIN_S = 60
SPREAD_MAX_S = 400
UNRESOLVABLE = ".invalid"
DEFAULT_INTERVALS_S = {"ping": 240, "traceroute": 900, "dns": 240, "sslcert": 900, "ntp": 1_800, "http": 1_800}
PROBE_TYPES = ("area", "country", "asn", "prefix", "probes", "msm", "region", "countries")
AREAS = ("WW", "West", "North-Central", "South-Central", "North-East", "South-East")
_DISALLOWED = re.compile(r"[\x00-\x1f\x7f<>\\]")
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


class Whole(NamedTuple):
    """A whole number from ``low`` to ``high``."""

    low: int
    high: int

    def problem(self, value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, int):
            return "A valid integer is required."
        if value < self.low:
            return f"Ensure this value is greater than or equal to {self.low}."
        return f"Ensure this value is less than or equal to {self.high}." if value > self.high else ""


class OneOf(NamedTuple):
    choices: tuple[Any, ...]

    def problem(self, value: Any) -> str:
        known = isinstance(value, str | int) and not isinstance(value, bool) and value in self.choices
        return "" if known else f'"{value}" is not a valid choice.'


class TrueOrFalse(NamedTuple):
    def problem(self, value: Any) -> str:
        return "" if isinstance(value, bool) else "Must be a valid boolean."


class Text(NamedTuple):
    length_max: int = TEXT_MAX

    def problem(self, value: Any) -> str:
        if not isinstance(value, str):
            return "Not a valid string."
        if not value:
            return "This field may not be blank."
        if len(value) > self.length_max:
            return f"Ensure this field has no more than {self.length_max} characters."
        return "Text contains disallowed characters" if _DISALLOWED.search(value) else ""


class Tags(NamedTuple):
    def problem(self, value: Any) -> str:
        if not isinstance(value, list):
            return "Expected a list of items."
        good = all(isinstance(one, str) and len(one) <= TEXT_MAX and _TAG.fullmatch(one) for one in value)
        return "" if good else "Text contains disallowed characters"


Rule = Whole | OneOf | TrueOrFalse | Text | Tags
FLAG, TEXT, PORT = TrueOrFalse(), Text(), Whole(1, 65_535)
COMMON: dict[str, Rule] = {
    "type": OneOf(("ping", "traceroute", "dns", "sslcert", "ntp", "http", "wifi")),
    "description": TEXT,
    "af": OneOf((4, 6)),
    "target": TEXT,
    "interval": Whole(INTERVAL_MIN_S, 31_536_000),
    "spread": Whole(0, SPREAD_MAX_S),
    "is_oneoff": FLAG,
    "is_public": FLAG,
    "resolve_on_probe": FLAG,
    "skip_dns_check": FLAG,
    "tags": Tags(),
    "group_id": Whole(1, 2**53),
    "aggregator_client_id": Text(64),
}
OWN: dict[str, dict[str, Rule]] = {
    "ping": {
        "packets": Whole(1, 16),
        "size": Whole(1, 2_048),
        "packet_size": Whole(1, 2_048),
        "packet_interval": Whole(2, 300_000),
        "include_probe_id": FLAG,
    },
    "traceroute": {
        "protocol": OneOf(("ICMP", "UDP", "TCP")),
        "packets": Whole(1, 16),
        "size": Whole(0, 2_048),
        "packet_size": Whole(0, 2_048),
        "paris": Whole(0, 64),
        "first_hop": Whole(1, 255),
        "max_hops": Whole(1, 255),
        "port": PORT,
        "response_timeout": Whole(1, 60_000),
        "dont_fragment": FLAG,
        "destination_option_size": Whole(0, 1_024),
        "hop_by_hop_option_size": Whole(0, 2_048),
    },
    "dns": {
        "query_class": OneOf(("IN", "CHAOS")),
        "query_type": Text(16),
        "query_argument": TEXT,
        "use_probe_resolver": FLAG,
        "protocol": OneOf(("UDP", "TCP")),
        "port": PORT,
        "tls": FLAG,
        "set_rd_bit": FLAG,
        "set_do_bit": FLAG,
        "set_cd_bit": FLAG,
        "set_nsid_bit": FLAG,
        "udp_payload_size": Whole(512, 4_096),
        "retry": Whole(0, 10),
        "timeout": Whole(100, 30_000),
        "include_qbuf": FLAG,
        "include_abuf": FLAG,
        "prepend_probe_id": FLAG,
        "use_macros": FLAG,
        "default_client_subnet": FLAG,
        "cookies": FLAG,
    },
    "sslcert": {"port": PORT, "hostname": TEXT},
    "ntp": {"packets": Whole(1, 16), "timeout": Whole(1, 60_000)},
    "http": {
        "method": OneOf(("GET", "HEAD", "POST")),
        "path": Text(2_048),
        "query_string": Text(2_048),
        "port": PORT,
        "header_bytes": Whole(0, 2_048),
        "version": OneOf(("1.0", "1.1")),
        "user_agent": TEXT,
        "extended_timing": FLAG,
        "more_extended_timing": FLAG,
        "max_bytes_read": Whole(0, 1_020_048),
    },
}
REQUIRED_FIELDS = {
    "traceroute": ("target", "protocol"),
    "dns": ("query_class", "query_type", "query_argument"),
}


class MeasurementOrder(NamedTuple):
    """A well-formed request. Times in ms; ``stop_ms`` None means without end."""

    definitions: list[dict[str, Any]]
    probes: list[dict[str, Any]]
    is_oneoff: bool
    start_ms: int | None
    stop_ms: int | None
    bill_to: str


def parse_order(document: Any, *, only_type: str, now_ms: int) -> MeasurementOrder:
    """Return the parsed request. Refuses it with every wrong field named."""
    if not isinstance(document, dict):
        raise ErrorAnswer(400, problems=[ErrorLine("", "Invalid data. Expected a dictionary.")])
    problems = [*_list_problems(document), *_time_problems(document, now_ms)]
    for index, definition in enumerate(_items(document, "definitions")):
        problems += _definition_problems(definition, f"/definitions/{index}", only_type)
    for index, spec in enumerate(_items(document, "probes")):
        problems += _probe_problems(spec, f"/probes/{index}")
    if problems:
        raise ErrorAnswer(400, "There were problems with your request" if len(problems) > 1 else "", problems=problems)
    definitions = [{k: v for k, v in one.items() if v is not None} for one in document["definitions"]]
    return MeasurementOrder(
        definitions=definitions,
        probes=document["probes"],
        is_oneoff=bool(document.get("is_oneoff") or any(one.get("is_oneoff") for one in definitions)),
        start_ms=time_ms(document.get("start_time")),
        stop_ms=time_ms(document.get("stop_time")),
        bill_to=str(document.get("bill_to") or ""),
    )


def time_ms(value: Any) -> int | None:
    """Return a time in ms, from Unix seconds or ISO 8601 (UTC if it has no zone); None for None."""
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 2**40:
        return int(value) * 1_000
    if isinstance(value, str):
        parsed = datetime.fromisoformat(value)
        return int((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()) * 1_000
    raise ValueError(value)


def field_problem(name: str, value: Any, type_: str = "ping") -> str:
    """Return the error in the value of a field; empty if it is good or the field is unknown."""
    rule = COMMON[name] if name in COMMON else OWN.get(type_, {}).get(name)
    # Not "if rule": a rule without parameters is an empty tuple, which is false.
    return "" if rule is None or value is None else rule.problem(value)


def _items(document: dict[str, Any], name: str) -> list[Any]:
    value = document.get(name)
    return value[:DEFINITIONS_MAX] if isinstance(value, list) else []


def _list_problems(document: dict[str, Any]) -> Iterator[ErrorLine]:
    for name in ("definitions", "probes"):
        value = document.get(name)
        if value is None:
            yield ErrorLine(f"/{name}", REQUIRED)
        elif not isinstance(value, list):
            yield ErrorLine(f"/{name}", "Expected a list of items.")
        elif not value:
            yield ErrorLine(f"/{name}", "This list may not be empty.")
        elif len(value) > DEFINITIONS_MAX:
            yield ErrorLine(f"/{name}", f"Ensure this field has no more than {DEFINITIONS_MAX} elements.")


def _time_problems(document: dict[str, Any], now_ms: int) -> Iterator[ErrorLine]:
    times: dict[str, int | None] = {}
    for name in ("start_time", "stop_time"):
        try:
            times[name] = time_ms(document.get(name))
        except (ValueError, OverflowError):
            yield ErrorLine(f"/{name}", "Datetime has wrong format.")
            return
    start_ms, stop_ms = times["start_time"], times["stop_time"]
    if start_ms is not None and start_ms < now_ms - 60_000:
        yield ErrorLine("/start_time", "Start time must be in the future.")
    if stop_ms is not None and stop_ms <= (now_ms if start_ms is None else start_ms):
        yield ErrorLine("/stop_time", "Stop time must be after the start time.")


def _definition_problems(definition: Any, where: str, only_type: str) -> Iterator[ErrorLine]:
    if not isinstance(definition, dict):
        yield ErrorLine(where, "Invalid data. Expected a dictionary.")
        return
    given = {name: value for name, value in definition.items() if value is not None}
    type_ = str(given.get("type", ""))
    if only_type and type_ != only_type:
        yield ErrorLine(f"{where}/type", f'"{type_}" is not a valid choice.')
        return
    if type_ == "wifi":
        yield ErrorLine(f"{where}/type", "You are not permitted to create measurements of this type.")
        return
    needed = ("type", "description", "af", *REQUIRED_FIELDS.get(type_, ("target",)))
    yield from (ErrorLine(f"{where}/{name}", REQUIRED) for name in needed if name not in given)
    if type_ == "dns" and "target" not in given and not given.get("use_probe_resolver"):
        yield ErrorLine(f"{where}/target", REQUIRED)
    for name, value in given.items():
        if detail := field_problem(name, value, type_):
            yield ErrorLine(f"{where}/{name}", detail)
    if isinstance(given.get("target"), str) and given.get("af") in (4, 6):
        yield from _target_problems(given, where)


def _target_problems(given: dict[str, Any], where: str) -> Iterator[ErrorLine]:
    target = given["target"]
    try:
        if ipaddress.ip_address(target).version != given["af"]:
            yield ErrorLine(f"{where}/target", "The target's address family does not match the requested one.")
    except ValueError:
        asked = not given.get("resolve_on_probe") and not given.get("skip_dns_check")
        if asked and (target.endswith(UNRESOLVABLE) or "." not in target):
            yield ErrorLine(f"{where}/target", "This target cannot be resolved")


def _probe_problems(spec: Any, where: str) -> Iterator[ErrorLine]:
    if not isinstance(spec, dict):
        yield ErrorLine(where, "Invalid data. Expected a dictionary.")
        return
    yield from (ErrorLine(f"{where}/{name}", REQUIRED) for name in ("requested", "type", "value") if name not in spec)
    requested, value = spec.get("requested", 1), spec.get("value", "")
    if detail := Whole(-1, 10_000_000).problem(requested):
        yield ErrorLine(f"{where}/requested", detail)
    elif requested == 0:
        yield ErrorLine(f"{where}/requested", "Ensure this value is greater than or equal to 1.")
    if "type" in spec and (detail := OneOf(PROBE_TYPES).problem(spec["type"])):
        yield ErrorLine(f"{where}/type", detail)
    if isinstance(value, bool) or not isinstance(value, str | int):
        yield ErrorLine(f"{where}/value", "Not a valid string.")
    elif spec.get("type") == "area" and value not in AREAS:
        yield ErrorLine(f"{where}/value", f'"{value}" is not a valid choice.')
    tags = spec.get("tags")
    if tags is not None and not (isinstance(tags, dict) and _are_tag_lists(tags)):
        yield ErrorLine(f"{where}/tags", "Expected the lists include and exclude.")


def _are_tag_lists(tags: dict[str, Any]) -> bool:
    lists = [tags.get("include") or [], tags.get("exclude") or []]
    return all(isinstance(one, list) and all(isinstance(tag, str) for tag in one) for one in lists)
