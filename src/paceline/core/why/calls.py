"""Reasons why a batch's run waits, or why it went as it did."""

from __future__ import annotations

from typing import NamedTuple

from paceline.core.batches.batch import Batch, Day, RecordSpec
from paceline.core.batches.calls import missed_after_ms
from paceline.core.batches.provider import ProviderDefinition, policy_of
from paceline.core.batches.values import CallRun
from paceline.core.ids import call_run_id, stable_fraction
from paceline.core.why.call_eta import ProviderRules, call_eta
from paceline.core.why.chain import NOBODY, OVER, START_DAEMON, Eta, Link, Why, counted, holds, took
from paceline.core.why.queued import DUES_READ_MAX, ProviderQueue, QueuedCall

CAN_START = "It is due and nothing is in its way: it starts at the next look of a daemon."


class CallFacts(NamedTuple):
    """Stored facts of a batch's run and its surroundings. None: it is gone, or was not needed.

    ``before``: the run of the record that comes first, if its record comes after another. ``daemons``: how many run.
    """

    run: CallRun
    batch: Batch | None = None
    day: Day | None = None
    record: RecordSpec | None = None
    provider: ProviderDefinition | None = None
    queue: ProviderQueue | None = None
    before: CallRun | None = None
    daemons: int = 1


def why_call(facts: CallFacts, *, now_ms: int) -> Why:
    """Return the chain of a batch's run, and when it starts if it waits."""
    run = facts.run
    name = call_run_id(run.batch, run.record, run.date)
    if run.ended_ms is not None or run.state in ("done", "failed", "unknown", "skipped"):
        return Why(name, run.state, tuple(_ended(facts)))
    if run.state == "out":
        return Why(name, run.state, (_due(facts), *_tried(facts), _out(facts, now_ms=now_ms)))
    blocks = [*_unwanted(facts, now_ms=now_ms), *_provider_shut(facts, now_ms=now_ms)]
    queued = _in_queue(facts, now_ms=now_ms)
    never = any(link.until_ms is None for link in blocks)
    eta = None if never or _mine(facts) is None else _eta(facts, now_ms=now_ms)
    missed, eta = _missed(facts, eta, now_ms=now_ms)
    chain = [_due(facts), *_tried(facts), *missed, *blocks, *queued]
    if not any(holds(link, now_ms=now_ms) for link in chain):
        chain.append(_may_start(facts))
    elif not facts.daemons and run.due_ms <= now_ms:
        chain.append(_no_daemon(run))
    if chain[-1].link == "lease":
        eta = None  # nobody knows when somebody takes it
    return Why(name, run.state, tuple(chain), eta)


def _due(facts: CallFacts) -> Link:
    run = facts.run
    since_ms = facts.day.start_ms if facts.day is not None and facts.day.start_ms <= run.due_ms else None
    return Link("due", f"The plan of {run.batch} has it due then.", since_ms, run.due_ms, NOBODY)


def _tried(facts: CallFacts) -> list[Link]:
    """Return the link about an earlier attempt that did not succeed."""
    run = facts.run
    if not run.attempt or run.state == "out":
        return []
    most = "" if facts.provider is None else f" of {facts.provider.spec.retry.max_attempts}"
    came = f": {run.reason}" if run.reason else ""
    if run.state == "retry":
        text = (
            f"Attempt {run.attempt}{most} did not succeed{came}. It is tried again after a pause, and keeps its place."
        )
        return [Link("retry_after", text, run.started_ms, run.until_ms, NOBODY)]
    text = f"Attempt {run.attempt}{most} did not succeed{came}. It was put back."
    return [Link("retry_after", text, run.started_ms, run.due_ms, OVER)]


def _unwanted(facts: CallFacts, *, now_ms: int) -> list[Link]:
    """Return why it would not start even if its turn came: its record, its batch, or another record."""
    run, batch, record = facts.run, facts.batch, facts.record
    found: list[Link] = []
    if record is None or not record.active:
        gone = "was deleted" if record is None else "is not active"
        text = f"Its record {gone}: when its time comes it ends as skipped, without a call."
        change = f"an admin: put the record again with `paceline batch import {run.batch} FILE`"
        return [Link("order", text, None, None, change)]
    if batch is not None and batch.deleting is not None:
        return [Link("pause", f"Batch {run.batch} is being deleted.", batch.deleting.since_ms, None, OVER)]
    if batch is not None and batch.spec.paused:
        change = f"an admin: `paceline batch resume {run.batch}`"
        found.append(Link("pause", f"Batch {run.batch} is paused.", batch.updated_ms, None, change))
    if record.provider != run.provider:
        text = f"Its record names {record.provider} by now: when its time comes it moves there, and keeps its due time."
        found.append(Link("provider", text, None, None, NOBODY))
    if (after := record.options.after) is not None and run.attempt == 0 and run.due_ms <= now_ms:
        found += _behind(after, facts)
    return found


