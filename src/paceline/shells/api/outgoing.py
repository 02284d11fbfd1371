"""The outgoing queue: claim runs, report outcomes, extend leases; and show any run by its id."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from urllib.parse import quote, unquote

import msgspec

from paceline.core.durations import DURATION_RULE, format_duration, parse_duration_ms
from paceline.core.ids import call_run_id
from paceline.core.instants import to_ms, to_text
from paceline.core.parsing import decode
from paceline.errors import (
    FieldProblem,
    InvalidInput,
    NotClaimable,
    NotFound,
    PacelineError,
    StaleLease,
    Unauthenticated,
)
from paceline.shells.api.documents import (
    OUTCOMES_MAX,
    WAIT_MS_MAX,
    ClaimAnswer,
    ClaimBody,
    ExtendAnswer,
    ExtendBody,
    OutcomeBody,
    OutcomeItem,
    OutcomeResult,
    OutcomesAnswer,
    OutcomesBody,
    RunClaimBody,
)
from paceline.shells.api.http.answers import Answer, disconnected, json_answer
from paceline.shells.api.http.auth import owner_of, secret_of, viewer_of
from paceline.shells.api.http.batched_writes import ClaimAsk
from paceline.shells.api.http.bodies import ClientGone
from paceline.shells.api.http.context import Call
from paceline.shells.api.http.problems import problem_of
from paceline.shells.api.http.route import Group, Route
from paceline.steps.access import authenticate, get_user
from paceline.steps.monitors import outgoing
from paceline.steps.views.days import CallRunView, show_call_run
from paceline.steps.views.report import RunView, run_view
from paceline.steps.views.report import show_run as show_monitor_run

POLL_S = 0.5
"""A long poll looks again after this time even without a signal: another process may make runs in the store."""
OUTCOMES_PER_PUT, CLAIMS_PER_PUT = 4, 4
"""So many take about as long as one put of a monitor."""
RUN_CHARS_MAX = 300
_chance = random.SystemRandom().random


class _Named(msgspec.Struct):
    run: str


_OUTCOME = msgspec.json.Decoder(OutcomeItem)
_NAMED = msgspec.json.Decoder(_Named)
OUTGOING = Group("Outgoing queue")
RUNS = Group("Runs")


@Route(
    OUTGOING,
    "POST",
    "/v1/outgoing/claim",
    {200: ClaimAnswer},
    body=ClaimBody,
    body_needed=False,
    waits=True,
    problems=(NotFound,),
    hot=True,
)
async def claim_runs(call: Call) -> Answer:
    """Leases runs for your own checker; waits for the first, up to `wait`.

    A client that has gone away claims nothing any more.
    """
    body: ClaimBody = call.body
    arrivals, api = call.api.hooks.arrivals, call.api
    lease_ms = _duration(body.lease, "/lease", ms_min=outgoing.LEASE_MS_MIN, ms_max=outgoing.LEASE_MS_MAX)
    wait_ms = _duration(body.wait, "/wait", ms_min=0, ms_max=WAIT_MS_MAX)
    ask = ClaimAsk(await _claimed_owner(call, body), lease_ms, body.max)
    loop = asyncio.get_running_loop()
    until_s = loop.time() + wait_ms / 1_000
    gone: asyncio.Task[None] | None = None
    try:
        while True:
            mark = arrivals.mark()
            items = await api.do(api.writes.claim, ask, weight=1 + body.max // CLAIMS_PER_PUT)
            left_s = until_s - loop.time()
            if items or left_s <= 0 or arrivals.closed:
                if gone is not None:
                    await api.write(partial(_judge_again, call, items))
                _count_starts(call, items)
                return json_answer(200, ClaimAnswer(items))
            if gone is None:
                gone = loop.create_task(disconnected(call.receive))
            await arrivals.wait(mark, timeout_s=min(max(POLL_S, call.api.system.traits.look_ms_min / 1_000), left_s))
            if gone.done():
                raise ClientGone
    finally:
        if gone is not None:
            gone.cancel()


@Route(
    OUTGOING,
    "POST",
    "/v1/runs/{run}/claim",
    {200: outgoing.OutgoingItem},
    body=RunClaimBody,
    body_needed=False,
    problems=(NotClaimable,),
    hot=True,
)
async def claim_run(call: Call) -> Answer:
    """Leases one run by its id, for a checker that was told of it by a message."""
    body: RunClaimBody = call.body
    lease_ms = _duration(body.lease, "/lease", ms_min=outgoing.LEASE_MS_MIN, ms_max=outgoing.LEASE_MS_MAX)
    attempt = None if isinstance(body.attempt, msgspec.UnsetType) else body.attempt
    ask = outgoing.RunClaim(canonical_run(call.params["run"]), attempt, lease_ms, viewer_of(call.user))
    item = await call.api.do(call.api.writes.claim_runs, ask)
    _count_starts(call, [item])
    return json_answer(200, item)


@Route(OUTGOING, "POST", "/v1/runs/{run}/outcome", {200: RunView}, body=OutcomeBody, problems=(StaleLease,), hot=True)
async def report_outcome(call: Call) -> Answer:
    """Settles a leased run: ok, failed, or retry."""
    body: OutcomeBody = call.body
    api, run = call.api, canonical_run(call.params["run"])
    report = outgoing.OutcomeReport(run, body.lease, body.status, body.detail, viewer_of(call.user), _chance())
    settled = await api.do(api.writes.report, report)
    api.hooks.metrics.count_runs("outgoing", settled.state)
    # The next run of the same monitor may be claimable now.
    api.hooks.arrivals.notify()
    return json_answer(200, run_view(settled))


@Route(
    OUTGOING,
    "POST",
    "/v1/outgoing/outcomes",
    {200: OutcomesAnswer},
    body=OutcomesBody,
    body_bytes_max=sys.maxsize,
    hot=True,
)
async def report_outcomes(call: Call) -> Answer:
    """Settles up to 1,000 leased runs; answers a disposition for each.

    All are written in one act; each item is judged by itself.
    """
    api, viewer = call.api, viewer_of(call.user)
    reports, results = _parse_outcomes(call.body, viewer)
    weight = 1 + len(reports) // OUTCOMES_PER_PUT
    done = await api.do(api.writes.report_lists, list(reports.values()), weight=weight) if reports else []
    for (index, report), recorded in zip(reports.items(), done, strict=True):
        results[index] = _outcome_result(report.run, recorded)
    states = Counter(recorded.state for recorded in done if isinstance(recorded, outgoing.Recorded))
    for state, count in states.items():
        api.hooks.metrics.count_runs("outgoing", state, count)
    if states:
        api.hooks.arrivals.notify()
    return json_answer(200, OutcomesAnswer(results))


@Route(OUTGOING, "POST", "/v1/runs/{run}/extend", {200: ExtendAnswer}, body=ExtendBody, problems=(StaleLease,))
async def extend_lease(call: Call) -> Answer:
    """Moves the end of a lease, counted from now."""
    body: ExtendBody = call.body
    api, run = call.api, canonical_run(call.params["run"])
    by_ms = _duration(body.by, "/by", ms_min=outgoing.LEASE_MS_MIN, ms_max=outgoing.LEASE_MS_MAX)
    viewer = viewer_of(call.user)
    until_ms = await api.write(
        lambda: outgoing.extend_lease(api.store, run, lease=body.lease, by_ms=by_ms, viewer=viewer, now_ms=api.now_ms())
    )
    return json_answer(200, ExtendAnswer(to_text(until_ms)))


@Route(RUNS, "GET", "/v1/runs/{run}", {200: (RunView, CallRunView)})
async def show_run(call: Call) -> Answer:
    """One run by its id; a batch's runs are for admins."""
    api, viewer, now_ms = call.api, viewer_of(call.user), call.api.now_ms()
    if viewer is None and (call_run := canonical_call_run(call.params["run"])) is not None:
        return json_answer(200, await api.read(show_call_run, api.store, call_run, now_ms=now_ms))
    run = canonical_run(call.params["run"])
    return json_answer(200, await api.read(show_monitor_run, api.store, run, viewer=viewer, now_ms=now_ms))


