"""Writes advances and extra runs: each moves its entry if nobody else has, makes its runs, and updates their lane."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from paceline.adapters.aws.client.connect import busy
from paceline.adapters.aws.client.database import ACTIONS_MAX, DynamoDatabase
from paceline.adapters.aws.client.items import ABSENT, PRESENT, Action, DynamoKey, Item, item_at, put, update
from paceline.adapters.aws.client.tables import LEDGER, SCHEDULERS
from paceline.adapters.aws.client.tables import RUNS as RUNS_TABLE
from paceline.adapters.aws.monitors import keys
from paceline.adapters.aws.monitors.entries import AS_SEEN, EntryQueue, is_busy, read_entries, to_place, token_of
from paceline.adapters.aws.monitors.parts import MonitorParts
from paceline.adapters.aws.monitors.transactions import Act, in_waves, transact_acts
from paceline.core.monitors.catch_up import Calendar, MissedRuns, book, owners_of
from paceline.core.monitors.due import Advance, ExtraRun, Firing, OnTime
from paceline.core.monitors.overlap import SUPERSEDED_MAX, state_made, superseded, superseded_reason
from paceline.core.monitors.values import Moved
from paceline.ports.queue_messages import Alarm

CATCH_UP = DynamoKey("catch-up", "-")
BOOKINGS_MAX = 40
FIRINGS_MAX = ACTIONS_MAX - 5 - SUPERSEDED_MAX
"""Firings of one transaction. It also moves the entry and the lane, and ends superseded runs."""


def commit(store: MonitorParts, advances: Sequence[Advance], *, now_ms: int) -> list[bool]:
    won = _commit(store, advances, now_ms=now_ms)
    back = [advance.next_due_ms < advance.due.due_ms for advance in advances]
    if any(moved and pulled for moved, pulled in zip(won, back, strict=True)):
        store.change_counter.bump()  # it was pulled back, so it is due earlier than others think
    return won


def superseded_runs(store: MonitorParts) -> int:
    return store.superseded_runs


def advance_on_time(store: MonitorParts, rule: OnTime, *, limit: int) -> Moved:
    """Advance none: DynamoDB cannot write a set of items. ``due`` and ``commit`` do it, many in a transaction."""
    del store, rule, limit
    return Moved(Counter(), 0)


def _commit(store: MonitorParts, advances: Sequence[Advance], *, now_ms: int) -> list[bool]:
    """Write about 30 advances in one transaction: each moves its entry, makes its runs, and updates their lane.

    An advance with more runs than a transaction holds is written in steps, each up to the due time of the next run. If
    the process dies in between, the entry is as if it had been ticked up to there.
    """
    heads = [_head(advance) for advance in advances]

    def write(some: list[Advance]) -> list[bool]:
        done = _Commit(store.db, some, now_ms=now_ms)
        happened = done.write()
        store.superseded_runs += done.superseded()
        _tell_made(store, done.offered(), now_ms=now_ms)
        return happened

    won = in_waves(heads, lambda advance: advance.due.generation, write)
    rest = [position for position, advance in enumerate(advances) if won[position] and advance is not heads[position]]
    if rest:
        tails = [_tail(advances[position], heads[position]) for position in rest]
        done_too = _commit(store, tails, now_ms=now_ms)
        for position, happened in zip(rest, done_too, strict=True):
            won[position] = happened
    moved = [heads[position] for position in range(len(advances)) if won[position] and position not in rest]
    for advance in moved:
        store.next_due.moved(advance.due.generation, from_ms=advance.due.due_ms, to_ms=advance.next_due_ms)
    alarms = (
        Alarm(advance.due.generation, advance.due.counter + len(advance.firings), advance.next_due_ms)
        for advance in moved
    )
    store.alarms.arm(alarms, now_ms=now_ms)
    return won


def book_catch_up(
    store: MonitorParts, wanted: Sequence[MissedRuns], *, per_second: int, now_ms: int
) -> list[list[int]]:
    """Book times in the shared calendar. If another process wrote in between, read and book again."""
    db = store.db
    found = read_entries(db, list({one.generation for one in wanted}))
    owners = owners_of(wanted, {generation: item["user"] for generation, item in found.items()})
    for _ in range(BOOKINGS_MAX):
        item = db.get(LEDGER, CATCH_UP)
        before = Calendar(item["start_s"], item["counts"]) if item else Calendar()
        times, calendar = book(before, wanted, owners, per_second=per_second, now_ms=now_ms)
        number = item["number"] if item else 0
        change = "SET #start_s = :start_s, #counts = :counts, #number = :next"
        when = "#number = :number" if item else ABSENT
        values: dict[str, Any] = {"start_s": calendar.start_s, "counts": calendar.counts, "next": number + 1}
        if item:
            values["number"] = number
        if db.write(update(LEDGER, CATCH_UP, change, when=when, **values)).won:
            return times
    raise busy("the calendar of missed runs")


def _head(advance: Advance) -> Advance:
    if len(advance.firings) <= FIRINGS_MAX:
        return advance
    firings = advance.firings[:FIRINGS_MAX]
    return replace(advance, next_due_ms=advance.firings[FIRINGS_MAX].due_ms, firings=firings, waiting_max=0)


def _tail(advance: Advance, head: Advance) -> Advance:
    made = len(head.firings)
    due = replace(advance.due, counter=advance.due.counter + made, due_ms=head.next_due_ms, lead_ms=0)
    return replace(advance, due=due, firings=advance.firings[made:])


class _Commit:
    """Advances of distinct entries. Each is written as if its lane had no open run; if it has, the runs are parked."""

    def __init__(self, db: DynamoDatabase, advances: Sequence[Advance], *, now_ms: int) -> None:
        self._db = db
        self._advances = advances
        self._now_ms = now_ms
        self._places = self._read_places()
        self._lanes = self._read_lanes()
        self._clear = [not is_busy(self._lanes.get(advance.due.generation)) for advance in advances]
        self._won: list[bool] = []
        self._ended = [0] * len(advances)

    def write(self) -> list[bool]:
        known = [position for position, place in enumerate(self._places) if place is not None]

        def again(act: int, lost: Sequence[bool], items: Sequence[Item | None]) -> Act | None:
            # The lane is the last action. If only its condition failed, the guess about its open runs was wrong: try
            # with the lane as it is stored. If the entry or a run failed, the advance is lost.
            position = known[act]
            advance, lane = self._advances[position], items[-1]
            if not lost[-1] or any(lost[: 1 + len(advance.firings)]) or not advance.firings:
                return None
            self._clear[position] = lane is None or lane["front"] == advance.due.counter
            if lane is not None:
                self._lanes[advance.due.generation] = lane
            return self._act(position)

        done = transact_acts(self._db, [self._act(position) for position in known], again=again)
        self._won = [False] * len(self._advances)
        for position, happened in zip(known, done, strict=True):
            self._won[position] = happened
        return self._won

    def superseded(self) -> int:
        return sum(ended for ended, happened in zip(self._ended, self._won, strict=True) if happened)

    def offered(self) -> list[Item]:
        """Return the runs that may start: the first one of each advance whose lane had no open run."""
        return [
            self._runs(position)[0]
            for position, happened in enumerate(self._won)
            if happened and self._clear[position] and self._advances[position].firings
        ]

    def _read_places(self) -> list[EntryQueue | None]:
        """Return the place of each entry. One from ``due`` has it already; the others are read."""
        missing = [advance.due.generation for advance in self._advances if advance.due.place is None]
        found = {generation: to_place(item) for generation, item in read_entries(self._db, missing).items()}
        return [advance.due.place or found.get(advance.due.generation) for advance in self._advances]

    def _read_lanes(self) -> dict[int, Item]:
        """Return lanes of entries that had an open run when they were read. The others are believed to have none."""
        busy = [advance.due.generation for advance in self._advances if advance.due.busy and advance.firings]
        found = self._db.get_many(RUNS_TABLE, [keys.lane_key(generation) for generation in busy])
        return {lane["generation"]: lane for lane in found.values()}

    def _act(self, position: int) -> Act:
        advance = self._advances[position]
        due, firings = advance.due, advance.firings
        counter = due.counter + len(firings)
        change = "SET #counter = :next, #due = :due, #due_ms = :next_ms, #overlapped = :overlapped"
        values: dict[str, Any] = {
            "next": counter,
            "overlapped": advance.overlapped,
            "due": keys.due_of(advance.next_due_ms, due.generation),
            "next_ms": advance.next_due_ms,
        }
        if firings:
            change += ", #last_due_ms = :last_ms"
            values["last_ms"] = firings[-1].due_ms
        if due.lead_ms:
            change, values["lead_ms"] = f"{change}, #lead_ms = :lead_ms", 0  # from here on it is on its grid
        values |= {"seen_counter": due.counter, "seen_revision": due.revision, "seen_ms": due.due_ms}
        # The condition of an advance: counter, revision and due time are still as the tick saw them.
        when = f"{AS_SEEN} AND #due_ms = :seen_ms"
        moved = update(SCHEDULERS, keys.entry_key(due.generation), change, when=when, **values)
        if not firings:
            return [moved]
        runs = [put(RUNS_TABLE, run, when=ABSENT) for run in self._runs(position)]
        ended = self._superseded(position)
        self._ended[position] = len(ended)
        return [moved, *runs, *(self._end(advance, one) for one in ended), self._lane(position, ended)]

    def _lane(self, position: int, ended: range) -> Action:
        due, made = self._advances[position].due, len(self._advances[position].firings)
        change = "SET #front = if_not_exists(#front, :counter), #newest = :newest, #generation = :generation"
        when = "attribute_not_exists(#pk) OR #front = :counter" if self._clear[position] else "#front < :counter"
        values = {"counter": due.counter, "newest": due.counter + made - 1, "generation": due.generation}
        if ended:
            change += ", #resume = :resume"
            when = "#front = :front"  # no run behind the front can start while the front is open
            values |= {"resume": ended.stop, "front": self._lanes[due.generation]["front"]}
        return update(RUNS_TABLE, keys.lane_key(due.generation), change, when=when, **values)

    def _superseded(self, position: int) -> range:
        """Return the counters of the oldest runs behind the front that are more than may wait."""
        advance = self._advances[position]
        lane = self._lanes.get(advance.due.generation)
        if lane is None or self._clear[position] or not advance.waiting_max:
            return range(0)
        if lane["newest"] >= advance.due.counter:
            return range(0)  # its first run exists already: this advance has lost
        first = keys.behind_front(lane)
        waiting = lane["newest"] - first + 1
        ended = superseded(waiting=waiting, made=len(advance.firings), waiting_max=advance.waiting_max)
        return range(first, first + ended)

    def _end(self, advance: Advance, counter: int) -> Action:
        change = "SET #state = :dead, #reason = :reason, #started_ms = :now, #ended_ms = :now, #expires_s = :expires_s"
        values: dict[str, Any] = {"dead": "dead", "reason": superseded_reason(advance.waiting_max), "now": self._now_ms}
        values["expires_s"] = self._db.retention.run_s(self._now_ms)
        return update(RUNS_TABLE, keys.run_key(advance.due.generation, counter), change, when=PRESENT, **values)

    def _runs(self, position: int) -> list[Item]:
        """Return the runs as items.

        Only the first is put into the index of runs that may start, if no run is before it.
        """
        advance, place = self._advances[position], self._places[position]
        assert place is not None
        runs: list[Item] = []
        for firing in advance.firings:
            run = new_run(advance.due.generation, firing, place, now_ms=self._now_ms)
            if self._clear[position] and not runs:
                run |= {"shard": place.queue, "at": run["from_ms"]}
            elif state_made(firing.after_ms, busy=advance.due.busy, now_ms=self._now_ms) == "queued":
                run["queued"] = True  # it keeps to its monitor's pace when it comes to the front
            runs.append(run)
        return runs


def new_run(generation: int, firing: Firing, place: EntryQueue, *, now_ms: int) -> Item:
    """Return a new run as an item, outside the index of runs that may start."""
    later = firing.after_ms > now_ms
    return item_at(keys.run_key(generation, firing.counter)) | {
        "generation": generation,
        "counter": firing.counter,
        "due_ms": firing.due_ms,
        # A run may start as soon as it is made, whatever its due time; earlier ones come first.
        "from_ms": firing.after_ms if later else min(firing.due_ms, now_ms),
        "state": "later" if later else "waiting",
        "attempt": 0,
        "lost": False,
        **place._asdict(),
    }


# -- extra runs


def make_extra_runs(store: MonitorParts, extra: Sequence[ExtraRun], *, now_ms: int) -> list[bool]:
    def write(some: list[ExtraRun]) -> list[bool]:
        found = read_entries(store.db, [one.entry.generation for one in some])
        there = [one for one in some if one.entry.generation in found]
        runs = [_extra_run(one, found[one.entry.generation], now_ms) for one in there]
        done = transact_acts(store.db, [_extra_act(one, run) for one, run in zip(there, runs, strict=True)])
        _tell_made(store, [run for run, happened in zip(runs, done, strict=True) if happened], now_ms=now_ms)
        made = {one.entry.generation for one, happened in zip(there, done, strict=True) if happened}
        return [one.entry.generation in made for one in some]

    won = in_waves(extra, lambda one: one.entry.generation, write)
    entries = [one.entry for one, happened in zip(extra, won, strict=True) if happened]
    # An entry's alarm names its counter, which has risen: it gets a new alarm.
    alarms = (Alarm(entry.generation, entry.counter + 1, entry.due_ms) for entry in entries if entry.due_ms is not None)
    store.alarms.arm(alarms, now_ms=now_ms)
    if entries:
        store.change_counter.bump()
    return won


def _tell_made(store: MonitorParts, runs: Sequence[Item], *, now_ms: int) -> None:
    """Tell of runs that may start: this process's index of checks, and checkers."""
    for run in runs:
        if not keys.is_outgoing(run["queue"]):
            store.ready_checks.moved(run["shard"], run["pk"], run["at"])
    store.alarms.offer(runs, now_ms=now_ms)


def _extra_run(extra: ExtraRun, item: Item, now_ms: int) -> Item:
    run = new_run(extra.entry.generation, Firing(extra.entry.counter, extra.due_ms, 0), to_place(item), now_ms=now_ms)
    return run | {"shard": run["queue"], "at": run["from_ms"], "extra": True}


def _extra_act(extra: ExtraRun, run: Item) -> Act:
    entry = extra.entry
    believed, values = token_of(entry)
    moved: dict[str, Any] = {"next": entry.counter + 1, "none": 0, **values}
    lane = {"counter": entry.counter, "generation": entry.generation}
    return [
        update(
            SCHEDULERS,
            keys.entry_key(entry.generation),
            "SET #counter = :next, #overlapped = :none",
            when=believed,
            **moved,
        ),
        put(RUNS_TABLE, run, when=ABSENT),
        update(
            RUNS_TABLE,
            keys.lane_key(entry.generation),
            "SET #front = if_not_exists(#front, :counter), #newest = :counter, #generation = :generation",
            when="attribute_not_exists(#pk) OR #front = :counter",
            **lane,
        ),
    ]
