"""Entries: their rows in the due table, and how recorded changes move them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, assert_never

import apsw

from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.kept_counts import add, tally
from paceline.adapters.sqlite.keys import (
    CHECKS_LANE,
    EPOCH_MS,
    GENERATION_BITS,
    GENERATION_MASK,
    RESTING_SLOT,
    due_bound,
    due_key,
    due_ms_of,
    is_outgoing,
    outgoing_lane,
    queue_lane,
)
from paceline.adapters.sqlite.monitors.advance_on_time import BUSY
from paceline.adapters.sqlite.monitors.cadences import Cadences
from paceline.core.monitors.checks import DEFAULT_QUEUE
from paceline.core.monitors.due import Due
from paceline.core.monitors.schedule import SLOT_MS, Arm, Cadence, Entry, Keep, Reaction, Remove, Rest, next_due_ms
from paceline.core.monitors.stored import StoredMonitor
from paceline.core.monitors.values import Change, Reacted, Scheduler


class DueRow(NamedTuple):
    """A row of the due table."""

    k: int
    counter: int
    revision: int
    cadence: int
    lane: int
    last_run: int
    last_due_ms: int | None
    overlapped: int
    queue: str | None
    lead_ms: int | None


def integers(values: Iterable[int]) -> Any:
    """Return many integers as one parameter, to be read with carray()."""
    # An empty array has no address to bind, so it gets -1: no key is negative.
    return apsw.carray(array("q", values) or array("q", [-1]))


_DUE = f"""SELECT k & {GENERATION_MASK}, counter, revision, (k >> {GENERATION_BITS}) * {SLOT_MS} + {EPOCH_MS}, cadence,
                  overlapped, {BUSY}, lead_ms, lane, last_run FROM due"""  # noqa: S608  numbers of our own

# -- reading


def locate(db: Connection, cadences: Cadences, generations: Sequence[int], *, now_ms: int) -> dict[int, DueRow]:
    """Find due rows by generation without an index: an entry's grid tells where its row must be.

    If it is not there, it is overdue, and the overdue rows are searched. Only after the clock was set back can it
    be elsewhere.
    """
    cold = db.execute(
        "SELECT generation, cadence, base_ms, lead_ms FROM entry WHERE generation IN carray(?)",
        (integers(generations),),
    ).fetchall()
    if not cold:
        return {}
    known = cadences.known(db, {row[1] for row in cold})
    guesses = [k for row in cold for k in _guesses(row[0], known[row[1]], row[2], row[3] or 0, now_ms)]
    found = _places(db, "due.k IN carray(?)", (integers(guesses),))
    for condition in ("due.k < ? AND (due.k & ?) IN carray(?)", "due.k >= ? AND (due.k & ?) IN carray(?)"):
        missing = [row[0] for row in cold if row[0] not in found]
        if not missing:
            break
        found |= _places(db, condition, (due_bound(now_ms), GENERATION_MASK, integers(missing)))
    return found


def entries(db: Connection, cadences: Cadences, generations: Sequence[int], *, now_ms: int) -> dict[int, Entry]:
    places = locate(db, cadences, generations, now_ms=now_ms)
    known = cadences.known(db, {place.cadence for place in places.values()})
    return {generation: _entry(generation, place, known) for generation, place in places.items()}


def schedulers(
    db: Connection, cadences: Cadences, *, after_generation: int, limit: int, now_ms: int
) -> list[Scheduler]:
    rows = db.execute(
        """SELECT entry.generation, user.name, monitor.name
           FROM entry JOIN monitor USING (generation) JOIN user ON user.id = monitor.owner
           WHERE entry.generation > ? ORDER BY entry.generation LIMIT ?""",
        (after_generation, limit),
    ).fetchall()
    found = entries(db, cadences, [row[0] for row in rows], now_ms=now_ms)
    return [Scheduler(owner, name, found[generation]) for generation, owner, name in rows if generation in found]


def due(db: Connection, cadences: Cadences, *, now_ms: int, limit: int) -> list[Due]:
    rows = db.execute(f"{_DUE} WHERE k < ? ORDER BY k LIMIT ?", (due_bound(now_ms), limit)).fetchall()
    return _dues(db, rows, cadences)


def armed_after(db: Connection, cadences: Cadences, after: Due | None, *, from_ms: int, limit: int) -> list[Due]:
    start = due_key(from_ms, 0) - 1 if after is None else due_key(after.due_ms, after.generation)
    rows = db.execute(
        f"{_DUE} WHERE k > ? AND k < ? ORDER BY k LIMIT ?", (start, RESTING_SLOT << GENERATION_BITS, limit)
    ).fetchall()
    return _dues(db, rows, cadences)


def first_due_ms(db: Connection) -> int | None:
    row = db.execute("SELECT min(k) FROM due").fetchone()
    return None if row is None or row[0] is None else due_ms_of(row[0])


def any_change(db: Connection) -> bool:
    return bool(db.execute("SELECT EXISTS (SELECT 1 FROM change)").get)


def changes(db: Connection, cadences: Cadences, *, limit: int, now_ms: int) -> list[Change]:
    rows = db.execute(
        """SELECT change.generation, change.number, user.name, user.disabled,
                  monitor.name, revision, spec, monitor.created_ms, updated_ms
           FROM change LEFT JOIN monitor USING (generation) LEFT JOIN user ON user.id = monitor.owner
           ORDER BY change.generation LIMIT ?""",
        (limit,),
    ).fetchall()
    found = entries(db, cadences, [row[0] for row in rows], now_ms=now_ms) if rows else {}
    return [_change(row, found.get(row[0])) for row in rows]


# -- writing


def react(db: Connection, reacted: Sequence[Reacted], cadences: Cadences) -> list[bool]:
    batch = _Moves(db, reacted, cadences)
    won = [batch.judge(db, item.change, item.reaction) for item in reacted]
    batch.write(db)
    return won


class _Moves:
    """Reactions judged one by one against the stored entries, and written together."""

    def __init__(self, db: Connection, reacted: Sequence[Reacted], cadences: Cadences) -> None:
        self._cadences = cadences
        changes = [item.change for item in reacted]
        generations = integers([change.generation for change in changes])
        believed = integers(due_key(change.entry.due_ms, change.generation) for change in changes if change.entry)
        self._places = {
            row[0]: row
            for row in db.execute(
                "SELECT k, counter, revision, last_run, overlapped FROM due WHERE k IN carray(?)", (believed,)
            )
        }
        # Deleted at once, since nearly all of them are reacted to; those left here in the end lost and are put back.
        self._recorded = _take_act(db, changes) or _take_each(db, generations)
        self._armed = {
            row[0] for row in db.execute("SELECT generation FROM entry WHERE generation IN carray(?)", (generations,))
        }
        # A monitor that is gone by now has no owner: its removal is recorded and comes next.
        armed = [item.change.generation for item in reacted if isinstance(item.reaction, Arm | Rest)]
        self._owners = dict(
            db.execute(
                "SELECT generation, owner FROM monitor WHERE generation IN carray(?)", (integers(armed),)
            ).fetchall()
        )
        self._gone_keys: list[tuple[int]] = []
        self._gone: list[tuple[int]] = []
        self._entries: list[tuple[int, int, int | None, int]] = []
        self._rearmed: list[tuple[int, int, int | None, int]] = []
        self._dues: list[tuple[int, ...]] = []

    def judge(self, db: Connection, change: Change, reaction: Reaction) -> bool:
        entry = change.entry
        place: tuple[int, ...] | None = None
        if self._recorded.get(change.generation) != change.seq:
            return False  # reacted to already, or changed again
        if entry is None:
            if change.generation in self._armed:
                return False
        else:
            place = self._places.pop(due_key(entry.due_ms, entry.generation), None)
            if place is None or place[1:3] != (entry.counter, entry.revision):
                return False
        match reaction:
            case Arm():
                self._arm(db, change, place, reaction, reaction.due_ms)
            case Rest():
                self._arm(db, change, place, reaction, None)
            case Keep():
                pass
            case Remove():
                self._gone.append((change.generation,))
                self._leave(place)
            case never:
                assert_never(never)
        del self._recorded[change.generation]
        return True

    def write(self, db: Connection) -> None:
        db.executemany("DELETE FROM due WHERE k = ?", self._gone_keys)
        db.executemany("DELETE FROM entry WHERE generation = ?", self._gone)
        db.executemany("UPDATE entry SET cadence = ?, base_ms = ?, lead_ms = ? WHERE generation = ?", self._rearmed)
        db.executemany("INSERT INTO entry (cadence, base_ms, lead_ms, generation) VALUES (?, ?, ?, ?)", self._entries)
        self._dues.sort()
        db.executemany(
            """INSERT INTO due (k, counter, revision, cadence, lane, last_run, overlapped, lead_ms)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
            self._dues,
        )
        db.executemany("INSERT INTO change (generation, number) VALUES (?, ?)", self._recorded.items())

    def _leave(self, place: tuple[int, ...] | None) -> None:
        if place is not None:
            self._gone_keys.append((place[0],))

    def _arm(
        self, db: Connection, change: Change, place: tuple[int, ...] | None, wish: Arm | Rest, due_ms: int | None
    ) -> None:
        assert change.monitor is not None
        generation, monitor = change.generation, change.monitor
        counter = last_run = overlapped = 0
        if place is not None:
            _, counter, _, last_run, overlapped = place
            self._leave(place)
        owner = self._owners.get(generation)
        lane = _outgoing_lane(db, owner, wish.queue) if wish.outgoing and owner is not None else CHECKS_LANE
        number = self._cadences.number(db, wish.cadence)
        base_ms = due_ms if due_ms is not None else monitor.created_ms
        lead_ms = wish.lead_ms if isinstance(wish, Arm) else None
        (self._rearmed if generation in self._armed else self._entries).append((number, base_ms, lead_ms, generation))
        hot = (counter, monitor.revision, number, lane, last_run, overlapped, lead_ms or 0)
        self._dues.append((due_key(due_ms, generation), *hot))