def _judge_again(call: Call, items: Sequence[outgoing.OutgoingItem]) -> None:
    """After a wait: raises Unauthenticated and gives the runs back if the token was revoked meanwhile.

    The same if its user was disabled or has another role.
    """
    store = call.api.store
    user = authenticate(store, secret_of(call.headers), secret_key=call.api.system.secret_key)
    if user is not None and user.role == call.user.role:
        return
    outgoing.give_back(store, items, now_ms=call.api.now_ms())
    call.api.hooks.arrivals.notify()
    raise Unauthenticated("While this request waited, its token was revoked, or its user disabled or changed.")


def _parse_outcomes(
    body: OutcomesBody, viewer: str | None
) -> tuple[dict[int, outgoing.OutcomeReport], list[OutcomeResult]]:
    """The valid reports by their index, and a list of results with the refusals in it."""
    if len(body.items) > OUTCOMES_MAX:
        raise InvalidInput.of(FieldProblem("/items", f"at most {OUTCOMES_MAX} items; send the rest in another request"))
    reports: dict[int, outgoing.OutcomeReport] = {}
    results = [OutcomeResult(None, "refused")] * len(body.items)
    for index, raw in enumerate(body.items):
        try:
            item = decode(_OUTCOME, bytes(raw), f"/items/{index}")
        except PacelineError as error:
            results[index] = OutcomeResult(_named(raw), "refused", error=problem_of(error))
            continue
        run = canonical_run(item.run)
        reports[index] = outgoing.OutcomeReport(run, item.lease, item.status, item.detail, viewer, _chance())
    return reports, results


