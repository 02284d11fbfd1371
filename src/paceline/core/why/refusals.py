"""Refused jobs: what is kept of each, and the chain of reasons."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, unquote

import msgspec

from paceline.core.instants import to_text
from paceline.core.jobs.values import Budget
from paceline.core.why.chain import Link, Why

KEPT_MAX = 20
"""Maximum number of refusals that are kept of each user, the newest."""
KEPT_MS = 30 * 86_400_000
TITLE_CHARS_MAX = 100
_NAME = re.compile(r"([^/#]{1,300})/refused(?:#([0-9]{1,12}))?", re.ASCII)


class JobRefusal(msgspec.Struct, frozen=True):
    """A job that was not admitted. ``left`` and ``limit`` are its user's credits of the day at that time."""

    number: int
    at_ms: int
    title: str
    code: str
    cost: int
    left: int
    limit: int
    resets_ms: int
    measurements: int


class Refusals(msgspec.Struct, frozen=True):
    """Newest refusals of a user, the oldest first. ``last`` is the number of the newest, even if that is gone."""

    last: int = 0
    kept: tuple[JobRefusal, ...] = ()


class RefusalName(NamedTuple):
    """Parts of a refusal's id. ``number`` None: the newest."""

    owner: str
    number: int | None


def refusal_id(owner: str, number: int) -> str:
    return f"{quote(owner, safe='')}/refused#{number}"


def parse_refusal_id(text: str) -> RefusalName | None:
    """Return the parts of a refusal's id; None: this is none."""
    match = _NAME.fullmatch(text)
    return None if match is None else RefusalName(unquote(match[1]), None if match[2] is None else int(match[2]))


def with_refusal(known: Refusals, new: JobRefusal) -> Refusals:
    """Return the user's refusals with a new one, which gets the next number; old ones and those beyond the limit go."""
    number = known.last + 1
    young = [one for one in known.kept if 0 <= new.at_ms - one.at_ms < KEPT_MS]
    kept = (*young, msgspec.structs.replace(new, number=number, title=new.title[:TITLE_CHARS_MAX]))
    return Refusals(number, kept[-KEPT_MAX:])


def find_refusal(known: Refusals, name: RefusalName, *, since_ms: int, now_ms: int) -> JobRefusal | None:
    """Return the refusal of this name, if it is kept and came since ``since_ms``.

    Earlier ones may be of another user of the same name.
    """
    wanted = known.last if name.number is None else name.number
    found = next((one for one in known.kept if one.number == wanted), None)
    return found if found is not None and found.at_ms >= since_ms and now_ms - found.at_ms < KEPT_MS else None


def why_refused(owner: str, refusal: JobRefusal, budget: Budget) -> Why:
    """Return why the job was refused, and whether it would be admitted now. ``budget``: the user's current day."""
    never = refusal.cost > refusal.limit
    named = f" {refusal.title!r}" if refusal.title else ""
    text = f"The job{named} of {owner} was refused whole ({refusal.code}): it costs up to {refusal.cost:,} credits, and"
    text = f"{text} {refusal.left:,} of the {refusal.limit:,} of the day were left. Nothing was reserved or sent."
    change = f"an admin: `paceline user limit {owner} --daily-credits N`; or its user: submit less"
    then = Link("budget", text, refusal.at_ms, None if never else refusal.resets_ms, change)
    return Why(refusal_id(owner, refusal.number), "refused", (then, _now(owner, refusal, budget)))


def _now(owner: str, refusal: JobRefusal, budget: Budget) -> Link:
    if refusal.cost <= budget.left:
        text = f"It would be admitted now: {budget.left:,} credits are left of the day."
        return Link("budget", text, None, None, "its user: submit it again")
    change = f"an admin: `paceline user limit {owner} --daily-credits N`; or its user: submit less"
    if refusal.cost > budget.limit:
        text = f"It costs more than a whole day of {owner}, {budget.limit:,} credits: it does not fit on any day."
        return Link("budget", text, None, None, change)
    text = f"It would be refused now as well: {budget.left:,} of {budget.limit:,} credits are left until"
    text = f"{text} {to_text(budget.resets_ms)}. After that its user can submit it again."
    return Link("budget", text, None, budget.resets_ms, change)
