"""Whose turn it is: users with something to send, the one served longest ago first; and what waits beside the line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paceline.adapters.aws.database import Database
from paceline.adapters.aws.items import PRESENT, Action, Item, Value, delete, update
from paceline.adapters.aws.jobs_keys import (
    INDEX_BITS,
    LINE,
    counted,
    handle_in,
    handle_of,
    hinted,
    moved,
    number_in,
    pieces,
    queue_of,
    read,
    turn_key,
)
from paceline.adapters.aws.jobs_read import job_items, read_measurements, stored
from paceline.adapters.aws.keys import user_key
from paceline.adapters.aws.tables import ITEMS, LEDGER
from paceline.ports.jobs import SendCounts, StoredMeasurement

WOKEN_MAX = 1_000
WOKEN_TOGETHER_MAX = 25
TURNS_PAGE = 100
JUMPS_MAX = 20
"""How often the look for a user's first goes on behind what the index should not show any more."""
COUNTED_MAX = 1_000_000


def joins(owner: int, user: str, count: int, *, turns: int) -> Action:
    """So many more are queued; one who was not in the line comes to its end.

    At the end: one who comes back again and again with little must not pass those who wait.
    """
    change = (
        "SET #served = if_not_exists(#served, :turns), #at = if_not_exists(#served, :turns), #shard = :shard, "
        "#owner = :owner, #user = :user ADD #queued :count"
    )
    values: dict[str, Value] = {"turns": turns, "shard": "turn", "owner": owner, "user": user, "count": count}
    return update(LEDGER, turn_key(owner), change, when="", **values)


def leaves(owner: int, count: int = 1) -> Action:
    """So many fewer are queued. Who has none left stays in the line until somebody looks."""
    return update(LEDGER, turn_key(owner), "ADD #queued :less", when=PRESENT, less=-count)


def served(owner: int, *, turn: int) -> Action:
    change = "SET #served = :turn, #at = :turn ADD #queued :less"
    return update(LEDGER, turn_key(owner), change, when=PRESENT, turn=turn, less=-1)


def next_to_send(database: Database, *, now_ms: int, users_max: int, each_max: int) -> list[StoredMeasurement]:
    _wake(database, now_ms=now_ms)
    owners: list[int] = []
    for turn in _in_line(database):
        if len(owners) == users_max:
            break
        owners.append(turn["owner"])
    found = database.threads.fan_out(lambda owner: _first_of(database, owner, each_max), owners)
    return stored(database, [pair for pairs in found for pair in pairs])


def next_ms(database: Database) -> int | None:
    if any(True for _ in _in_line(database)):
        return 0
    later = [hint["at"] for shard in ("parked", "unknown") for hint in hinted(database, shard, limit=1)]
    return min(later, default=None)


def counts(database: Database) -> SendCounts:
    line = read(database, [LINE])[0] or {}
    queued = sum(turn["queued"] for turn in _turns(database))
    parked, unknown, ongoing, open_jobs, ended_jobs = (
        counted(database, shard, limit=COUNTED_MAX) for shard in ("parked", "unknown", "ongoing", "open", "ended")
    )
    oldest = _oldest_waiting(database) if queued or parked else None
    return SendCounts(queued, parked, line.get("sending", 0), unknown, ongoing, open_jobs + ended_jobs, oldest)


def open_jobs(database: Database, *, after: int = -1, limit: int) -> list[Item]:
    """Jobs that have not ended, in order, beyond a number."""
    numbers = [number_in(hint) for hint in hinted(database, "open", after=after, limit=limit)]
    items = job_items(database, numbers)
    return [items[number] for number in numbers if number in items]


def _oldest_waiting(database: Database) -> int | None:
    after = -1
    while page := open_jobs(database, after=after, limit=TURNS_PAGE):
        for item in page:
            if item["waiting"]:
                return int(item["created_ms"])
        after = page[-1]["number"]
    return None


def _turns(database: Database) -> Iterator[Item]:
    """Everybody in the line, in its order; as the items are, not as the index shows them."""
    after = -1
    while hints := hinted(database, "turn", after=after, limit=TURNS_PAGE):
        if len(hints) == TURNS_PAGE:
            # Several may have come at the same turn: the page ends before the last of them, unless it is all of them.
            hints = [hint for hint in hints if hint["at"] < hints[-1]["at"]] or hinted(
                database, "turn", after=after, until=hints[-1]["at"], limit=COUNTED_MAX
            )
        found = database.get_many(LEDGER, [turn_key(int(hint["pk"].split("#")[1])) for hint in hints])
        yield from sorted(found.values(), key=lambda turn: (turn["served"], turn["owner"]))
        after = hints[-1]["at"]


def _in_line(database: Database) -> Iterator[Item]:
    """Those who have something queued and may send; whoever has nothing left leaves the line."""
    page: list[Item] = []
    for turn in _turns(database):
        if turn["queued"] <= 0:
            database.write(delete(LEDGER, turn_key(turn["owner"]), when="#queued = :none", none=0))
            continue
        page.append(turn)
        if len(page) == TURNS_PAGE:
            yield from _allowed(database, page)
            page = []
    yield from _allowed(database, page)


def _allowed(database: Database, turns: Sequence[Item]) -> list[Item]:
    users = database.get_many(ITEMS, [user_key(turn["user"]) for turn in turns])

    def may(turn: Item) -> bool:
        user = users.get(user_key(turn["user"]))
        return user is not None and user["number"] == turn["owner"] and not user["disabled"]

    return [turn for turn in turns if may(turn)]


def _first_of(database: Database, owner: int, each_max: int) -> list[tuple[Item, Item]]:
    """The first that are queued, each with its job; past what the index shows and is not there, or not yet."""
    found: list[tuple[Item, Item]] = []
    after = -1
    for _ in range(JUMPS_MAX):
        hints = hinted(database, queue_of(owner), after=after, limit=each_max)
        pairs = read_measurements(database, [handle_in(hint) for hint in hints])
        found += [(row, job) for row, job in pairs if row["state"] == "queued"]
        if len(hints) < each_max or len(found) >= each_max:
            break
        after = hints[-1]["at"]
        if after >> INDEX_BITS not in {job["number"] for _, job in pairs}:
            after = handle_of((after >> INDEX_BITS) + 1, 0) - 1
    return found[:each_max]


def _wake(database: Database, *, now_ms: int) -> None:
    """Parked ones whose time has come are queued again, in their place."""
    hints = hinted(database, "parked", until=now_ms, limit=WOKEN_MAX)
    if not hints:
        return
    pairs = read_measurements(database, [handle_in(hint) for hint in hints])
    due = [(row, job) for row, job in pairs if row["state"] == "parked" and row["next_ms"] <= now_ms]
    turns = (read(database, [LINE])[0] or {}).get("turns", 0)
    groups: dict[tuple[int, str], list[Item]] = {}
    for row, job in due:
        groups.setdefault((row["owner"], job["user"]), []).append(row)
    for owner, rows in groups.items():
        for piece in pieces(rows, rows_max=WOKEN_TOGETHER_MAX):
            _wake_together(database, owner, piece, turns=turns)


def _wake_together(database: Database, owner: tuple[int, str], rows: Sequence[Item], *, turns: int) -> None:
    """One that changed meanwhile keeps the others from it, so then each is woken alone."""
    woken = [moved(row, state="queued", next_ms=None) for row in rows]
    if not database.transact([joins(*owner, len(woken), turns=turns), *woken]).won and len(woken) > 1:
        for one in woken:
            database.transact([joins(*owner, 1, turns=turns), one])