def _behind(after: str, facts: CallFacts) -> list[Link]:
    if facts.before is None:
        text = f"Its record comes after {after}, which has no run on this day: it ends as skipped."
        return [Link("order", text, facts.run.due_ms, None, "an admin: edit the record's `after`")]
    if facts.before.state == "done":
        return []
    other = call_run_id(facts.before.batch, facts.before.record, facts.before.date)
    text = f"It waits for {after}, which comes first and is {facts.before.state}."
    return [Link("order", text, facts.run.due_ms, None, f"see what that one waits for: `paceline why {other}`")]


def _provider_shut(facts: CallFacts, *, now_ms: int) -> list[Link]:
    """Return why its provider takes nothing at all."""
    provider, queue = facts.provider, facts.queue
    name = facts.run.provider
    if provider is None:
        change = f"an admin: make it again with `paceline provider set {name}`"
        return [Link("provider", f"Provider {name} is gone.", None, None, change)]
    if provider.spec.paused:
        change = f"an admin: `paceline provider resume {name}`"
        return [Link("pause", f"{name} is paused by an operator.", provider.updated_ms, None, change)]
    if queue is None or queue.pace.closed_until_ms <= now_ms:
        return []
    until_ms, failures = queue.pace.closed_until_ms, queue.pace.failures
    policy = policy_of(provider.spec)
    if failures >= policy.breaker_failures:
        text = f"{name} is closed after {failures} bad calls in a row; then one call is tried."
        change = f"nobody: it passes by itself; an admin may set `--breaker-open-for` of {name}"
        return [Link("breaker", text, min(until_ms - policy.breaker_open_ms, now_ms), until_ms, change)]
    text = f"{name} asked for a pause, and takes nothing until it is over."
    return [Link("retry_after", text, None, until_ms, f"{name}: it says how long; for Paceline it passes by itself")]


def _mine(facts: CallFacts) -> QueuedCall | None:
    calls = facts.queue.calls if facts.queue is not None else ()
    return next((call for call in calls if call.run == facts.run.handle), None)


def _in_queue(facts: CallFacts, *, now_ms: int) -> list[Link]:
    """Return what holds it back at its provider: order, places, rate and pace."""
    run, queue, provider = facts.run, facts.queue, facts.provider
    if queue is None or provider is None or run.state not in ("waiting", "retry"):
        return []
    name, found = run.provider, list[Link]()
    earlier = [call for call in queue.calls if call.due_ms < run.due_ms]
    unread = _mine(facts) is None and queue.more
    if unread or (run.state == "waiting" and any(call.state == "waiting" for call in earlier)):
        amount = DUES_READ_MAX + 1 if unread else len(earlier)
        text = f"It waits behind {counted(amount, DUES_READ_MAX, 'earlier call', 'earlier calls')} of {name}."
        change = f"an admin: {name} starts more at once with a larger `--max-in-flight`, or a higher `--rate`"
        found.append(Link("order", text, _since(run, now_ms), None, change))
    held = [call for call in queue.calls if call.state != "waiting" and call.run != run.handle]
    if run.state == "waiting" and run.due_ms <= now_ms and len(held) >= provider.spec.max_in_flight:
        text = f"{_places(provider.spec.max_in_flight, name)}: {counted(len(held), 2_000, 'call is', 'calls are')} out."
        change = f"an admin: `paceline provider set {name} --max-in-flight N`; else it passes when a call ends"
        found.append(Link("place", text, _since(run, now_ms), None, change))
    return found + _rates(facts, now_ms=now_ms)


def _places(most: int, name: str) -> str:
    return f"The one place of {name} is taken" if most == 1 else f"All {most:,} places of {name} are taken"


