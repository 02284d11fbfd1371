"""Routes of the outgoing queue: claim runs, report outcomes, extend leases; and of any single run by its id."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from urllib.parse import quote, unquote

import msgspec

from paceline import errors
from paceline.core.batches.outgoing import AFTER_MS_MAX
from paceline.core.durations import DURATION_RULE, format_duration, parse_duration_ms
from paceline.core.ids import call_run_id, parse_call_run_id
from paceline.core.instants import to_ms, to_text
from paceline.core.monitors.checks import DEFAULT_QUEUE
from paceline.core.parsing import decode
from paceline.shells.api import outgoing_documents as documents
from paceline.shells.api.http.answers import ApiAnswer, json_answer
from paceline.shells.api.http.auth import RunRights, owner_of, require_admin, rights_of, viewer_of
from paceline.shells.api.http.batched_writes import ClaimAsk, WorkerAsk
from paceline.shells.api.http.context import ApiCall
from paceline.shells.api.http.long_poll import PollResult, poll
from paceline.shells.api.http.problems import point_into, problem_of
from paceline.shells.api.http.route import RouteGroup
from paceline.steps.access import get_user
from paceline.steps.batches import outgoing as workers
from paceline.steps.monitors import outgoing
from paceline.steps.views.days import CallRunView, show_call_run
from paceline.steps.views.report import RunView, run_view
from paceline.steps.views.report import show_run as show_monitor_run

OUTCOMES_PER_PUT, CLAIMS_PER_PUT = 4, 4
"""How many outcomes, or claims, take about as long as one put of a monitor."""
RUN_CHARS_MAX = 300
_chance = random.SystemRandom().random


class _NamedRun(msgspec.Struct):
    run: str


_OUTCOME = msgspec.json.Decoder(documents.OutcomeItem)
_NAMED = msgspec.json.Decoder(_NamedRun)
OUTGOING = RouteGroup("Outgoing queue", scopes=("checker", "worker"))
RUNS = RouteGroup("Runs")


@OUTGOING.post(
    "/v1/outgoing/claim",
    (documents.ClaimAnswer, documents.WorkerClaimAnswer),
    body=documents.ClaimBody,
    body_needed=False,
    waits=True,
    problems=(errors.NotFound, errors.Forbidden, errors.NotClaimable),
    hot=True,
)
async def claim_runs(call: ApiCall) -> ApiAnswer:
    """Leases runs for your own checker or worker; waits for the first, up to `wait`.

    If the client has gone away, nothing more is claimed.
    """
    body: documents.ClaimBody = call.body
    lease_ms = _duration(body.lease, "/lease", ms_min=outgoing.LEASE_MS_MIN, ms_max=outgoing.LEASE_MS_MAX)
    wait_ms = _duration(body.wait, "/wait", ms_min=0, ms_max=documents.WAIT_MS_MAX)
    weight = 1 + body.max // CLAIMS_PER_PUT
    if not isinstance(body.provider, msgspec.UnsetType):
        work = WorkerAsk(_worker_provider(call, body), lease_ms, body.max)
        calls = await poll(call, partial(_look_for_work, call, work, weight), workers.give_back_calls, wait_ms=wait_ms)
        _count_call_starts(call, calls)
        return json_answer(200, documents.WorkerClaimAnswer(calls))
    ask = ClaimAsk(await _claimed_owner(call, body), body.queue, lease_ms, body.max)
    items = await poll(call, partial(_look_for_checks, call, ask, weight), outgoing.give_back, wait_ms=wait_ms)
    _count_starts(call, items)
    return json_answer(200, documents.ClaimAnswer(items))


@OUTGOING.post(
    "/v1/runs/{run}/claim",
    (outgoing.OutgoingItem, workers.CallItem),
    body=documents.RunClaimBody,
    body_needed=False,
    problems=(errors.NotClaimable,),
    hot=True,
)
async def claim_run(call: ApiCall) -> ApiAnswer:
    """Leases one run by its id, for a checker or a worker that got a message about it."""
    body: documents.RunClaimBody = call.body
    api, rights = call.api, rights_of(call.user)
    lease_ms = _duration(body.lease, "/lease", ms_min=outgoing.LEASE_MS_MIN, ms_max=outgoing.LEASE_MS_MAX)
    attempt = None if isinstance(body.attempt, msgspec.UnsetType) else body.attempt
    if (call_run := _call_run(rights, call.params["run"])) is not None:
        asked = workers.CallRunClaim(call_run, attempt, lease_ms, rights.provider)
        work = await api.write(lambda: workers.claim_call_run(api.store, asked, now_ms=api.now_ms()))
        _count_call_starts(call, [work])
        return json_answer(200, work)
    ask = outgoing.RunClaim(canonical_run(call.params["run"]), attempt, lease_ms, rights.viewer)
    item = await api.do(api.writes.claim_runs, ask)
    _count_starts(call, [item])
    return json_answer(200, item)


@OUTGOING.post(
    "/v1/runs/{run}/outcome",
    (RunView, CallRunView),
    body=documents.OutcomeBody,
    problems=(errors.StaleLease,),
    hot=True,
)
async def report_outcome(call: ApiCall) -> ApiAnswer:
    """Settles a leased run: ok, failed, or retry."""
    api = call.api
    report = _report(call.params["run"], call.body, rights_of(call.user))
    if parse_call_run_id(report.run) is not None:
        ended = await api.do(api.writes.report_calls, report)
        api.hooks.metrics.count_runs("batch", ended.state)
        api.hooks.arrivals.notify()
        return json_answer(200, ended)
    settled = await api.do(api.writes.report, report)
    api.hooks.metrics.count_runs("outgoing", settled.state)
    # The next run of the same monitor may be claimable now.
    api.hooks.arrivals.notify()
    return json_answer(200, run_view(settled))


@OUTGOING.post(
    "/v1/outgoing/outcomes", documents.OutcomesAnswer, body=documents.OutcomesBody, body_bytes_max=sys.maxsize, hot=True
)
async def report_outcomes(call: ApiCall) -> ApiAnswer:
    """Settles up to 1,000 leased runs; answers with a disposition for each.

    All are written in one act; each item is judged by itself.
    """
    api = call.api
    reports, results = _parse_outcomes(call.body, rights_of(call.user))
    weight = 1 + len(reports) // OUTCOMES_PER_PUT
    done = await api.do(api.writes.report_lists, list(reports.values()), weight=weight) if reports else []
    for (index, report), recorded in zip(reports.items(), done, strict=True):
        results[index] = _outcome_result(report.run, recorded, f"/items/{index}")
    states = Counter(
        ("outgoing" if isinstance(recorded, outgoing.Recorded) else "batch", recorded.state)
        for recorded in done
        if not isinstance(recorded, errors.PacelineError)
    )
    for (kind, state), count in states.items():
        api.hooks.metrics.count_runs(kind, state, count)
    if states:
        api.hooks.arrivals.notify()
    return json_answer(200, documents.OutcomesAnswer(results))


@OUTGOING.post(
    "/v1/runs/{run}/extend", documents.ExtendAnswer, body=documents.ExtendBody, problems=(errors.StaleLease,)
)
async def extend_lease(call: ApiCall) -> ApiAnswer:
    """Moves the end of a lease, counted from now."""
    body: documents.ExtendBody = call.body
    api, run = call.api, canonical_run(call.params["run"])
    by_ms = _duration(body.by, "/by", ms_min=outgoing.LEASE_MS_MIN, ms_max=outgoing.LEASE_MS_MAX)
    rights = rights_of(call.user)
    if (call_run := _call_run(rights, call.params["run"])) is not None:
        extend = partial(workers.extend_call_lease, api.store, call_run, provider=rights.provider)
    else:
        extend = partial(outgoing.extend_lease, api.store, run, viewer=rights.viewer)
    until_ms = await api.write(lambda: extend(lease=body.lease, by_ms=by_ms, now_ms=api.now_ms()))
    return json_answer(200, documents.ExtendAnswer(to_text(until_ms)))


@RUNS.get("/v1/runs/{run}", (RunView, CallRunView))
async def show_run(call: ApiCall) -> ApiAnswer:
    """One run by its id; a batch's runs are for admins."""
    api, viewer, now_ms = call.api, viewer_of(call.user), call.api.now_ms()
    if viewer is None and (call_run := canonical_call_run(call.params["run"])) is not None:
        return json_answer(200, await api.read(show_call_run, api.store, call_run, now_ms=now_ms))
    run = canonical_run(call.params["run"])
    return json_answer(200, await api.read(show_monitor_run, api.store, run, viewer=viewer, now_ms=now_ms))