def _outgoing_lane(db: Connection, owner: int, queue: str) -> int:
    """Return the lane of an owner's queue.

    It is made when the queue is first named, with a number that no lane ever had.
    """
    if queue == DEFAULT_QUEUE:
        return outgoing_lane(owner)
    row = db.execute("SELECT id FROM lane WHERE owner = ? AND outgoing = 1 AND queue = ?", (owner, queue)).fetchone()
    if row is not None:
        return int(row[0])
    lane = queue_lane(tally(db, "queue_lanes"))
    add(db, "queue_lanes", 1)
    db.execute("INSERT INTO lane (id, owner, outgoing, queue) VALUES (?, ?, 1, ?)", (lane, owner, queue))
    return lane


def _take_act(db: Connection, changes: Sequence[Change]) -> dict[int, int]:
    """Delete and return the recorded changes if they are those of one bulk put: one number, neighbouring generations.

    Such a range is compared and deleted as a whole. Empty if the changes are others, or not all of them are recorded.
    """
    believed = {change.generation: change.seq for change in changes}
    generations, numbers = list(believed), set(believed.values())
    if len(generations) != len(changes) or len(numbers) != 1:
        return {}
    act = (generations[0], generations[-1], numbers.pop())
    there = "FROM change WHERE generation BETWEEN ? AND ? AND number = ?"
    if generations != list(range(act[0], act[1] + 1)) or db.execute(f"SELECT count(*) {there}", act).get != len(
        changes
    ):
        return {}
    db.execute(f"DELETE {there}", act)
    return believed


