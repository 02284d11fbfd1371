"""What one transaction of a measurement is made of: its row, its job, its user's day, the line, its account."""

from __future__ import annotations

from typing import Any

from paceline.adapters.aws.items import PRESENT, Action, Item, update
from paceline.adapters.aws.jobs_keys import ENDED, LINE, job_key, moved
from paceline.adapters.aws.jobs_meters import day_closing
from paceline.adapters.aws.jobs_turns import leaves
from paceline.adapters.aws.tables import LEDGER
from paceline.ports.job_values import EndState

WAITING = frozenset({"queued", "parked"})


def job_adds(job: Item, change: str = "", **adds: int) -> Action:
    """The job's counts, by these differences; and a further change that needs no values."""
    parts = [f"#{name} :{name}" for name in adds]
    text = f"{change} ADD {', '.join(parts)}" if parts else change
    return update(LEDGER, job_key(job["number"]), text, when=PRESENT, **adds)


def job_started(job: Item, *, now_ms: int) -> Action:
    """One of it is being sent."""
    change = "SET #started_ms = if_not_exists(#started_ms, :now_ms) ADD #waiting :less"
    return update(LEDGER, job_key(job["number"]), change, when=PRESENT, now_ms=now_ms, less=-1)


def job_ends(job: Item, *, ended: int, **adds: int) -> Action:
    """So many of its measurements have ended; with the last of them it waits in the index to be finished."""
    counts = {name: amount for name, amount in ({"open": -ended} | adds).items() if amount}
    change = "ADD " + ", ".join(f"#{name} :add_{name}" for name in counts)
    given: dict[str, Any] = {f"add_{name}": amount for name, amount in counts.items()} | {"ended": ended}
    if job["open"] > ended:
        return update(LEDGER, job_key(job["number"]), change, when="#open > :ended", **given)
    change = f"SET #shard = :shard {change}"
    return update(LEDGER, job_key(job["number"]), change, when="#open = :ended", shard="ended", **given)


def row_ends(row: Item, state: EndState, reason: str, *, settled: int, now_ms: int, **more: Any) -> Action:
    return moved(
        row, state=state, reason=reason, ended_ms=now_ms, settled=settled, next_ms=None, **more
    )  # fmt: skip


def sums_of(row: Item, state: EndState, *, settled: int) -> dict[str, int]:
    """What an end adds to the sums of its job."""
    assert state in ENDED
    return {
        state: 1,
        f"definitions_{state}": row["concurrent"],
        "settled": settled,
        "refunded": row["credits"] - settled,
        "waiting": -1 if row["state"] in WAITING else 0,
    }


def unsent_ends(row: Item, job: Item, state: EndState, reason: str, *, now_ms: int) -> list[Action]:
    """It cost nothing: its owner gets all of it back. What its account holds is closed beside it."""
    actions = [
        row_ends(row, state, reason, settled=0, now_ms=now_ms, slot=0, account=None, key_number=None),
        job_ends(job, ended=1, **sums_of(row, state, settled=0)),
        day_closing(row, settled=0),
    ]
    return [*actions, leaves(row["owner"], job["user"])] if row["state"] == "queued" else actions


def sending_over(row: Item) -> list[Action]:
    """It is not being sent any more, if it was."""
    if row["state"] != "sending":
        return []
    return [update(LEDGER, LINE, "ADD #sending :less", when=PRESENT, less=-1)]
