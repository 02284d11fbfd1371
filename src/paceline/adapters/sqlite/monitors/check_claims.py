"""Claims of built-in checks: reads new runs, asks ``core.monitors.waiting_checks``, and writes leases.

All checks are in one queue in the order in which they were made, so that a tick writes neighbouring rows however many
owners there are. Runs that wait for a place are not written anywhere: the claiming process remembers them by owner and
target. A new process reads them again, from the position up to which every run has started.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

import msgspec

from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.keys import CHECKS_LANE, LANE_BITS, NEVER_MS
from paceline.adapters.sqlite.monitors.definitions import last_change
from paceline.adapters.sqlite.monitors.entries import integers
from paceline.adapters.sqlite.monitors.outgoing_claims import (
    CLEAR,
    OPEN_FACTS,
    OWNER,
    Candidate,
    ClaimDecisions,
    check_of,
)
from paceline.adapters.sqlite.monitors.owner_queues import looked_max
from paceline.adapters.sqlite.monitors.runs import count_out, out_of
from paceline.core.monitors.checks import Check
from paceline.core.monitors.claim import may_start
from paceline.core.monitors.places import Places, Seats
from paceline.core.monitors.values import Claimed
from paceline.core.monitors.waiting_checks import Chosen, Rank, WaitingChecks

ASIDE_MS = 30_000
"""After this time any process may start a run that left the queue without starting. The process that set it aside
starts it as soon as there is a place."""
READ_MAX = 5_000
"""New runs that one claim reads, to learn whose they are; the next claim reads on."""
WAITING_MAX = 200_000
"""Waiting runs that a process remembers. Those behind them are read after these have started."""
PASSED_MAX, ASIDE_MAX = 20_000, 256
"""If more than PASSED_MAX runs have started behind a waiting one, it is set aside, with others, up to ASIDE_MAX in
one claim: otherwise a new process would have to read all of them again."""
KNOWN_MAX = 100_000
"""Monitors that a process remembers, so that it need not read their names and checks for each run."""
ROUNDS_MAX = 64
"""Rounds of choosing in one claim: if chosen runs are gone, or are only parked, others are chosen."""
REASONS_MS, REASONS_MAX = 250, 1_024
"""The reasons why checks wait are written at most this often, for at most this many owners."""

_BEGIN = CHECKS_LANE << LANE_BITS

# Of some runs: how many still exist, and which may not simply start, because a claim looked at them before or an
# earlier run has not ended. One row for all: returning a row for each run takes longer than finding it.
_NEW = f"""{CLEAR} AND open.handle IS NULL
            AND NOT EXISTS (SELECT 1 FROM outcome WHERE outcome.handle = run.handle)"""  # noqa: S608  fixed texts
_RUNS = "FROM carray(?) AS one CROSS JOIN run ON run.handle = one.value LEFT JOIN open ON open.handle = run.handle"
_PLAIN = f"SELECT count(*), 0, json_group_array(run.handle) FILTER (WHERE NOT ({_NEW})) {_RUNS}"
# The same with the sum of their monitors' revisions. No run may start whose monitor is gone or owner is disabled.
_PLAIN_OF_MONITORS = f"""
SELECT count(*), total(monitor.revision),
       json_group_array(run.handle) FILTER (WHERE NOT (user.disabled IS 0 AND {_NEW})) {_RUNS} {OWNER}"""

_TOUCHED = """
SELECT handle FROM open WHERE handle > ?1 AND handle <= ?2
UNION ALL SELECT handle FROM outcome WHERE handle > ?1 AND handle <= ?2"""

Known = tuple[tuple[str, str], int, str, Check | None, int]
"""A monitor as far as its runs need it: (owner, target), revision, name, check, attempts."""
GONE: Known = (("", ""), -1, "", None, 1)
Run = tuple[int, int, int, int]
"""Handle, generation, counter and due time. They never change."""
_RANK = itemgetter(3, 1)


class CheckQueue:
    """The waiting checks as this process remembers them. Its claims come one at a time."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start like a new process, after a claim that was not committed."""
        self._waiting = WaitingChecks()
        self._seen = -1
        """Runs up to this number were read."""
        self._order: dict[int, None] = {}
        """Waiting runs that were never set aside, in queue order; the stored position is before the first."""
        self._aside: set[int] = set()
        """Waiting runs that were set aside."""
        self._written_reasons: dict[tuple[str, str], str] = {}
        self._reasons_ms = -REASONS_MS
        self._last: Rank = (0, 0)
        """The highest rank of a run that was read."""
        self._known: dict[int, Known] = {}
        """Monitors by generation. A copy is valid if its revision is still the stored one. Its target may have
        changed since, but that only affects the order in which runs start."""
        self._change = -1
        self._sure: set[int] = set()
        """Monitors that were compared with the stored ones since ``_change``, the last change of a monitor or user."""
        self._pairs: dict[tuple[str, str], tuple[str, str]] = {}
        """One shared value for each owner and target: equal copies in many places are slower to find."""

    def claim(
        self, db: Connection, *, now_ms: int, runs_max: int, lease_ms: int, places: Places | None
    ) -> list[Claimed]:
        tail, position, ready_ms = db.execute(
            "SELECT tail, position, ready_ms FROM lane WHERE id = ?", (CHECKS_LANE,)
        ).fetchone()
        if self._seen < 0:
            db.execute("DELETE FROM check_wait")
        self._seen = max(self._seen, position)
        seats, leases = Seats(runs_max, places), ClaimDecisions(now_ms=now_ms, lease_ms=lease_ms)
        back = self._read_back(db, leases, limit=looked_max(runs_max)) if ready_ms <= now_ms else []
        self._line_up(db, [run for run in back if run[0] not in self._aside], self._read_new(db, tail))
        self._aside.update([run[0] for run in back])
        claimed: list[Claimed] = []
        for _ in range(ROUNDS_MAX):
            chosen = self._waiting.choose(seats)
            self._start(db, chosen, leases, seats)
            started = leases.write(db)
            claimed += started
            if len(started) == len(chosen):
                break
        self._set_aside(db, back, now_ms=now_ms)
        self._move_on(db, now_ms=now_ms, position=position, tail=tail, ready_ms=ready_ms)
        self._write_reasons(db, seats, now_ms=now_ms)
        return claimed

    def _read_back(self, db: Connection, leases: ClaimDecisions, *, limit: int) -> list[Run]:
        """Read runs that come back: retries, expired leases, caught-up and unparked runs, those others set aside.

        Return those that may start; the others are parked or held.
        """
        rows = db.execute(
            f"""SELECT {OPEN_FACTS} FROM open JOIN run ON run.handle = open.handle {OWNER}
                WHERE open.lane = {CHECKS_LANE} AND open.at_ms <= ? ORDER BY open.at_ms LIMIT ?""",  # noqa: S608
            (leases.now_ms, limit),
        ).fetchall()
        back: list[Run] = []
        for run in [Candidate(*row) for row in rows]:
            if may_start(clear=bool(run.clear), disabled=bool(run.disabled)) == "lease":
                back.append((run.handle, run.generation, run.counter, run.due_ms))  # leased when it is chosen
            else:
                leases.start(run)
        return back

    def _read_new(self, db: Connection, tail: int) -> list[Run]:
        """Return runs that no claim of this process has read and that may start, as far as is known."""
        end = min(tail, self._seen + READ_MAX)
        if self._seen >= end or len(self._waiting) >= WAITING_MAX:
            return []
        span = (_BEGIN | self._seen, _BEGIN | end)
        rows = db.execute(
            "SELECT handle, generation, counter, due_ms FROM run WHERE handle > ? AND handle <= ? ORDER BY handle", span
        ).fetchall()
        # Runs that are caught up later, are parked, or were claimed by another process come back at their time. Ended
        # ones, such as superseded runs, do not.
        touched = {row[0] for row in db.execute(_TOUCHED, span)}
        if touched:
            rows = [row for row in rows if row[0] not in touched]
        self._seen = end
        self._order.update(dict.fromkeys([row[0] for row in rows]))
        return rows

    def _line_up(self, db: Connection, back: list[Run], new: list[Run]) -> None:
        """Add runs to those that wait. Runs that come back get their place among the others."""
        if not (back or new):
            return
        runs = sorted(back + new if back else new, key=_RANK)
        waiting = zip(runs, self._places_of(db, runs), strict=True)
        if back or _RANK(runs[0]) < self._last:
            self._waiting.merge(list(waiting), _RANK)
        else:
            self._waiting.add(waiting)
        self._last = max(self._last, _RANK(runs[-1]))

    def _places_of(self, db: Connection, runs: Sequence[Run]) -> list[tuple[str, str]]:
        """Return owner and target of each of these runs; both are empty if its monitor is gone."""
        return [monitor[0] for monitor in self._monitors_of(db, runs)]

    def _monitors_of(self, db: Connection, runs: Sequence[Run]) -> list[Known]:
        known = self._known
        try:
            return [known[run[1]] for run in runs]
        except KeyError:
            self._learn(db, {run[1] for run in runs})
        return [known[run[1]] for run in runs]

    def _learn(self, db: Connection, generations: set[int]) -> None:
        """Read these monitors into memory."""
        known = self._known
        if len(known) > KNOWN_MAX:
            known.clear()
            self._pairs.clear()
            self._sure.clear()
        unknown = generations.difference(known)
        known.update(dict.fromkeys(unknown, GONE))
        for generation, revision, owner, monitor, spec in db.execute(
            """SELECT monitor.generation, monitor.revision, user.name, monitor.name, monitor.spec
               FROM monitor JOIN user ON user.id = monitor.owner WHERE monitor.generation IN carray(?)""",
            (integers(unknown),),
        ):
            check, target, attempts = check_of(spec)
            place = self._pairs.setdefault((owner, target), (owner, target))
            known[generation] = (place, revision, monitor, check, attempts)

    def _start(self, db: Connection, chosen: Sequence[Chosen], leases: ClaimDecisions, seats: Seats) -> None:
        """Lease the chosen runs that still wait: some may have been claimed elsewhere or ended in the meantime."""
        if not chosen:
            return
        runs: list[Run] = sorted([run for _, run, _ in chosen])  # neighbours are read and written together
        handles = [run[0] for run in runs]
        for handle in handles:
            self._order.pop(handle, None)
        if self._aside:
            self._aside.difference_update(handles)
        self._lease_plain(db, runs, handles, leases)
        if len(leases.claimed) == len(handles):
            return
        plain = set(leases.first)
        _judge(db, [handle for handle in handles if handle not in plain], leases)
        started = {item.handle for item in leases.claimed}
        for owner, run, target in chosen:
            if run[0] not in started:
                seats.take(owner, target, -1)

    def _lease_plain(self, db: Connection, runs: list[Run], handles: list[int], leases: ClaimDecisions) -> None:
        """Lease runs that may simply start, which are nearly all. Fast path of core.monitors.claim.may_start."""
        until_ms = leases.until_ms
        if (change := last_change(db)) != self._change:
            self._change = change
            self._sure.clear()
        sure = self._sure.issuperset([run[1] for run in runs])
        query = _PLAIN if sure else _PLAIN_OF_MONITORS
        there, revisions, others = db.execute(query, (integers(handles),)).fetchone()
        if others != "[]":
            odd = set(msgspec.json.decode(others))
            runs = [run for run in runs if run[0] not in odd]
            handles = [run[0] for run in runs]
            there, revisions, _ = db.execute(query, (integers(handles),)).fetchone()
        monitors = self._monitors_of(db, runs)
        # A revision only grows. So if no run is gone and the sum is as remembered, every revision is unchanged.
        if there < len(handles) or not (sure or revisions == sum([monitor[1] for monitor in monitors])):
            for run in runs:
                self._known.pop(run[1], None)
            return
        if not sure:
            self._sure.update([run[1] for run in runs])
        leases.first = handles
        leases.claimed = [
            Claimed(
                handle, 1, place[0], monitor, generation, counter, due_ms, until_ms, False, check, place[1], attempts
            )
            for (handle, generation, counter, due_ms), (place, _, monitor, check, attempts) in zip(
                runs, monitors, strict=True
            )
        ]

    def _set_aside(self, db: Connection, back: Sequence[Run], *, now_ms: int) -> None:
        """Set aside runs that came back and did not start.

        This process remembers them; others may take them after ASIDE_MS.
        """
        handles = [run[0] for run in back if run[0] in self._aside]
        if not handles:
            return
        count_out(db, gone=out_of(db, handles))
        db.execute(
            """UPDATE open SET lost = lost OR state = 'out', state = 'held', at_ms = ?, reason = '', behind = NULL,
                               generation = NULL, counter = NULL,
                               started_ms = iif(state = 'held' OR state = 'parked', started_ms, at_ms)
               WHERE handle IN carray(?)""",
            (now_ms + ASIDE_MS, integers(handles)),
        )

    def _move_on(self, db: Connection, *, now_ms: int, position: int, tail: int, ready_ms: int) -> None:
        """Write the position up to which all runs have left the queue, and when a claim may find a run again."""
        stuck: list[int] = []
        while (first := next(iter(self._order), None)) is not None:
            passed = self._seen - (first - _BEGIN) - (len(self._order) - 1)
            if passed <= PASSED_MAX or len(stuck) == ASIDE_MAX:
                break
            del self._order[first]
            stuck.append(first)
        if stuck:
            # Another process may have claimed or ended some of them; those are dropped when they are chosen.
            db.execute(
                """INSERT INTO open (handle, lane, state, at_ms)
                   SELECT handle, ?, 'held', ? FROM run WHERE handle IN carray(?)
                   AND NOT EXISTS (SELECT 1 FROM outcome WHERE outcome.handle = run.handle) ON CONFLICT DO NOTHING""",
                (CHECKS_LANE, now_ms + ASIDE_MS, integers(stuck)),
            )
            self._aside.update(stuck)
        reached = max(position, first - 1 - _BEGIN if first is not None else self._seen)
        next_ms = 0
        if reached == tail:
            query = f"SELECT min(at_ms) FROM open WHERE lane = {CHECKS_LANE} AND at_ms < ?"  # noqa: S608
            found_ms = db.execute(query, (NEVER_MS,)).get
            next_ms = NEVER_MS if found_ms is None else found_ms
        if (reached, next_ms) != (position, ready_ms):
            db.execute("UPDATE lane SET position = ?, ready_ms = ? WHERE id = ?", (reached, next_ms, CHECKS_LANE))

    def _write_reasons(self, db: Connection, seats: Seats, *, now_ms: int) -> None:
        """Write the reasons why checks wait, for those who ask."""
        if not (self._written_reasons or self._waiting) or (
            self._written_reasons and abs(now_ms - self._reasons_ms) < REASONS_MS
        ):
            return
        reasons = self._waiting.reasons(seats, limit=REASONS_MAX)
        gone = [key for key in self._written_reasons if key not in reasons]
        changed = [(*key, reason) for key, reason in reasons.items() if self._written_reasons.get(key) != reason]
        db.executemany("DELETE FROM check_wait WHERE owner = ? AND target = ?", gone)
        db.executemany("INSERT OR REPLACE INTO check_wait (owner, target, reason) VALUES (?, ?, ?)", changed)
        self._written_reasons, self._reasons_ms = reasons, now_ms