def _take_each(db: Connection, generations: Any) -> dict[int, int]:
    """Delete and return the recorded changes of these generations."""
    return dict(
        db.execute(
            "DELETE FROM change WHERE generation IN carray(?) RETURNING generation, number", (generations,)
        ).fetchall()
    )


# -- rows to values


def _guesses(generation: int, cadence: Cadence, base_ms: int, lead_ms: int, now_ms: int) -> list[int]:
    """Return the possible keys of an entry that is not overdue: paused, its first due time, or one of the next two."""
    following_ms = next_due_ms(cadence, after_ms=now_ms, due_ms=base_ms + lead_ms, generation=generation)
    second_ms = next_due_ms(cadence, after_ms=following_ms, due_ms=base_ms + lead_ms, generation=generation)
    slots = {RESTING_SLOT, *((ms - EPOCH_MS) // SLOT_MS for ms in (base_ms, following_ms, second_ms))}
    return [slot << GENERATION_BITS | generation for slot in slots]


def _places(db: Connection, condition: str, bindings: tuple[Any, ...]) -> dict[int, DueRow]:
    rows = db.execute(
        f"""SELECT due.k, due.counter, due.revision, due.cadence, due.lane, due.last_run,
                   iif(extra.handle IS NULL, run.due_ms, extra.last_due_ms), due.overlapped, lane.queue,
                   iif(entry.lead_ms IS NULL, NULL, due.lead_ms)
            FROM due LEFT JOIN run ON run.handle = due.last_run LEFT JOIN lane ON lane.id = due.lane
                     LEFT JOIN extra ON extra.handle = run.handle
                     LEFT JOIN entry ON entry.generation = due.k & {GENERATION_MASK}
            WHERE {condition}""",  # noqa: S608  three fixed texts, and a number of our own
        bindings,
    )
    return {row[0] & GENERATION_MASK: DueRow(*row) for row in rows}


def _dues(db: Connection, rows: list[tuple[Any, ...]], cadences: Cadences) -> list[Due]:
    """Return due entries. The row itself is kept as the place: its last two columns are the lane and the newest run."""
    known = cadences.known(db, {row[4] for row in rows})
    return [Due(row[0], row[1], row[2], row[3], known[row[4]], row, bool(row[6]), row[5], row[7]) for row in rows]


def _entry(generation: int, place: DueRow, known: dict[int, Cadence]) -> Entry:
    return Entry(
        generation=generation,
        counter=place.counter,
        revision=place.revision,
        due_ms=due_ms_of(place.k),
        cadence=known[place.cadence],
        outgoing=is_outgoing(place.lane),
        last_due_ms=place.last_due_ms,
        overlapped=place.overlapped,
        queue=place.queue or DEFAULT_QUEUE,
        lead_ms=place.lead_ms,
    )


def _change(row: tuple[Any, ...], entry: Entry | None) -> Change:
    generation, number, owner, disabled, name, revision, text, created_ms, updated_ms = row
    monitor = None
    if name is not None:
        monitor = StoredMonitor(generation, revision, text, created_ms, updated_ms).monitor(owner, name)
    return Change(seq=number, generation=generation, monitor=monitor, owner_disabled=bool(disabled), entry=entry)