def _rates(facts: CallFacts, *, now_ms: int) -> list[Link]:
    run, queue, provider = facts.run, facts.queue, facts.provider
    assert queue is not None
    assert provider is not None
    name, found = run.provider, list[Link]()
    token_ms = -(-queue.pace.rate_us // 1_000)
    at_ms = run.until_ms if run.state == "retry" and run.until_ms is not None else run.due_ms
    if provider.spec.rate is not None and token_ms > max(now_ms, at_ms):
        text = f"{name} takes at most {provider.spec.rate} calls, and the next one is free then."
        found.append(Link("rate", text, None, token_ms, f"an admin: `paceline provider set {name} --rate N/1s`"))
    if at_ms <= now_ms and queue.pace.paced_ms > now_ms:
        text = f"{name} is behind its plan and catches up at a bounded pace, so that it is not called in a burst."
        found.append(Link("rate", text, at_ms, queue.pace.paced_ms, NOBODY))
    return found


def _since(run: CallRun, now_ms: int) -> int | None:
    return run.due_ms if run.due_ms <= now_ms else None


def _may_start(facts: CallFacts) -> Link:
    """Return the link of a run that nothing holds back: somebody has to take it."""
    run, provider = facts.run, facts.provider
    if provider is not None and provider.spec.kind == "outgoing":
        text = f"It may start, and waits for a worker of yours that claims runs of {run.provider}."
        return Link(
            "lease", text, run.due_ms, None, "an operator: start a worker that claims; see `POST /v1/outgoing/claim`"
        )
    if not facts.daemons:
        return _no_daemon(run)
    return Link("place", CAN_START, run.due_ms, None, NOBODY)


def _no_daemon(run: CallRun) -> Link:
    return Link("lease", "No daemon runs that would make the call.", run.due_ms, None, START_DAEMON)


def _eta(facts: CallFacts, *, now_ms: int) -> Eta | None:
    provider, queue, record = facts.provider, facts.queue, facts.record
    if provider is None or queue is None or provider.spec.kind == "outgoing":
        return None
    if record is None or record.options.after is not None:
        return None  # it depends on a run that may be another provider's
    rules = ProviderRules(policy_of(provider.spec), stable_fraction(provider.id))
    return call_eta(queue, facts.run.handle, rules, now_ms=now_ms)


def _missed(facts: CallFacts, eta: Eta | None, *, now_ms: int) -> tuple[list[Link], Eta | None]:
    """Return the link and the ETA if its batch skips missed runs: then it starts in time, or not at all."""
    run, batch, day = facts.run, facts.batch, facts.day
    if batch is None or day is None or batch.spec.missed != "skip" or run.attempt or run.state != "waiting":
        return [], eta
    last_ms = missed_after_ms(run.due_ms, day.start_ms, day.end_ms)
    change = f"an admin: `paceline batch set {run.batch} --missed once` before its turn comes"
    if now_ms > last_ms or (eta is not None and eta.from_ms > last_ms):
        text = f"Its time is missed, and {run.batch} skips what it missed: at its turn it ends as skipped."
        return [Link("due", text, last_ms, None, change)], None
    if eta is None or eta.to_ms <= last_ms:
        return [], eta
    text = f"If it does not start by then it is missed, and {run.batch} skips what it missed."
    return [Link("due", text, run.due_ms, last_ms, change)], Eta(eta.from_ms, last_ms)


def _out(facts: CallFacts, *, now_ms: int) -> Link:
    run = facts.run
    if run.until_ms is not None and run.until_ms <= now_ms:
        text = f"Attempt {run.attempt} was not reported before its lease ended: the next attempt may start."
        return Link("lease", text, run.started_ms, run.until_ms, NOBODY)
    worker = facts.provider is not None and facts.provider.spec.kind == "outgoing"
    whom = "with a worker of yours" if worker else f"on its way to {run.provider}"
    text = f"Attempt {run.attempt} is {whom}, until it is answered or its lease ends."
    return Link("lease", text, run.started_ms, run.until_ms, NOBODY)


def _ended(facts: CallFacts) -> list[Link]:
    """Return why it started when it did, and why it ended as it did."""
    run, found = facts.run, [_due(facts)]
    if run.started_ms is not None and run.attempt:
        late_ms = run.started_ms - run.due_ms
        when = f"{took(late_ms)} after it was due" if late_ms > 0 else "when it was due"
        text = f"It started {when}, once it was first at {run.provider} and a place was free."
        if run.attempt > 1:
            text = f"Attempt {run.attempt} started {when}; those before did not succeed."
        found.append(Link("place", text, min(run.due_ms, run.started_ms), run.started_ms, OVER))
    last = run.started_ms if run.started_ms is not None else run.due_ms
    ended = f"{run.provider} answered" if run.code is not None else "It ended"
    said = f" with {run.code}" if run.code is not None else f" as {run.state}"
    why = f": {run.reason}" if run.reason else ""
    text = f"{ended}{said}{why}." if run.state != "done" else f"{ended}{said}, as expected."
    found.append(Link("provider", text, last, run.ended_ms, _redrive(facts)))
    return found


def _redrive(facts: CallFacts) -> str:
    run = facts.run
    if run.dead:
        name = call_run_id(run.batch, run.record, run.date)
        return f"an admin: `paceline dead redrive {name}` puts it back, `paceline dead discard` gives it up"
    if run.state == "skipped":
        return f"an admin: `paceline batch rerun {run.batch} {run.date[:10]} --record {run.record}`"
    return OVER
