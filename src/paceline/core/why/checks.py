"""Reasons why a monitor's run waits, why its next firing has not come, or why a run went as it did."""

from __future__ import annotations

from typing import NamedTuple

from paceline.core.ids import run_id
from paceline.core.monitors.checks import OutgoingCheck
from paceline.core.monitors.definition import Monitor
from paceline.core.monitors.places import target_of, target_reason
from paceline.core.monitors.schedule import Entry
from paceline.core.monitors.values import Run
from paceline.core.monitors.wait_reasons import wait_reason
from paceline.core.why.chain import NOBODY, OVER, START_DAEMON, Eta, Link, Why, counted, took
from paceline.core.why.check_eta import firing_eta, run_eta

CAN_START = "It is due and nothing is in its way: it starts at the next look of a daemon."
CADENCE_CHANGE = "its owner: edit the monitor's `every` or `cron`, or run it now with `paceline monitor run {id}`"


class CheckFacts(NamedTuple):
    """Stored facts of a monitor and of one of its runs. ``run`` None: its next firing, which has made no run yet.

    ``earlier``: its earlier runs that have not ended, the oldest first. ``daemons``: how many run.
    """

    monitor: Monitor
    entry: Entry | None = None
    run: Run | None = None
    earlier: tuple[Run, ...] = ()
    disabled: bool = False
    daemons: int = 1


def why_check(facts: CheckFacts, *, now_ms: int) -> Why:
    """Return the chain of a monitor's run, or of its next firing, and when it starts if it waits."""
    run, monitor = facts.run, facts.monitor
    if run is None:
        return _why_firing(facts, now_ms=now_ms)
    name = run_id(run.owner, run.monitor, generation=run.generation, counter=run.counter)
    due = Link("due", f"{monitor.id} was due then.", None, run.due_ms, CADENCE_CHANGE.format(id=monitor.id))
    match run.state:
        case "ok" | "failed" | "dead" | "unknown":
            return Why(name, run.state, (due, *_ended(run)))
        case "out":
            return Why(name, run.state, (due, _out(facts, run, now_ms=now_ms)))
        case "held":
            return Why(name, run.state, (due, _disabled(facts)))
        case "retry" | "later":
            return Why(name, run.state, (due, _timed(run), *_behind(facts)), _eta(facts, run, now_ms=now_ms))
        case "parked":
            behind = _behind(facts) or [Link("order", f"It {_text(run)}.", run.due_ms)]
            return Why(name, run.state, (due, *behind), _eta(facts, run, now_ms=now_ms))
        case _:
            link = _waiting(facts, run)
            free = link.link == "place" and link.text == CAN_START
            return Why(name, run.state, (due, link), Eta(now_ms, now_ms) if free else None)


def _why_firing(facts: CheckFacts, *, now_ms: int) -> Why:
    """Return why a monitor's next firing has not come yet."""
    monitor, entry = facts.monitor, facts.entry
    counter = entry.counter if entry is not None else 0
    name = run_id(monitor.owner, monitor.id, generation=monitor.generation, counter=counter)
    found: list[Link] = []
    if monitor.spec.paused:
        change = f"its owner: `paceline monitor resume {monitor.id}`"
        found.append(Link("pause", f"{monitor.id} is paused.", monitor.updated_ms, None, change))
    if facts.disabled:
        found.append(_disabled(facts))
    if entry is None or entry.due_ms is None:
        if not found:
            text = f"The newest edit of {monitor.id} is not in force yet: a daemon makes it so."
            found.append(Link("due", text, monitor.updated_ms, None, START_DAEMON))
        return Why(name, "planned", tuple(found))
    due_ms = entry.due_ms
    found.append(Link("due", _due_text(facts, due_ms, now_ms), entry.last_due_ms, due_ms, _cadence_change(facts)))
    nobody = due_ms <= now_ms and not facts.daemons
    if nobody:
        text = "It is due, and no daemon runs that would make its run."
        found.append(Link("lease", text, due_ms, None, START_DAEMON))
    elif due_ms <= now_ms:
        text = "It is due, and its run is made at the next look of a daemon."
        found.append(Link("due", text, due_ms, None, NOBODY))
    if facts.earlier:
        found.append(_overlap(facts.earlier[0], entry))
    eta = firing_eta(entry, facts.earlier, monitor.spec.check, now_ms=now_ms)
    return Why(name, "planned", tuple(found), None if nobody or found[0].link == "pause" else eta)


def _due_text(facts: CheckFacts, due_ms: int, now_ms: int) -> str:
    cadence = facts.entry.cadence if facts.entry is not None else None
    if cadence is not None and cadence.cron:
        return f"Its cron expression {cadence.cron!r} ({cadence.timezone}) matches then, and not before."
    when = "comes" if due_ms > now_ms else "came"
    return f"Its time {when} then: one interval behind the firing before, or where its grid begins."


def _cadence_change(facts: CheckFacts) -> str:
    return CADENCE_CHANGE.format(id=facts.monitor.id)


