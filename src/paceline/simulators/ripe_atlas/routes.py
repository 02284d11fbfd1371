"""The paths of the API, with and without the last slash, and the answer of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from paceline.simulators.ripe_atlas import accounts, listing
from paceline.simulators.ripe_atlas.accounts import SimulatedKey
from paceline.simulators.ripe_atlas.books import credits_document
from paceline.simulators.ripe_atlas.measurements import API, STOPPED, SimulatedMeasurement, document_of
from paceline.simulators.ripe_atlas.messages import (
    TEXT,
    AtlasAnswer,
    AtlasRequest,
    ErrorAnswer,
    ErrorLine,
    json_answer,
    not_found,
)
from paceline.simulators.ripe_atlas.results import latest_of, results_of
from paceline.simulators.ripe_atlas.validation import field_problem, parse_order, time_ms
from paceline.simulators.ripe_atlas.world import World

EDITABLE = ("description", "is_public", "tags")
NO_CONTENT = AtlasAnswer(204, headers=())
FOREVER_MS = 2**53


class SimulatorCall(NamedTuple):
    """A request with its key and the parts of its path, at one instant."""

    world: World
    request: AtlasRequest
    key: SimulatedKey | None
    now_ms: int
    part: str = ""
    rest: str = ""

    def require(self, permission: str, target: int | str | None = None) -> SimulatedKey:
        return self.world.registry.require(self.key, permission, target)


def answer(world: World, request: AtlasRequest) -> AtlasAnswer:
    """Answer one request; no other is served at the same time."""
    with world.lock:
        try:
            now_ms = world.now_ms()
            return _dispatch(world, request, now_ms)
        except ErrorAnswer as refused:
            return refused.answer()


def _dispatch(world: World, request: AtlasRequest, now_ms: int) -> AtlasAnswer:
    path = request.path.removesuffix("/")
    methods: list[str] = []
    for method, pattern, handle in ROUTES:
        match = pattern.fullmatch(path)
        if match and method == request.method:
            key = world.registry.key_of(request, now_ms)
            parts = [*match.groups(), "", ""]
            return handle(SimulatorCall(world, request, key, now_ms, parts[0], parts[1]))
        methods += [method] if match else []
    if methods:
        raise ErrorAnswer(405, f'Method "{request.method}" not allowed.')
    raise not_found()


def _create(call: SimulatorCall) -> AtlasAnswer:
    key = call.require(accounts.CREATE)
    only_type = "" if call.part == "my" else call.part
    order = parse_order(call.request.document(), only_type=only_type, now_ms=call.now_ms)
    made = call.world.create(order, key, call.now_ms)
    return json_answer({"measurements": [one.id for one in made]}, 201)


def _list_mine(call: SimulatorCall) -> AtlasAnswer:
    key = call.require(accounts.LIST)
    return _listed(call, lambda one: one.account == key.account)


def _list_all(call: SimulatorCall) -> AtlasAnswer:
    return _listed(call, lambda one: _visible(one, call) and (not call.part or one.type == call.part))


def _listed(call: SimulatorCall, shown: Callable[[SimulatedMeasurement], bool]) -> AtlasAnswer:
    """Answer from the search index, which lags a little behind the truth."""
    world, at_ms = call.world, call.now_ms - call.world.model.index_lag_ms
    page = listing.page_of(call.request)
    ids = listing.wanted_ids(call.request)
    if ids is None:
        those = list(world.measurements.values())
    else:
        those = [world.measurements[one] for one in dict.fromkeys(ids) if one in world.measurements]
    indexed = (one for one in those if one.created_ms <= at_ms and shown(one))
    found = listing.listed(indexed, call.request, at_ms=at_ms)
    return json_answer(listing.paged(found, call.request, page, lambda one: _document(one, call, at_ms)))


def _show(call: SimulatorCall) -> AtlasAnswer:
    return json_answer(listing.cut(_document(_found(call), call, call.now_ms), call.request))


def _stop(call: SimulatorCall) -> AtlasAnswer:
    _own(call, accounts.STOP).end(STOPPED, call.now_ms)
    return NO_CONTENT


def _edit(call: SimulatorCall) -> AtlasAnswer:
    measurement = _own(call, accounts.UPDATE)
    changes = call.request.document()
    if not isinstance(changes, dict):
        raise ErrorAnswer(400, problems=[ErrorLine("", "Invalid data. Expected a dictionary.")])
    problems = [ErrorLine(f"/{name}", "This field cannot be changed.") for name in changes if name not in EDITABLE]
    problems += [
        ErrorLine(f"/{name}", detail)
        for name, value in changes.items()
        if (detail := field_problem(name, value, measurement.type))
    ]
    if problems:
        raise ErrorAnswer(400, problems=problems)
    measurement.definition = measurement.definition | changes
    measurement.tags = list(changes.get("tags", measurement.tags))
    return _show(call)


def _results(call: SimulatorCall) -> AtlasAnswer:
    measurement = _readable(call)
    from_ms = _instant(call, "start", 0)
    until_ms = min(call.now_ms, _instant(call, "stop", FOREVER_MS))
    found = results_of(
        measurement,
        call.world.population.probes,
        seed=call.world.model.seed,
        from_ms=from_ms,
        until_ms=until_ms,
        only=_probe_ids(call),
    )
    return _sent(call, found)


def _latest(call: SimulatorCall) -> AtlasAnswer:
    versions = call.request.query.get("versions", "1")
    if not (versions.isascii() and versions.isdigit() and 1 <= int(versions[:3]) <= 10):
        raise ErrorAnswer(400, problems=[ErrorLine("versions", "From 1 to 10.", "parameter")])
    found = latest_of(
        _readable(call),
        call.world.population.probes,
        seed=call.world.model.seed,
        until_ms=call.now_ms,
        only=_probe_ids(call),
        versions=int(versions),
    )
    return _sent(call, iter(found))


def _sent(call: SimulatorCall, found: Iterator[dict[str, Any]]) -> AtlasAnswer:
    if call.request.query.get("format") == "txt":
        return AtlasAnswer(200, b"".join(msgspec.json.encode(one) + b"\n" for one in found), TEXT)
    return json_answer(list(found))


def _instant(call: SimulatorCall, name: str, default_ms: int) -> int:
    text = call.request.query.get(name)
    if text is None:
        return default_ms
    try:
        found = time_ms(int(text) if text.isascii() and text.isdigit() else text)
    except ValueError:
        raise ErrorAnswer(400, problems=[ErrorLine(name, "Datetime has wrong format.", "parameter")]) from None
    return default_ms if found is None else found


def _probe_ids(call: SimulatorCall) -> set[int] | None:
    text = call.request.query.get("probe_ids")
    if not text:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise ErrorAnswer(400, problems=[ErrorLine("probe_ids", "A valid integer is required.", "parameter")])
    return {int(part) for part in parts}


def _add_tag(call: SimulatorCall) -> AtlasAnswer:
    measurement = _own(call, accounts.UPDATE)
    body = call.request.document()
    tag = body.get("tag") if isinstance(body, dict) else None
    if tag is None or (detail := field_problem("tags", [tag])):
        raise ErrorAnswer(400, problems=[ErrorLine("/tag", "This field is required." if tag is None else detail)])
    if tag not in measurement.tags:
        measurement.tags.append(tag)
    return json_answer({"tag": tag}, 201)


def _remove_tag(call: SimulatorCall) -> AtlasAnswer:
    measurement = _own(call, accounts.UPDATE)
    if call.rest not in measurement.tags:
        raise not_found()
    measurement.tags.remove(call.rest)
    return NO_CONTENT


def _show_group(call: SimulatorCall) -> AtlasAnswer:
    members = [one for one in _members(call) if _visible(one, call)]
    if not members:
        raise not_found()
    url = call.request.url
    document = {
        "group": url(f"{API}/measurements/groups/{call.part}/"),
        "group_id": int(call.part),
        "group_members": [{"id": one.id, "url": url(f"{API}/measurements/{one.id}/")} for one in members],
    }
    return json_answer(document)


def _stop_group(call: SimulatorCall) -> AtlasAnswer:
    key = call.require(accounts.STOP)
    members = [one for one in _members(call) if one.account == key.account]
    if not members:
        raise not_found()
    for one in members:
        one.end(STOPPED, call.now_ms)
    return NO_CONTENT


def _members(call: SimulatorCall) -> list[SimulatedMeasurement]:
    return [one for one in call.world.measurements.values() if one.group_id == int(call.part)]


def _credits(call: SimulatorCall) -> AtlasAnswer:
    key = call.require(accounts.CREDITS)
    world = call.world
    account = world.registry.accounts[key.account]
    running = world.running_of(account.name, call.now_ms).values()
    flow = sum(one.results_per_day * one.price for one in running)
    document = credits_document(world.books, account, now_ms=call.now_ms, flow=flow, request=call.request)
    return json_answer(document)


def _transactions(call: SimulatorCall) -> AtlasAnswer:
    key = call.require(accounts.CREDITS)
    charges = call.world.books.charges.get(key.account, ())
    rows = [{"date": one.at_ms // 1_000, "type": "measurement", "amount": -one.credits} for one in charges]
    return json_answer(_envelope(rows[::-1] if call.part == "transactions" else []))


def _list_keys(call: SimulatorCall) -> AtlasAnswer:
    own = call.require(accounts.LIST_KEYS)
    keys = [one for one in call.world.registry.keys.values() if one.account == own.account]
    return json_answer(_envelope([_key_document(one, call) for one in keys]))


def _show_key(call: SimulatorCall) -> AtlasAnswer:
    own = call.require(accounts.GET_KEY, call.part)
    key = call.world.registry.keys.get(call.part)
    if key is None or key.account != own.account:
        raise not_found()
    return json_answer(_key_document(key, call))


def _permissions(call: SimulatorCall) -> AtlasAnswer:
    if call.key is None:
        call.require(accounts.LIST_KEYS)
    rows = [{"permission": name, "description": text} for name, text in accounts.PERMISSIONS.items()]
    return json_answer(_envelope(rows))


def _key_document(key: SimulatedKey, call: SimulatorCall) -> dict[str, Any]:
    grants = [
        {"permission": one.permission, "target": None if one.target is None else {"type": "key", "id": one.target}}
        for one in key.grants
    ]
    return {
        "uuid": key.uuid,
        "valid_from": None,
        "valid_to": key.valid_to_ms and key.valid_to_ms // 1_000,
        "enabled": key.enabled,
        "is_active": key.enabled and (key.valid_to_ms is None or call.now_ms < key.valid_to_ms),
        "created_at": key.created_ms // 1_000,
        "label": key.label,
        "type": "key",
        "grants": grants,
    }


def _list_probes(call: SimulatorCall) -> AtlasAnswer:
    probes = call.world.population.probes
    ids = listing.wanted_ids(call.request)
    page = listing.page_of(call.request)
    those = list(probes) if ids is None else [one for one in dict.fromkeys(ids) if one in probes]
    begin = (page.number - 1) * page.size
    shown = [_probe_document(one, call) for one in those[begin : begin + page.size]]
    more = begin + page.size < len(those) and shown
    query = {name: value for name, value in call.request.query.items() if name not in ("page", "key")}
    following = call.request.url(call.request.path, **query, page=page.number + 1) if more else None
    return json_answer(_envelope(shown) | {"count": len(those), "next": following})


def _show_probe(call: SimulatorCall) -> AtlasAnswer:
    if int(call.part) not in call.world.population.probes:
        raise not_found()
    return json_answer(_probe_document(int(call.part), call))


def _probe_document(probe_id: int, call: SimulatorCall) -> dict[str, Any]:
    probe = call.world.population.probes[probe_id]
    return {
        "id": probe.id,
        "type": "Probe",
        "country_code": probe.country,
        "asn_v4": probe.asn,
        "asn_v6": probe.asn if "system-ipv6-works" in probe.tags else None,
        "address_v4": probe.address_v4,
        "address_v6": probe.address_v6,
        "prefix_v4": probe.prefix_v4,
        "is_public": True,
        "is_anchor": "system-anchor" in probe.tags,
        "status": {"id": 1, "name": "Connected", "since": None},
        "tags": [{"name": tag, "slug": tag} for tag in sorted(probe.tags)],
    }


def _envelope(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"count": len(rows), "next": None, "previous": None, "results": rows}


def _visible(measurement: SimulatedMeasurement, call: SimulatorCall) -> bool:
    return measurement.is_public or (call.key is not None and call.key.account == measurement.account)


def _found(call: SimulatorCall) -> SimulatedMeasurement:
    """Return the measurement of the path. A private measurement of another account counts as not found."""
    measurement = call.world.measurements.get(int(call.part))
    if measurement is None or not _visible(measurement, call):
        raise not_found()
    return measurement


def _own(call: SimulatorCall, permission: str) -> SimulatedMeasurement:
    key = call.require(permission, int(call.part))
    measurement = _found(call)
    if measurement.account != key.account:
        raise ErrorAnswer(403, "You do not have permission to perform this action.", code=104)
    return measurement


def _readable(call: SimulatorCall) -> SimulatedMeasurement:
    measurement = _found(call)
    if not measurement.is_public:
        call.require(accounts.NON_PUBLIC, measurement.id)
    return measurement


def _document(measurement: SimulatedMeasurement, call: SimulatorCall, at_ms: int) -> dict[str, Any]:
    price = call.world.shown_price(measurement)
    document = document_of(measurement, at_ms=at_ms, request=call.request, shown_price=price)
    query = call.request.query
    optional = f"{query.get('optional_fields', '')},{query.get('fields', '')}".split(",")
    if "probes" in optional:
        url = call.request.url
        document["probes"] = [{"id": one, "url": url(f"{API}/probes/{one}/")} for one in measurement.probes]
    if "participation_requests" in optional:
        document["participation_requests"] = [one | {"action": "add"} for one in measurement.specs]
    return document


Handler = Callable[[SimulatorCall], AtlasAnswer]
_ID = r"(\d{1,15})"
_TYPE = "(ping|traceroute|dns|sslcert|ntp|http|wifi)"


def _route(method: str, path: str, handle: Handler) -> tuple[str, re.Pattern[str], Handler]:
    return method, re.compile(f"{API}/{path}"), handle


ROUTES = (
    _route("POST", "measurements", _create),
    _route("POST", "measurements/(my)", _create),
    _route("POST", f"measurements/{_TYPE}", _create),
    _route("GET", "measurements", _list_all),
    _route("GET", "measurements/my", _list_mine),
    _route("GET", f"measurements/{_TYPE}", _list_all),
    _route("GET", f"measurements/{_ID}", _show),
    _route("PATCH", f"measurements/{_ID}", _edit),
    _route("DELETE", f"measurements/{_ID}", _stop),
    _route("GET", f"measurements/{_ID}/results", _results),
    _route("GET", f"measurements/{_ID}/latest", _latest),
    _route("POST", f"measurements/{_ID}/tags", _add_tag),
    _route("DELETE", f"measurements/{_ID}/tags/([^/]+)", _remove_tag),
    _route("GET", f"measurements/groups/{_ID}", _show_group),
    _route("DELETE", f"measurements/groups/{_ID}", _stop_group),
    _route("GET", "credits", _credits),
    _route("GET", "credits/(transactions|income-items|expense-items)", _transactions),
    _route("GET", "keys", _list_keys),
    _route("GET", "keys/permissions", _permissions),
    _route("GET", "keys/([0-9A-Za-z-]{1,64})", _show_key),
    _route("GET", "probes", _list_probes),
    _route("GET", f"probes/{_ID}", _show_probe),
)
