"""Measurements for RIPE's own clients: create, list, stop, read results. Each user sees only their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, assert_never

import msgspec

from paceline.core.instants import to_text
from paceline.core.jobs.atlas import Lost, Refused
from paceline.core.jobs.atlas_replies import Delivered
from paceline.core.jobs.compatible import measurements
from paceline.core.jobs.compatible.lists import Document, ListRequest
from paceline.core.jobs.job import Job, JobLimits, parse_request
from paceline.core.jobs.measurement import Measurement, Probes, kind_of
from paceline.core.jobs.values import Budget, StoredMeasurement
from paceline.errors import FieldProblem, InvalidInput, NotFound, OverDailyCredits
from paceline.ports import Atlas, JobStore, Store, Vault
from paceline.steps.jobs.atlas_keys import find_key, secret_to_read
from paceline.steps.jobs.results import BYTES_MAX
from paceline.steps.jobs.submit import submit_parsed

SCANNED_MAX = 20_000
"""Number of newest measurements that are searched for a filter."""
PAGE = 1_000


class FoundMeasurement(NamedTuple):
    """A measurement in RIPE's sense, with the stored measurement that it belongs to."""

    stored: StoredMeasurement
    shown: measurements.Shown


class MeasurementList(NamedTuple):
    """A page of a list. ``whole`` is False if there are older measurements that the filter did not look at."""

    documents: list[Document]
    total: int
    whole: bool = True
    found: tuple[FoundMeasurement, ...] = ()


class StopResult(NamedTuple):
    """The measurement has ended, or is to be stopped. ``changed`` is False if it had ended before."""

    changed: bool


class StopAtRipe(NamedTuple):
    """A definition that was submitted with others and runs: only RIPE can stop it alone. The others go on."""

    account: str
    key: str | None
    atlas_id: int


class Inseparable(NamedTuple):
    """A definition that was submitted with others and not sent yet: it cannot be taken out of the request."""

    group_id: int


class Unread(NamedTuple):
    """Not all results could be read."""

    reason: str


def create(
    store: Store, owner: str, body: bytes, *, only_type: str = "", limits: JobLimits, now_ms: int
) -> tuple[int, ...]:
    """Submit a request in RIPE's format as a job of one measurement. Return the ids of its definitions, in order."""
    measurement = parse_request(body, limits, now_ms=now_ms)
    if only_type:
        _check_types(measurement, only_type)
    measurement = _with_atlas_sources(store, owner, measurement)
    job = Job((measurement,), title=measurement.definitions[0].description)
    try:
        submitted = submit_parsed(store, owner, job, now_ms=now_ms)
    except OverDailyCredits as over:
        raise _in_ripes_words(over, store.budget(owner, now_ms=now_ms)) from None
    (stored,) = store.measurements(submitted.job.number, after=-1, limit=1)
    return tuple(_shown(stored, number).id for number in range(len(measurement.definitions)))


def find(store: JobStore, owner: str, number: int) -> FoundMeasurement:
    """Return the user's measurement with this id; raise NotFound if there is none, also if it is another user's."""
    handle, definition = _place(store, number)
    stored = store.measurement(handle)
    if stored is None or stored.owner != owner or definition >= len(stored.measurement.definitions):
        raise NotFound("Not found.")
    shown = _shown(stored, definition)
    if shown.id != number:  # it has a number, and so no older id
        raise NotFound("Not found.")
    return FoundMeasurement(stored, shown)


def _place(store: JobStore, number: int) -> tuple[int, int]:
    """Return the handle of a measurement and which of its definitions has this id; handle -1 if none has."""
    counted = measurements.number_of_id(number)
    return measurements.split_older_id(number) if counted is None else store.handle_of_number(counted) or (-1, 0)


def show(store: JobStore, found: FoundMeasurement, *, base_url: str) -> Document:
    return measurements.document_of(found.shown, created_ms=_created_ms(store, found.stored), base_url=base_url)


