"""Actions of which transactions on a measurement consist: on its row, its job, its user's day and turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paceline.adapters.aws.client.items import PRESENT, Action, Item, update
from paceline.adapters.aws.client.tables import LEDGER
from paceline.adapters.aws.jobs.keys import LINE, job_key, moved
from paceline.adapters.aws.jobs.meters import day_closing
from paceline.adapters.aws.jobs.turns import leaves
from paceline.core.jobs.transitions import EndsUnsent, job_sums
from paceline.core.jobs.values import EndState


def job_adds(job: Item, change: str = "", **adds: int) -> Action:
    """Return the action that adds to a job's counts. ``change``: a further change, which has no values."""
    parts = [f"#{name} :{name}" for name in adds]
    text = f"{change} ADD {', '.join(parts)}" if parts else change
    return update(LEDGER, job_key(job["number"]), text, when=PRESENT, **adds)


def job_started(job: Item, *, now_ms: int) -> Action:
    """Return the action that notes that a measurement of the job is being sent."""
    change = "SET #started_ms = if_not_exists(#started_ms, :now_ms) ADD #waiting :less"
    return update(LEDGER, job_key(job["number"]), change, when=PRESENT, now_ms=now_ms, less=-1)


def job_ends(job: Item, adds: Mapping[str, int]) -> Action:
    """Return the action that adds ended measurements to a job's sums.

    With its last one the job is put in line to be finished.
    """
    ended = -adds["open"]
    counts = {name: amount for name, amount in adds.items() if amount}
    change = "ADD " + ", ".join(f"#{name} :add_{name}" for name in counts)
    given: dict[str, Any] = {f"add_{name}": amount for name, amount in counts.items()} | {"ended": ended}
    # If another end came in between and changed whether these are the last ones, the condition on ``open`` fails.
    if job["open"] > ended:
        return update(LEDGER, job_key(job["number"]), change, when="#open > :ended", **given)
    change = f"SET #shard = :shard {change}"
    return update(LEDGER, job_key(job["number"]), change, when="#open = :ended", shard="ended", **given)


def row_ends(row: Item, state: EndState, reason: str, *, settled: int, now_ms: int, **more: Any) -> Action:
    return moved(
        row, state=state, reason=reason, ended_ms=now_ms, settled=settled, next_ms=None, **more
    )  # fmt: skip


def sums_of(row: Item, state: EndState, *, settled: int) -> dict[str, int]:
    """Return what an end adds to the sums of its job."""
    return job_sums(state, was=row["state"], held=row["credits"], settled=settled, definitions=row["concurrent"])


def unsent_ends(row: Item, job: Item, end: EndsUnsent, *, now_ms: int) -> list[Action]:
    """Return the actions that end a measurement that cost nothing and refund its user.

    The caller closes the account's hold.
    """
    actions = [
        row_ends(row, end.state, end.reason, settled=0, now_ms=now_ms, slot=0, account=None, key_number=None),
        job_ends(job, sums_of(row, end.state, settled=0)),
        day_closing(row, settled=0),
    ]
    return [*actions, leaves(row["owner"], job["user"])] if row["state"] == "queued" else actions


def sending_over(row: Item) -> list[Action]:
    """Return the action that lowers the count of sends under way, if this measurement was counted."""
    if row["state"] != "sending":
        return []
    return [update(LEDGER, LINE, "ADD #sending :less", when=PRESENT, less=-1)]