def _named(raw: msgspec.Raw) -> str | None:
    """The run that an invalid item names, if it can be read."""
    try:
        return str(_NAMED.decode(raw).run)[:RUN_CHARS_MAX]
    except msgspec.MsgspecError:
        return None


def _outcome_result(run: str, recorded: outgoing.Recorded | PacelineError) -> OutcomeResult:
    match recorded:
        case StaleLease():
            return OutcomeResult(run, "stale", error=problem_of(recorded))
        case PacelineError():
            return OutcomeResult(run, "refused", error=problem_of(recorded))
        case outgoing.Recorded(state="retry"):
            return OutcomeResult(run, "retried")
        case outgoing.Recorded(state=state):
            assert state != "retry"
            return OutcomeResult(run, "settled", state)


def canonical_run(text: str) -> str:
    """The run's id, also if the client decoded the escapes inside it. Ids contain no ``%``."""
    key, hash_, tail = text.rpartition("#")
    owner, slash, monitor = key.partition("/")
    if not hash_ or not slash:
        return text
    return f"{quote(unquote(owner), safe='')}/{quote(unquote(monitor), safe='')}#{tail}"


def canonical_call_run(text: str) -> str | None:
    """The id of a batch's run, likewise; None if it cannot be one."""
    key, at, date = text.rpartition("@")
    batch, slash, record = key.partition("/")
    if not at or not slash or "#" in key:
        return None
    return call_run_id(unquote(batch), unquote(record), date)


def check_run_owner(run: str, viewer: str) -> None:
    """NotFound for a run of another owner, judged by its id alone, whether it exists or not."""
    name = canonical_run(run)
    if name.partition("/")[0] != quote(viewer, safe=""):
        raise NotFound(f"There is no run {name[:300]!r}. Ids look like user/monitor#generation@counter.")


def _count_starts(call: Call, items: Sequence[outgoing.OutgoingItem]) -> None:
    now_ms = call.api.now_ms()
    late_ms = [now_ms - to_ms(datetime.fromisoformat(item.due)) for item in items if item.attempt == 1]
    call.api.hooks.metrics.observe_starts_ms("outgoing", late_ms)


async def _claimed_owner(call: Call, body: ClaimBody) -> str | None:
    if isinstance(body.user, msgspec.UnsetType):
        return viewer_of(call.user)
    return (await call.api.read(get_user, call.api.store, owner_of(call.user, body.user))).id


def _duration(text: str, pointer: str, *, ms_min: int, ms_max: int) -> int:
    ms = parse_duration_ms(text)
    if ms is None:
        raise InvalidInput.of(FieldProblem(pointer, f"write {DURATION_RULE}"))
    if not ms_min <= ms <= ms_max:
        allowed = f"must be from {format_duration(ms_min)} to {format_duration(ms_max)}"
        raise InvalidInput.of(FieldProblem(pointer, allowed))
    return ms
