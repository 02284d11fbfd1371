"""Measurements: create, list, show, stop; and the credits that are left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.core.instants import to_datetime
from paceline.core.jobs.compatible.lists import IGNORED, Document, ListRequest, parse_fields, parse_wanted
from paceline.core.jobs.compatible.measurements import API, parse_number, with_probes
from paceline.core.jobs.measurement import KINDS
from paceline.errors import AtlasUnavailable, NotFound
from paceline.ports import Atlas
from paceline.shells.api.http.answers import ApiAnswer, empty_answer, json_answer
from paceline.shells.api.http.bodies import read_body
from paceline.shells.ripe_api.call import CompatibleCall, wait_for_place
from paceline.shells.ripe_api.envelope import Conflict
from paceline.steps.jobs import compatible
from paceline.steps.jobs.compatible import FoundMeasurement, Inseparable, MeasurementList, StopAtRipe, Unread

NO_KEY = "No key was sent, so nothing is listed: send your token as the key."


async def create(call: CompatibleCall) -> ApiAnswer:
    api, owner = call.api, call.owner
    bytes_max = api.system.settings.body_bytes_max
    body = await read_body(call.receive, call.headers, bytes_max=bytes_max, timeout_s=api.body_timeout_s)
    ids = await api.heavy_work(
        compatible.create,
        api.store,
        owner,
        body,
        only_type=call.part,
        limits=api.system.job_limits,
        now_ms=api.now_ms(),
    )
    api.hooks.wake_jobs()
    return json_answer(201, {"measurements": ids})


async def list_mine(call: CompatibleCall) -> ApiAnswer:
    return await _listed(call, call.owner)


async def list_all(call: CompatibleCall) -> ApiAnswer:
    """Lists the user's own measurements; without a key, none."""
    return await _listed(call, call.owner_or_nobody)


async def show(call: CompatibleCall) -> ApiAnswer:
    number = parse_number(call.part, "id")
    api, owner, base_url = call.api, call.owner_or_nobody or _nobody(), call.base_url
    found = await api.read(compatible.find, api.store, owner, number)
    fields = parse_fields(call.query)
    document = await api.read(compatible.show, api.store, found, base_url=base_url)
    if fields.with_probes:
        [document] = await _with_probes(call, [found], [document])
    return json_answer(200, fields.cut(document))


async def stop(call: CompatibleCall) -> ApiAnswer:
    api, owner, number = call.api, call.owner, parse_number(call.part, "id")
    store, vault = api.store, api.system.vault
    stopped = await api.write(lambda: compatible.stop(store, owner, number, now_ms=api.now_ms()))
    if isinstance(stopped, Inseparable):
        raise Conflict(
            "It was submitted together with others and has not been sent yet, so it cannot be stopped alone. Stop all"
            f" of them with DELETE {API}/measurements/groups/{stopped.group_id}/, or wait until it is sent."
        )
    if isinstance(stopped, StopAtRipe):
        order = stopped
        problem = await api.reads.ask(owner, lambda atlas: compatible.stop_at_ripe(store, atlas, vault, order))
        if problem:
            raise AtlasUnavailable(f"It could not be stopped at RIPE: {problem}")
    api.hooks.wake_jobs()
    return empty_answer(204)


async def show_group(call: CompatibleCall) -> ApiAnswer:
    number = parse_number(call.part, "id")
    owner = call.owner_or_nobody or _nobody()
    members = await call.api.read(compatible.group_of, call.api.store, owner, number)
    url = f"{call.base_url}{API}/measurements"
    document = {
        "group": f"{url}/groups/{number}/",
        "group_id": number,
        "group_members": [{"id": one.shown.id, "url": f"{url}/{one.shown.id}/"} for one in members],
    }
    return json_answer(200, document)