def _overlap(earlier: Run, entry: Entry) -> Link:
    name = _name(earlier)
    if entry.cadence.overlap == "skip":
        skipped = f" {entry.overlapped} firings were skipped so far." if entry.overlapped else ""
        text = f"{name} has not ended (it is {earlier.state}); while it is open, firings are skipped.{skipped}"
    else:
        text = f"{name} has not ended (it is {earlier.state}); the next run queues behind it."
    return Link("order", text, earlier.due_ms, None, f"see `paceline why {name}`; or its owner: edit `overlap`")


def _disabled(facts: CheckFacts) -> Link:
    owner = facts.monitor.owner
    return Link("pause", f"Its owner {owner} is disabled.", None, None, f"an admin: `paceline user enable {owner}`")


def _timed(run: Run) -> Link:
    if run.state == "later":
        return Link("rate", f"It {_text(run)}.", run.due_ms, run.until_ms, NOBODY)
    came = f": {run.reason}" if run.reason else ""
    text = f"Attempt {run.attempt} was not carried out{came}. It is tried again after a pause, and keeps its place."
    return Link("retry_after", text, run.started_ms or run.due_ms, run.until_ms, NOBODY)


def _eta(facts: CheckFacts, run: Run, *, now_ms: int) -> Eta | None:
    if not facts.daemons:
        return None
    cadence = facts.entry.cadence if facts.entry is not None else None
    return run_eta([*facts.earlier, run], facts.monitor.spec.check, cadence, now_ms=now_ms)


def _behind(facts: CheckFacts) -> list[Link]:
    """Return what is before it: the first of the monitor's runs that have not ended, and how many there are in all."""
    if not facts.earlier:
        return []
    first, more = facts.earlier[0], len(facts.earlier) - 1
    name = _name(first)
    also = f", and for {counted(more, 1_000, 'run', 'runs')} behind it" if more else ""
    text = f"It waits for {name}, an earlier run of the same monitor that is {first.state}{also}."
    until_ms = None if more else first.until_ms
    return [Link("order", text, first.due_ms, until_ms, f"see what that one waits for: `paceline why {name}`")]


def _waiting(facts: CheckFacts, run: Run) -> Link:
    """Return the link of a run that waits only for a place or for somebody to take it."""
    check = facts.monitor.spec.check
    if isinstance(check, OutgoingCheck):
        text = f"It waits for a checker of {run.owner} that claims runs of the queue {check.queue!r}."
        return Link("lease", text, run.due_ms, None, "its owner: run a checker; see `POST /v1/outgoing/claim`")
    if not facts.daemons:
        return Link("lease", "It may start, and no daemon runs that would check.", run.due_ms, None, START_DAEMON)
    if not run.reason or run.reason == wait_reason("waiting", outgoing=False):
        return Link("place", CAN_START, run.due_ms, None, NOBODY)
    if run.reason == target_reason(target_of(check)):
        change = "an admin: the setting `checks_per_target_max`; else it passes when a check of that target ends"
        return Link("target", f"It is {_text(run)}.", run.due_ms, None, change)
    change = (
        "an admin: the settings `checks_in_flight_max` and `checks_per_owner_max`; else it passes when a check ends"
    )
    return Link("place", f"It is {_text(run)}.", run.due_ms, None, change)


def _out(facts: CheckFacts, run: Run, *, now_ms: int) -> Link:
    if run.until_ms is not None and run.until_ms <= now_ms:
        text = f"Attempt {run.attempt} was not reported before its lease ended: the next attempt may start."
        return Link("lease", text, run.started_ms, run.until_ms, NOBODY)
    whom = "with a checker of its owner" if isinstance(facts.monitor.spec.check, OutgoingCheck) else "being checked"
    text = f"Attempt {run.attempt} is {whom}, until it is reported or its lease ends."
    return Link("lease", text, run.started_ms, run.until_ms, NOBODY)


def _ended(run: Run) -> list[Link]:
    found: list[Link] = []
    if run.started_ms is not None and run.attempt:
        late_ms = run.started_ms - run.due_ms
        when = f"{took(late_ms)} after it was due" if late_ms > 0 else "when it was due"
        again = f" Attempt {run.attempt} is the one that counts." if run.attempt > 1 else ""
        text = f"It started {when}.{again}"
        found.append(Link("place", text, min(run.due_ms, run.started_ms), run.started_ms, OVER))
    why = f": {run.reason}" if run.reason else ""
    good = "It ended as ok: what it found was as expected."
    text = good if run.state == "ok" else f"It ended as {run.state}{why}."
    change = OVER if run.state == "ok" else "nobody: it is over; for the next one, look at the target"
    found.append(Link("target", text, run.started_ms or run.due_ms, run.ended_ms, change))
    return found


def _text(run: Run) -> str:
    return run.reason.removesuffix(".")


def _name(run: Run) -> str:
    return run_id(run.owner, run.monitor, generation=run.generation, counter=run.counter)