async def _look_for_checks(call: ApiCall, ask: ClaimAsk, weight: int) -> PollResult[outgoing.OutgoingItem]:
    return PollResult(await call.api.do(call.api.writes.claim, ask, weight=weight))


async def _look_for_work(call: ApiCall, ask: WorkerAsk, weight: int) -> PollResult[workers.CallItem]:
    return PollResult(*await call.api.do(call.api.writes.claim_for_workers, ask, weight=weight))


def _call_run(rights: RunRights, text: str) -> str | None:
    """Returns the id of a batch's run that the token may use, or None if the text is treated as a monitor's run.

    For a token without a scope whose user is no admin, a batch's run does not exist.
    """
    call_run = canonical_call_run(text)
    if call_run is not None and rights.calls:
        return call_run
    if call_run is not None and rights.scope:
        raise rights.out_of_scope("it does not cover runs of batches")
    if not rights.checks:
        raise rights.out_of_scope("it does not cover runs of monitors")
    return None


def _report(
    run: str, body: documents.OutcomeBody | documents.OutcomeItem, rights: RunRights, pointer: str = ""
) -> outgoing.OutcomeReport:
    after_ms = None
    if not isinstance(body.after, msgspec.UnsetType):
        if body.status != "retry":
            raise errors.InvalidInput.of(errors.FieldProblem(f"{pointer}/after", 'only for status "retry"'))
        after_ms = _duration(body.after, f"{pointer}/after", ms_min=0, ms_max=AFTER_MS_MAX)
    name = _call_run(rights, run) or canonical_run(run)
    return outgoing.OutcomeReport(
        name, body.lease, body.status, body.detail, rights.viewer, _chance(), after_ms, rights.provider
    )