async def stop_group(call: CompatibleCall) -> ApiAnswer:
    api, owner, number = call.api, call.owner, parse_number(call.part, "id")
    await api.write(lambda: compatible.stop_group(api.store, owner, number, now_ms=api.now_ms()))
    api.hooks.wake_jobs()
    return empty_answer(204)


async def show_credits(call: CompatibleCall) -> ApiAnswer:
    """Shows the user's daily credits as RIPE shows a balance.

    Reserved credits count as spent until they are refunded.
    """
    now_ms = call.api.now_ms()
    budget = await call.api.read(call.api.store.budget, call.owner, now_ms=now_ms)
    if budget is None:
        raise NotFound("Not found.")
    document = {
        "current_balance": budget.left,
        "credit_checked": True,
        "max_daily_credits": budget.limit,
        "estimated_daily_income": 0,
        "estimated_daily_expenditure": budget.held,
        "estimated_daily_balance": -budget.held,
        "calculation_time": to_datetime(now_ms).strftime("%Y-%m-%dT%H:%M:%S.%f"),
        "estimated_runout_seconds": None,
        "past_day_measurement_results": 0,
        "past_day_credits_spent": budget.limit - budget.left,
    }
    return json_answer(200, document)


async def _listed(call: CompatibleCall, owner: str) -> ApiAnswer:
    only_type = call.part if call.part in KINDS else ""
    wanted = parse_wanted(call.query, only_type=only_type)
    if not owner:
        return json_answer(200, _page(call, wanted, MeasurementList([], 0), [_warning("key", NO_KEY)]))
    work = call.api.work if wanted.is_plain or wanted.ids is not None else call.api.heavy_work
    listed = await work(compatible.list_measurements, call.api.store, owner, wanted, base_url=call.base_url)
    if wanted.fields.with_probes:
        listed = listed._replace(documents=await _with_probes(call, listed.found, listed.documents))
    warnings = [_warning(name, IGNORED) for name in wanted.ignored]
    if not listed.whole:
        words = f"Only the newest {compatible.SCANNED_MAX} measurements were looked through; ask for others by id__in."
        warnings.append(_warning("page", words))
    return json_answer(200, _page(call, wanted, listed, warnings))


async def _with_probes(
    call: CompatibleCall, those: Sequence[FoundMeasurement], documents: Sequence[Document]
) -> list[Document]:
    """Returns the documents with the probes that take part; RIPE is asked for them."""
    store, vault = call.api.store, call.api.system.vault

    def ask(atlas: Atlas) -> list[list[int] | Unread]:
        return [compatible.participants(store, atlas, vault, one) for one in those]

    answers: list[list[int] | Unread] = [[] for _ in those]
    if any(one.stored.atlas for one in those):
        answers = await wait_for_place(lambda: call.api.reads.ask(call.owner_or_nobody, ask))
    if unread := next((one for one in answers if isinstance(one, Unread)), None):
        raise AtlasUnavailable(f"RIPE did not say which probes take part: {unread.reason}")
    return [
        with_probes(document, probes, base_url=call.base_url)
        for document, probes in zip(documents, answers, strict=True)
        if not isinstance(probes, Unread)
    ]


def _page(
    call: CompatibleCall, wanted: ListRequest, listed: MeasurementList, warnings: list[dict[str, Any]]
) -> dict[str, Any]:
    more = wanted.size > 0 and wanted.begin + wanted.size < listed.total
    document: dict[str, Any] = {
        "count": listed.total,
        "next": call.page_url(wanted.page + 1) if more else None,
        "previous": call.page_url(wanted.page - 1) if wanted.page > 1 else None,
        "results": [wanted.fields.cut(one) for one in listed.documents],
    }
    return document | {"warnings": warnings} if warnings else document


def _warning(parameter: str, detail: str) -> dict[str, Any]:
    return {"source": {"parameter": parameter}, "detail": [detail]}


def _nobody() -> str:
    """Raises NotFound: a client without a key must not learn which measurements exist."""
    raise NotFound("Not found.")