def list_measurements(store: JobStore, owner: str, wanted: ListRequest, *, base_url: str) -> MeasurementList:
    """Return one page of the user's measurements. At most the newest ``SCANNED_MAX`` are searched."""
    places: list[tuple[bool, Any, int, int]] = []
    scanned = 0
    enough = wanted.begin + wanted.size if wanted.is_plain else None
    for stored in _candidates(store, owner, wanted):
        scanned += 1
        created_ms = _created_ms(store, stored) if wanted.needs_creation else None
        for definition in reversed(range(len(stored.measurement.definitions))):
            shown = _shown(stored, definition)
            if wanted.ids is not None and shown.id not in wanted.ids:
                continue
            document = measurements.document_of(shown, created_ms=created_ms, base_url="")
            if wanted.fits(document):
                places.append((*wanted.order(document, shown.rank), shown.id))
        if enough is not None and len(places) >= enough:
            break
    count = store.count_of(owner, states=()) if wanted.is_plain else len(places)
    places.sort(reverse=wanted.sort.startswith("-"))
    page = [place[-1] for place in places[wanted.begin : wanted.begin + wanted.size]]
    found = tuple(_found_again(store, owner, page))
    documents = [show(store, one, base_url=base_url) for one in found]
    return MeasurementList(documents, count, whole=wanted.is_plain or scanned < SCANNED_MAX, found=found)


def stop(store: JobStore, owner: str, number: int, *, now_ms: int) -> StopResult | StopAtRipe | Inseparable:
    """Cancel a measurement. One of several that were submitted together can only be stopped alone once RIPE has it."""
    stored, shown = find(store, owner, number)
    if shown.group_id is None or stored.ended_ms is not None:
        return StopResult(store.cancel_measurement(stored.handle, now_ms=now_ms))
    if not stored.atlas:
        return Inseparable(shown.group_id)
    return StopAtRipe(stored.account or "", stored.key, stored.atlas[shown.definition].atlas_id)


def stop_at_ripe(store: JobStore, atlas: Atlas, vault: Vault, order: StopAtRipe) -> str:
    """Stop a definition at RIPE. Return why it could not be stopped, or an empty text. Stopping twice does no harm."""
    key = find_key(store, vault, order.account, prefer=order.key)
    if key is None:
        return "its account has no key that can be used"
    answer = atlas.stop(key.secret, order.atlas_id)
    return answer.reason if isinstance(answer, Refused | Lost) else ""


def group_of(store: JobStore, owner: str, number: int) -> list[FoundMeasurement]:
    """Return all definitions that were submitted together; ``number`` is the id of the first."""
    first = find(store, owner, number)
    if first.shown.group_id != number:
        raise NotFound("Not found.")
    stored = first.stored
    return [FoundMeasurement(stored, _shown(stored, index)) for index in range(len(stored.measurement.definitions))]


def stop_group(store: JobStore, owner: str, number: int, *, now_ms: int) -> StopResult:
    first = group_of(store, owner, number)[0]
    return StopResult(store.cancel_measurement(first.stored.handle, now_ms=now_ms))


def read_results(
    store: JobStore, atlas: Atlas, vault: Vault, found: FoundMeasurement, take: Callable[[bytes], None]
) -> Unread | None:
    """Pass each of RIPE's results to ``take`` as a line; none before it is sent. Return None if these were all."""
    stored, shown = found
    if not stored.atlas:
        return None
    secret = secret_to_read(store, vault, stored.account, prefer=stored.key)
    answer = atlas.results(secret, stored.atlas[shown.definition].atlas_id, take, bytes_max=BYTES_MAX)
    match answer:
        case Delivered(whole=True):
            return None
        case Delivered():
            return Unread(f"there is more than {BYTES_MAX} bytes of it")
        case Refused() | Lost():
            return Unread(answer.reason)
        case _:
            assert_never(answer)


def participants(store: JobStore, atlas: Atlas, vault: Vault, found: FoundMeasurement) -> list[int] | Unread:
    """Return the probes that RIPE assigned to the measurement; none before it is sent."""
    stored, shown = found
    if not stored.atlas:
        return []
    secret = secret_to_read(store, vault, stored.account, prefer=stored.key)
    answer = atlas.participants(secret, stored.atlas[shown.definition].atlas_id)
    return Unread(answer.reason) if isinstance(answer, Refused | Lost) else answer