def _parse_outcomes(
    body: documents.OutcomesBody, rights: RunRights
) -> tuple[dict[int, outgoing.OutcomeReport], list[documents.OutcomeResult]]:
    """Returns the valid reports by their index, and a list of results that has the refusals in it."""
    if len(body.items) > documents.OUTCOMES_MAX:
        raise errors.InvalidInput.of(
            errors.FieldProblem("/items", f"at most {documents.OUTCOMES_MAX} items; send the rest in another request")
        )
    reports: dict[int, outgoing.OutcomeReport] = {}
    results = [documents.OutcomeResult(None, "refused")] * len(body.items)
    for index, raw in enumerate(body.items):
        try:
            item = decode(_OUTCOME, bytes(raw), f"/items/{index}")
            reports[index] = _report(item.run, item, rights, f"/items/{index}")
        except errors.PacelineError as error:
            results[index] = documents.OutcomeResult(_named(raw), "refused", error=problem_of(error))
    return reports, results


def _named(raw: msgspec.Raw) -> str | None:
    """Returns the run that an invalid item names, or None if that cannot be read."""
    try:
        return str(_NAMED.decode(raw).run)[:RUN_CHARS_MAX]
    except msgspec.MsgspecError:
        return None


def _outcome_result(
    run: str, recorded: outgoing.Recorded | workers.RecordedCall | errors.PacelineError, pointer: str
) -> documents.OutcomeResult:
    if isinstance(recorded, errors.PacelineError):
        stale = isinstance(recorded, errors.StaleLease)
        error = problem_of(point_into(recorded, pointer))
        return documents.OutcomeResult(run, "stale" if stale else "refused", error=error)
    if recorded.state == "retry":
        return documents.OutcomeResult(run, "retried")
    return documents.OutcomeResult(run, "settled", recorded.state)


