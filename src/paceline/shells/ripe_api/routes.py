"""Paths of RIPE's API that Paceline offers, each with and without its last slash."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from paceline.core.jobs.compatible.measurements import API
from paceline.core.jobs.measurement import KINDS
from paceline.shells.api.http.answers import ApiAnswer, Stream
from paceline.shells.ripe_api import key_list, measurements, probes, results
from paceline.shells.ripe_api.call import CompatibleCall

_PLACES = {"{id}": r"(\d{1,16})", "{type}": f"({'|'.join(KINDS)})"}


class CompatibleRoute(NamedTuple):
    """A route. ``name`` is the path with its placeholders, as metrics and logs show it."""

    method: str
    name: str
    pattern: re.Pattern[str]
    handler: Callable[[CompatibleCall], Awaitable[ApiAnswer | Stream]]
    waits: bool
    """True if the route waits for RIPE: slow answers are not logged."""


def _route(
    method: str, path: str, handler: Callable[[CompatibleCall], Awaitable[ApiAnswer | Stream]], *, waits: bool = False
) -> CompatibleRoute:
    pattern = path
    for place, text in _PLACES.items():
        pattern = pattern.replace(place, text)
    return CompatibleRoute(method, f"{API}/{path}/", re.compile(f"{API}/{pattern}"), handler, waits)


ROUTES = (
    _route("POST", "measurements", measurements.create),
    _route("POST", "measurements/my", measurements.create),
    _route("POST", "measurements/{type}", measurements.create),
    _route("GET", "measurements", measurements.list_all),
    _route("GET", "measurements/my", measurements.list_mine),
    _route("GET", "measurements/{type}", measurements.list_all),
    _route("GET", "measurements/{id}", measurements.show, waits=True),
    _route("DELETE", "measurements/{id}", measurements.stop, waits=True),
    _route("GET", "measurements/{id}/results", results.stream, waits=True),
    _route("GET", "measurements/{id}/latest", results.latest, waits=True),
    _route("GET", "measurements-latest/{id}", results.latest, waits=True),
    _route("GET", "measurements/groups/{id}", measurements.show_group),
    _route("DELETE", "measurements/groups/{id}", measurements.stop_group),
    _route("GET", "credits", measurements.show_credits),
    _route("GET", "keys", key_list.list_keys),
    _route("GET", "probes", probes.list_probes, waits=True),
    _route("GET", "probes/{id}", probes.show, waits=True),
)
