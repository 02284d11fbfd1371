"""Probes, as RIPE describes them: RIPE's report tools ask for the probes that results name."""

from __future__ import annotations

from typing import Any

from paceline.core.jobs.atlas import Lost, Refused
from paceline.core.jobs.compatible.measurements import parse_number, wrong_parameter
from paceline.errors import AtlasUnavailable, NotFound
from paceline.shells.api.http.answers import ApiAnswer, json_answer
from paceline.shells.ripe_api.call import CompatibleCall, wait_for_place

IDS_MAX = 500
ID_MAX = 2**31 - 1
"""RIPE is not asked for larger ids: no probe can have them."""


async def list_probes(call: CompatibleCall) -> ApiAnswer:
    """Lists probes by id only. For a search among all probes, clients must ask RIPE itself."""
    name = "id__in" if "id__in" in call.query else "id"
    if not call.query.get(name):
        raise wrong_parameter("id__in", "Name the probes; to search among all of them, ask RIPE itself.")
    ids = list(dict.fromkeys(parse_number(part, name) for part in call.query[name].split(",")))
    if len(ids) > IDS_MAX:
        raise wrong_parameter(name, f"At most {IDS_MAX} probes at a time.")
    found = await _find(call, ids)
    return json_answer(200, {"count": len(found), "next": None, "previous": None, "results": found})


async def show(call: CompatibleCall) -> ApiAnswer:
    found = await _find(call, [parse_number(call.part, "id")])
    if not found:
        raise NotFound("Not found.")
    return json_answer(200, found[0])


async def _find(call: CompatibleCall, asked: list[int]) -> list[dict[str, Any]]:
    ids = [one for one in asked if one <= ID_MAX]
    known, now_ms = call.probes, call.api.now_ms()
    if missing := known.missing(ids, now_ms=now_ms):
        answer = await wait_for_place(
            lambda: call.api.reads.ask(call.owner_or_nobody, lambda atlas: atlas.probes(missing))
        )
        if isinstance(answer, Refused | Lost):
            raise AtlasUnavailable(f"RIPE did not return the probes: {answer.reason}")
        known.keep(missing, answer, now_ms=now_ms)
    return known.documents(ids)