def canonical_run(text: str) -> str:
    """Returns the run's id, also if the client decoded the escapes inside it. Ids contain no ``%``."""
    key, hash_, tail = text.rpartition("#")
    owner, slash, monitor = key.partition("/")
    if not hash_ or not slash:
        return text
    return f"{quote(unquote(owner), safe='')}/{quote(unquote(monitor), safe='')}#{tail}"


def canonical_call_run(text: str) -> str | None:
    """Returns the id of a batch's run, also if the client decoded its escapes; None if the text cannot be one."""
    key, at, date = text.rpartition("@")
    batch, slash, record = key.partition("/")
    if not at or not slash or "#" in key:
        return None
    return call_run_id(unquote(batch), unquote(record), date)


def check_run_owner(run: str, viewer: str) -> None:
    """Raises NotFound for a run of another owner. It goes by the id alone, whether the run exists or not."""
    name = canonical_run(run)
    if name.partition("/")[0] != quote(viewer, safe=""):
        raise errors.NotFound(f"There is no run {name[:300]!r}. Ids look like user/monitor#generation@counter.")


def _count_starts(call: ApiCall, items: Sequence[outgoing.OutgoingItem]) -> None:
    now_ms = call.api.now_ms()
    late_ms = [now_ms - to_ms(datetime.fromisoformat(item.due)) for item in items if item.attempt == 1]
    call.api.hooks.metrics.observe_starts_ms("outgoing", late_ms)


def _count_call_starts(call: ApiCall, items: Sequence[workers.CallItem]) -> None:
    now_ms = call.api.now_ms()
    late_ms = [max(0, now_ms - to_ms(datetime.fromisoformat(item.due))) for item in items if item.attempt == 1]
    call.api.hooks.metrics.observe_calls_ms(late_ms)


def _worker_provider(call: ApiCall, body: documents.ClaimBody) -> str:
    """Returns the provider of a worker's claim; raises Forbidden if the user may not claim there."""
    assert not isinstance(body.provider, msgspec.UnsetType)
    if not isinstance(body.user, msgspec.UnsetType):
        raise errors.InvalidInput.of(
            errors.FieldProblem("/user", 'has no meaning with "provider": batches belong to no user')
        )
    if body.queue != DEFAULT_QUEUE:
        raise errors.InvalidInput.of(
            errors.FieldProblem("/queue", 'has no meaning with "provider": a provider is its own queue')
        )
    rights = rights_of(call.user)
    if rights.scope and (not rights.calls or rights.provider != body.provider):
        raise rights.out_of_scope(f"it does not cover provider {body.provider!r}")
    if not rights.scope:
        require_admin(call.user)
    return body.provider


async def _claimed_owner(call: ApiCall, body: documents.ClaimBody) -> str | None:
    rights = rights_of(call.user)
    if not rights.checks:
        raise rights.out_of_scope('name its provider in "provider"')
    if isinstance(body.user, msgspec.UnsetType):
        return viewer_of(call.user)
    return (await call.api.read(get_user, call.api.store, owner_of(call.user, body.user))).id


def _duration(text: str, pointer: str, *, ms_min: int, ms_max: int) -> int:
    ms = parse_duration_ms(text)
    if ms is None:
        raise errors.InvalidInput.of(errors.FieldProblem(pointer, f"write {DURATION_RULE}"))
    if not ms_min <= ms <= ms_max:
        allowed = f"must be from {format_duration(ms_min)} to {format_duration(ms_max)}"
        raise errors.InvalidInput.of(errors.FieldProblem(pointer, allowed))
    return ms
