"""Reasons why a measurement of a job waits, or why it went as it did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from paceline.core.jobs.measurement import is_overdue, stops_ms
from paceline.core.jobs.meters import NEVER_MS
from paceline.core.jobs.pool import Gate, Refuse, Send, Wait, was_passed_too_long
from paceline.core.jobs.values import StoredJob, StoredMeasurement
from paceline.core.why.chain import NOBODY, OVER, START_DAEMON, Eta, Link, Why, counted, took
from paceline.core.why.send_eta import SendForecast
from paceline.core.why.send_line import PLACES_MAX, SendLine, waiting_of


class MeasurementFacts(NamedTuple):
    """Stored facts of a measurement, and what the dispatcher would decide if it tried it now.

    ``ahead``: how many of the same user are queued before it, counted up to ``send_line.PLACES_MAX``. ``targets``: the
    gates of its targets; ``ripe``: RIPE's pauses for everybody. Either may be over. ``daemons``: how many run.
    ``account_names``: True if the asker may see which accounts there are.
    """

    job: StoredJob
    item: StoredMeasurement
    decision: Send | Wait | Refuse | None = None
    ahead: int = 0
    targets: Sequence[Gate] = ()
    ripe: Sequence[Gate] = ()
    disabled: bool = False
    daemons: int = 1
    account_names: bool = False
    line: SendLine | None = None
    """Line of all measurements that wait to be sent."""


def why_measurement(facts: MeasurementFacts, *, now_ms: int) -> Why:
    """Return the chain of a measurement."""
    item = facts.item
    name = f"{item.job}/{item.index}"
    first = _admitted(facts)
    match item.state:
        case "queued" | "parked":
            return Why(name, item.state, (*first, *_waiting(facts, now_ms=now_ms)), _eta(facts, now_ms=now_ms))
        case "sending":
            text = f"It is on its way to RIPE{_with(facts)}; its intent was written before."
            return Why(name, item.state, (*first, Link("provider", text, item.intent_ms, None, NOBODY)))
        case "unknown":
            text = f"RIPE's reply was lost{_said(item)}. It is looked up{_with(facts)} before anything is sent again."
            return Why(name, item.state, (*first, Link("provider", text, item.intent_ms, item.next_ms, NOBODY)))
        case "ongoing":
            return Why(name, item.state, (*first, *_sent(facts), _running(item)))
        case _:
            return Why(name, item.state, (*first, *_sent(facts), _ended(item)))


def _eta(facts: MeasurementFacts, *, now_ms: int) -> Eta | None:
    """Return when it is sent; None if somebody has to act first, or if it is not sent at all."""
    item = facts.item
    given_up = facts.job.cancelled_ms is not None or item.stopping or is_overdue(item.measurement, now_ms=now_ms)
    if facts.line is None or given_up or facts.disabled or not facts.daemons or isinstance(facts.decision, Refuse):
        return None
    one = waiting_of(item, facts.ahead, facts.targets, now_ms=now_ms)
    return SendForecast(facts.line, now_ms=now_ms).eta(one)


def _admitted(facts: MeasurementFacts) -> list[Link]:
    job, item = facts.job, facts.item
    text = f"Its {item.cost.credits:,} credits were reserved on the day of {job.owner or 'its user'} when it came."
    return [Link("budget", text, job.created_ms, job.created_ms, OVER)]


def _waiting(facts: MeasurementFacts, *, now_ms: int) -> list[Link]:
    item, found = facts.item, list[Link]()
    if facts.job.cancelled_ms is not None or item.stopping:
        return [Link("turn", "Its job is cancelled: it is not sent any more.", facts.job.cancelled_ms, None, OVER)]
    if facts.disabled:
        change = f"an admin: `paceline user enable {item.owner}`"
        found.append(Link("pause", f"Its user {item.owner} is disabled.", None, None, change))
    if is_overdue(item.measurement, now_ms=now_ms):
        text = "Its stop time has passed: it fails at its next turn, and is refunded."
        found.append(Link("due", text, None, None, "its user: submit it again with a later stop time"))
    elif (stop_ms := stops_ms(item.measurement)) is not None:
        text = "It stops then: if it is not sent before, it fails, and is refunded."
        found.append(Link("due", text, None, stop_ms, "its user: submit it again with a later stop time"))
    found += _gates(facts, now_ms=now_ms)
    if facts.ahead:
        amount = counted(facts.ahead, PLACES_MAX - 1, "measurement", "measurements")
        text = f"{amount} of the same user came before it; users take turns, and each sends one at a turn."
        found.append(Link("turn", text[:1].upper() + text[1:], facts.job.created_ms, None, NOBODY))
    found += _room(facts, now_ms=now_ms)
    if not facts.daemons:
        found.append(Link("lease", "No daemon runs that would send it.", None, None, START_DAEMON))
    if not [link for link in found if link.link != "due"]:
        text = "Nothing is in its way: it is sent when its user's turn comes, one measurement of all users at a time."
        found.append(Link("turn", text, facts.job.created_ms, None, NOBODY))
    return found


def _gates(facts: MeasurementFacts, *, now_ms: int) -> list[Link]:
    item = facts.item
    found = [
        Link("target", f"{gate.reason[:1].upper()}{gate.reason[1:]}.", None, gate.until_ms, NOBODY)
        for gate in facts.targets
        if gate.until_ms > now_ms
    ]
    if item.state == "parked" and not found:
        link = Link("retry_after", f"It is tried again then{_said(item)}.", item.answered_ms, item.next_ms, NOBODY)
        found.append(link)
    found += [
        Link("provider", f"RIPE asked everybody to wait: {gate.reason}.", None, gate.until_ms, NOBODY)
        for gate in facts.ripe
        if gate.until_ms > now_ms
    ]
    return found


def _room(facts: MeasurementFacts, *, now_ms: int) -> list[Link]:
    """Return the links about the accounts."""
    decision, item = facts.decision, facts.item
    match decision:
        case Wait():
            until_ms = decision.room_ms if decision.room_ms < NEVER_MS else None
            change = "an admin: `paceline account set`, `paceline key add`; else it passes when a measurement ends"
            found = [Link("account", f"{decision.reason[:1].upper()}{decision.reason[1:]}.", None, until_ms, change)]
            if facts.account_names:
                found += [Link("account", f"{name}: {why}.", None, None, change) for name, why in decision.accounts]
            if was_passed_too_long(item.passed_ms, now_ms=now_ms):
                text = "Others were sent before it for long enough: room is kept free for it."
                found.append(Link("turn", text, item.passed_ms, None, NOBODY))
            return found
        case Refuse():
            text = f"It can never be sent: {decision.reason}. It fails at its next turn, and is refunded."
            return [Link("account", text, None, None, "an admin: raise the limits of an account")]
        case _:
            return []


def _sent(facts: MeasurementFacts) -> list[Link]:
    item = facts.item
    if item.answered_ms is None or not item.atlas:
        return []
    waited = took(max(item.answered_ms - facts.job.created_ms, 0))
    text = f"It was sent to RIPE{_with(facts)} {waited} after it was submitted, at its user's turn."
    return [Link("turn", text, facts.job.created_ms, item.answered_ms, OVER)]


def _running(item: StoredMeasurement) -> Link:
    ids = ", ".join(str(one.atlas_id) for one in item.atlas)
    stopping = " It is being stopped." if item.stopping else ""
    text = f"RIPE has it as {ids}{_said(item)}; its status is asked for again and again.{stopping}"
    return Link("provider", text, item.answered_ms, None, NOBODY if item.stopping else "its user: cancel the job")


def _ended(item: StoredMeasurement) -> Link:
    credit = "" if item.settled is None else f" {item.settled:,} of {item.cost.credits:,} credits were spent."
    text = f"It ended as {item.state}{_said(item)}.{credit}"
    change = OVER if item.state == "done" else "its user: submit it again"
    return Link("provider", text, item.answered_ms, item.ended_ms, change)


def _with(facts: MeasurementFacts) -> str:
    account = facts.item.account
    return f" with account {account}" if facts.account_names and account else ""


def _said(item: StoredMeasurement) -> str:
    return f": {item.reason.removesuffix('.')}" if item.reason else ""