def _candidates(store: JobStore, owner: str, wanted: ListRequest) -> Iterator[StoredMeasurement]:
    if wanted.ids is not None:
        handles = dict.fromkeys(sorted((_place(store, number)[0] for number in wanted.ids), reverse=True))
        found = (store.measurement(handle) for handle in handles)
        yield from (one for one in found if one is not None and one.owner == owner)
        return
    states, before = measurements.states_for(wanted.statuses), None
    for _ in range(SCANNED_MAX // PAGE):
        page = store.measurements_of(owner, states=states, before=before, limit=PAGE)
        yield from page
        if len(page) < PAGE:
            return
        before = page[-1].handle


def _found_again(store: JobStore, owner: str, ids: Sequence[int]) -> Iterator[FoundMeasurement]:
    """Yield the measurements of a page; one that was removed meanwhile is left out."""
    for number in ids:
        try:
            found = find(store, owner, number)
            # A list shows the state by which it is filtered, also while RIPE still counts the measurement as running.
            yield FoundMeasurement(found.stored, found.shown._replace(running=False))
        except NotFound:
            continue


def _created_ms(store: JobStore, stored: StoredMeasurement) -> int | None:
    job = store.job(stored.job)
    return None if job is None else job.created_ms


def _shown(stored: StoredMeasurement, definition: int) -> measurements.Shown:
    return measurements.Shown(
        handle=stored.handle,
        definition=definition,
        measurement=stored.measurement,
        state=stored.state,
        atlas_status=stored.atlas[definition].status if stored.atlas else None,
        answered_ms=stored.answered_ms if stored.atlas else None,
        ended_ms=stored.ended_ms,
        number=stored.number,
        running=stored.running,
        scheduled=stored.atlas[definition].scheduled if stored.atlas else None,
    )


def _check_types(measurement: Measurement, only_type: str) -> None:
    problems = [
        FieldProblem(f"/definitions/{index}/type", f"only {only_type} at this address")
        for index, definition in enumerate(measurement.definitions)
        if kind_of(definition) != only_type
    ]
    if problems:
        raise InvalidInput.of(*problems)


def _with_atlas_sources(store: JobStore, owner: str, measurement: Measurement) -> Measurement:
    """Replace ids of measurements whose probes are to be used again: users have our ids, RIPE needs its own."""
    if all(source.type != "msm" for source in measurement.probes):
        return measurement
    probes = tuple(_atlas_source(store, owner, source, index) for index, source in enumerate(measurement.probes))
    return msgspec.structs.replace(measurement, probes=probes)


def _atlas_source(store: JobStore, owner: str, source: Probes, index: int) -> Probes:
    if source.type != "msm" or int(source.value) < measurements.RIPE_ALONE_MAX:
        return source
    pointer = f"/probes/{index}/value"
    try:
        stored, shown = find(store, owner, int(source.value))
    except NotFound:
        detail = "you have no measurement of this id; RIPE's own ids of this size go through /v1/jobs"
        raise InvalidInput.of(FieldProblem(pointer, detail)) from None
    if not stored.atlas:
        raise InvalidInput.of(FieldProblem(pointer, "it has not been sent yet, so its probes are not known; wait"))
    return msgspec.structs.replace(source, value=stored.atlas[shown.definition].atlas_id)


def _in_ripes_words(over: OverDailyCredits, budget: Budget | None) -> OverDailyCredits:
    """Return the error in RIPE's words, by which clients tell its refusals apart."""
    limit = over.credits_left if budget is None else budget.limit
    spent = max(0, limit - over.credits_left)
    return OverDailyCredits(
        f"Executing this measurement request will increase your current ({spent}) credits spending by"
        f" {float(over.cost)} totalling {float(spent + over.cost)} which is higher than your maximum daily credits"
        f" limit {limit}. Ask for less, or wait until {to_text(over.resets_ms)}.",
        cost=over.cost,
        credits_left=over.credits_left,
        resets_ms=over.resets_ms,
        refusal=over.refusal,
    )
