"""The outgoing queue: claim with a long poll, or one run by its id; report the outcome, extend the lease; any run."""

from __future__ import annotations

import asyncio
import random
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
from paceline.errors import FieldProblem, InvalidInput, NotFound, PacelineError, StaleLease, Unauthenticated
from paceline.shells.api.answers import Answer, disconnected, json_answer
from paceline.shells.api.auth import owner_of, secret_of, viewer_of
from paceline.shells.api.bodies import ClientGone
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
from paceline.shells.api.parts import Call
from paceline.shells.api.problems import problem_of
from paceline.shells.api.writes import ClaimAsk
from paceline.steps import outgoing
from paceline.steps.access import authenticate, get_user
from paceline.steps.days import show_call_run
from paceline.steps.report import run_view, show_run

POLL_S = 0.5
"""A long poll looks again after this time even without news: another process may make runs in the same store."""
OUTCOMES_PER_PUT, CLAIMS_PER_PUT = 4, 4
"""So many take about as long as one put of a monitor."""
RUN_CHARS_MAX = 300
_chance = random.SystemRandom().random


class _Named(msgspec.Struct):
    run: str


_OUTCOME = msgspec.json.Decoder(OutcomeItem)
_NAMED = msgspec.json.Decoder(_Named)


async def claim(call: Call) -> Answer:
    """Waits for the first runs, up to ``wait``. A client that has gone away claims nothing any more."""
    body: ClaimBody = call.body
    arrivals, parts = call.parts.hooks.arrivals, call.parts
    lease_ms = _duration(body.lease, "/lease", ms_min=outgoing.LEASE_MS_MIN, ms_max=outgoing.LEASE_MS_MAX)
    wait_ms = _duration(body.wait, "/wait", ms_min=0, ms_max=WAIT_MS_MAX)
    ask = ClaimAsk(_claimed_owner(call, body), lease_ms, body.max)
    loop = asyncio.get_running_loop()
    until_s = loop.time() + wait_ms / 1_000
    gone: asyncio.Task[None] | None = None
    try:
        while True:
            mark = arrivals.mark()
            items = await parts.do(parts.writes.claim, ask, weight=1 + body.max // CLAIMS_PER_PUT)
            left_s = until_s - loop.time()
            if items or left_s <= 0 or arrivals.closed:
                if gone is not None:
                    await parts.write(partial(_judge_again, call, items))
                _count_starts(call, items)
                return json_answer(200, ClaimAnswer(items))
            if gone is None:
                gone = loop.create_task(disconnected(call.receive))
            await arrivals.wait(mark, timeout_s=min(max(POLL_S, call.parts.system.look_ms_min / 1_000), left_s))
            if gone.done():
                raise ClientGone
    finally:
        if gone is not None:
            gone.cancel()


def _judge_again(call: Call, items: Sequence[outgoing.OutgoingItem]) -> None:
    """For who has waited: the token may have been revoked meanwhile, or its user disabled or demoted.

    What was claimed for such a one is given back.
    """
    store = call.parts.store
    user = authenticate(store, secret_of(call.headers), secret_key=call.parts.system.secret_key)
    if user is not None and user.role == call.user.role:
        return
    outgoing.give_back(store, items, now_ms=call.parts.now_ms())
    call.parts.hooks.arrivals.notify()
    raise Unauthenticated("While this request waited, its token was revoked, or its user disabled or changed.")


async def claim_run(call: Call) -> Answer:
    body: RunClaimBody = call.body
    lease_ms = _duration(body.lease, "/lease", ms_min=outgoing.LEASE_MS_MIN, ms_max=outgoing.LEASE_MS_MAX)
    attempt = None if isinstance(body.attempt, msgspec.UnsetType) else body.attempt
    ask = outgoing.RunClaim(canonical_run(call.params["run"]), attempt, lease_ms, viewer_of(call.user))
    item = await call.parts.do(call.parts.writes.claim_runs, ask)
    _count_starts(call, [item])
    return json_answer(200, item)


async def report_outcome(call: Call) -> Answer:
    body: OutcomeBody = call.body
    parts, run = call.parts, canonical_run(call.params["run"])
    report = outgoing.OutcomeReport(run, body.lease, body.status, body.detail, viewer_of(call.user), _chance())
    settled = await parts.do(parts.writes.report, report)
    parts.hooks.metrics.count_runs("outgoing", settled.state)
    # The next run of the same monitor may be claimable now.
    parts.hooks.arrivals.notify()
    return json_answer(200, run_view(settled))


async def report_outcomes(call: Call) -> Answer:
    """Settles many in one act; each item is judged by itself."""
    parts, viewer = call.parts, viewer_of(call.user)
    reports, results = _parse_outcomes(call.body, viewer)
    weight = 1 + len(reports) // OUTCOMES_PER_PUT
    done = await parts.do(parts.writes.report_lists, list(reports.values()), weight=weight) if reports else []
    for (index, report), recorded in zip(reports.items(), done, strict=True):
        results[index] = _outcome_result(report.run, recorded)
    states = Counter(recorded.state for recorded in done if isinstance(recorded, outgoing.Recorded))
    for state, count in states.items():
        parts.hooks.metrics.count_runs("outgoing", state, count)
    if states:
        parts.hooks.arrivals.notify()
    return json_answer(200, OutcomesAnswer(results))


def _parse_outcomes(
    body: OutcomesBody, viewer: str | None
) -> tuple[dict[int, outgoing.OutcomeReport], list[OutcomeResult]]:
    """What can be recorded, by its place, and for the rest why not."""
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
    """The run that an item names, if nothing else in it is right."""
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


async def extend_lease(call: Call) -> Answer:
    body: ExtendBody = call.body
    parts, run = call.parts, canonical_run(call.params["run"])
    by_ms = _duration(body.by, "/by", ms_min=outgoing.LEASE_MS_MIN, ms_max=outgoing.LEASE_MS_MAX)
    viewer = viewer_of(call.user)
    until_ms = await parts.write(
        lambda: outgoing.extend_lease(
            parts.store, run, lease=body.lease, by_ms=by_ms, viewer=viewer, now_ms=parts.now_ms()
        )
    )
    return json_answer(200, ExtendAnswer(to_text(until_ms)))


async def show(call: Call) -> Answer:
    run, parts = canonical_run(call.params["run"]), call.parts
    if viewer_of(call.user) is None and (call_run := canonical_call_run(call.params["run"])) is not None:
        return json_answer(200, show_call_run(parts.store, call_run, now_ms=parts.now_ms()))
    return json_answer(200, show_run(parts.store, run, viewer=viewer_of(call.user), now_ms=parts.now_ms()))


def canonical_run(text: str) -> str:
    """The run's id, also if the client took the escapes inside it for escapes of the URL. Ids contain no ``%``."""
    key, hash_, tail = text.rpartition("#")
    owner, slash, monitor = key.partition("/")
    if not hash_ or not slash:
        return text
    return f"{quote(unquote(owner), safe='')}/{quote(unquote(monitor), safe='')}#{tail}"


def canonical_call_run(text: str) -> str | None:
    """The same for a run of a batch; None for what cannot be one."""
    key, at, date = text.rpartition("@")
    batch, slash, record = key.partition("/")
    if not at or not slash or "#" in key:
        return None
    return call_run_id(unquote(batch), unquote(record), date)


def check_run_owner(run: str, viewer: str) -> None:
    """By its name alone: a run of somebody else does not exist, whether it does or not."""
    name = canonical_run(run)
    if name.partition("/")[0] != quote(viewer, safe=""):
        raise NotFound(f"There is no run {name[:300]!r}. Ids look like user/monitor#generation@counter.")


def _count_starts(call: Call, items: Sequence[outgoing.OutgoingItem]) -> None:
    now_ms = call.parts.now_ms()
    late_ms = [now_ms - to_ms(datetime.fromisoformat(item.due)) for item in items if item.attempt == 1]
    call.parts.hooks.metrics.observe_starts_ms("outgoing", late_ms)


def _claimed_owner(call: Call, body: ClaimBody) -> str | None:
    if isinstance(body.user, msgspec.UnsetType):
        return viewer_of(call.user)
    return get_user(call.parts.store, owner_of(call.user, body.user)).id


def _duration(text: str, pointer: str, *, ms_min: int, ms_max: int) -> int:
    ms = parse_duration_ms(text)
    if ms is None:
        raise InvalidInput.of(FieldProblem(pointer, f"write {DURATION_RULE}"))
    if not ms_min <= ms <= ms_max:
        allowed = f"must be from {format_duration(ms_min)} to {format_duration(ms_max)}"
        raise InvalidInput.of(FieldProblem(pointer, allowed))
    return ms