def _judge(db: Connection, handles: Sequence[int], leases: ClaimDecisions) -> None:
    """Lease, park or hold runs that a claim looked at before or that may not start now."""
    rows = db.execute(
        f"""SELECT {OPEN_FACTS}, EXISTS (SELECT 1 FROM outcome WHERE outcome.handle = run.handle)
                   OR (open.state <> 'held' AND open.at_ms > ?)
            FROM run LEFT JOIN open ON open.handle = run.handle {OWNER}
            WHERE run.handle IN carray(?)""",  # noqa: S608  fixed texts
        (leases.now_ms, integers(handles)),
    ).fetchall()
    for *facts, attempt, lost, gone in rows:
        run = Candidate(*(*facts, attempt or 0, lost or 0))
        if not gone:
            leases.start(run)


def next_run_ms(db: Connection) -> int | None:
    """Return when a check may start; 0 while one waits that has not started: the claim sees whether it may."""
    next_ms = db.execute("SELECT ready_ms FROM lane WHERE id = ? AND ready_ms < ?", (CHECKS_LANE, NEVER_MS)).fetchone()
    return None if next_ms is None else int(next_ms[0])


def wait_reason(db: Connection, generation: int) -> str:
    """Return why the checks of a monitor wait for a place; empty if no reason is stored."""
    row = db.execute(
        """SELECT user.name, monitor.spec FROM monitor JOIN user ON user.id = monitor.owner
           WHERE monitor.generation = ?""",
        (generation,),
    ).fetchone()
    if row is None:
        return ""
    found = db.execute(
        "SELECT reason FROM check_wait WHERE owner = ? AND target IN (?, '') ORDER BY target DESC LIMIT 1",
        (row[0], check_of(row[1])[1]),
    ).fetchone()
    return found[0] if found else ""
