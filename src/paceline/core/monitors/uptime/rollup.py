"""Roll-up of a monitor's outcomes, kept after its runs are deleted: good time, counts and latencies of each UTC day.

Only ``ok`` and ``failed`` say how the target was; ``dead`` and ``unknown`` runs say nothing about it. An outcome counts
from the moment it ended until the next one ended, but no longer than ``speaks_ms``: time in which nobody looked is not
known, whether the monitor was paused or nothing ran. Outcomes are folded in the order of their counters, each once,
whether one by one or many together: the result is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from paceline.core.monitors.outcome import RunState
from paceline.core.monitors.uptime.latency import bucket_of

DAY_MS = 86_400_000
DAYS_MAX = 92
"""Maximum number of days that are kept: 90, the running one, and one that a wrong clock may have made."""
INCIDENTS_MAX = 100
REASON_CHARS_MAX = 120
DISTANCES = 4
GRACE_MS = 60_000
SPEAKS_MS_MAX = 90 * DAY_MS


class EndedRun(NamedTuple):
    """End of one run of a monitor."""

    counter: int
    due_ms: int
    state: RunState
    ended_ms: int
    latency_ms: float | None
    reason: str


EndedRow = tuple[int, int, RunState, int, float | None, str]
"""``EndedRun`` as a store reads it: runs are folded by the thousand, and a row need not be copied for that."""


class UptimeDay(msgspec.Struct, array_like=True, gc=False):
    """One UTC day. ``known_ms`` is the time covered by outcomes, ``good_ms`` the part of it that was good."""

    good_ms: int = 0
    known_ms: int = 0
    ok: int = 0
    failed: int = 0
    incidents: int = 0
    """Incidents that began on this day."""
    latencies: dict[int, int] = {}
    """Number of good outcomes by the bucket of their latency."""


class Incident(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Time from the first failed outcome to the next good one; ``reason`` is that of the first."""

    began_ms: int
    ended_ms: int | None
    reason: str


class Rollup(msgspec.Struct, frozen=True, array_like=True):
    """All outcomes of a monitor up to and including ``counter``."""

    counter: int = -1
    at_ms: int | None = None
    """End of the newest ``ok`` or ``failed`` outcome; None: there is none."""
    good: bool = False
    due_ms: int = 0
    distances_ms: tuple[int, ...] = ()
    """Distances between the due times of the last few outcomes."""
    days: dict[int, bytes] = {}
    """Encoded days by their number, counted from 1970-01-01. Most are never read again, so they stay encoded."""
    incidents: tuple[Incident, ...] = ()
    """Newest incidents, oldest first. Only the last can be open."""


_encode = msgspec.msgpack.Encoder().encode
_decode_rollup = msgspec.msgpack.Decoder(Rollup).decode
_decode_day = msgspec.msgpack.Decoder(UptimeDay).decode


def encode_rollup(rollup: Rollup) -> bytes:
    return _encode(rollup)


def decode_rollup(text: bytes) -> Rollup:
    """Return the roll-up of stored bytes, or raise msgspec.MsgspecError if they are none."""
    return _decode_rollup(text)


def moved(rollup: Rollup) -> Rollup:
    """Return the roll-up for the same monitor in another store, where its runs are counted from the first again."""
    return msgspec.structs.replace(rollup, counter=-1)


def fold(rollup: Rollup, runs: Iterable[EndedRow]) -> Rollup:
    """Return the roll-up with these runs, which come in the order of their counters.

    Runs that it has already are passed over.
    """
    folding = _Folding(rollup)
    rest = iter(runs)
    run = next(rest, None)
    while run is not None:
        folding.take(run)
        run = folding.take_alike(rest)
    return folding.done()


def settled_first(runs: Iterable[EndedRow | None]) -> Iterator[EndedRow]:
    """Yield the runs before the first one that has not ended, which is None."""
    for run in runs:
        if run is None:
            return
        yield run


def days_until(rollup: Rollup, now_ms: int) -> dict[int, UptimeDay]:
    """Return the days by their number, including the time that the newest outcome covers up to now."""
    folding = _Folding(rollup)
    folding.speak(until_ms=now_ms)
    return {number: _decode_day(text) for number, text in sorted(folding.done().days.items())}


def speaks_ms(distances_ms: tuple[int, ...]) -> int:
    """Return the longest time that an outcome covers: twice the longest of the last distances, and a minute."""
    return min(2 * max(distances_ms, default=0) + GRACE_MS, SPEAKS_MS_MAX)


class _Folding:
    """A roll-up while outcomes are added. Changed days are decoded once."""

    def __init__(self, rollup: Rollup) -> None:
        self._counter = rollup.counter
        self._at_ms = rollup.at_ms
        self._good = rollup.good
        self._due_ms = rollup.due_ms
        self._distances_ms = rollup.distances_ms
        self._speaks_ms = speaks_ms(rollup.distances_ms)
        self._encoded = rollup.days
        self._incidents = list(rollup.incidents)
        self._days: dict[int, UptimeDay] = {}

    def take(self, run: EndedRow) -> None:
        counter, due_ms, state, ended_ms, latency_ms, reason = run
        if counter <= self._counter:
            return
        self._counter = counter
        if state not in ("ok", "failed"):
            return
        if self._at_ms is not None:
            self.speak(until_ms=ended_ms)
            self._measure(due_ms - self._due_ms)
        self._at_ms, self._due_ms, self._good = ended_ms, due_ms, state == "ok"
        day = self._day(ended_ms // DAY_MS)
        if not self._good:
            day.failed += 1
            self._begin_incident(day, ended_ms, reason)
            return
        day.ok += 1
        if latency_ms is not None:
            bucket = bucket_of(latency_ms)
            day.latencies[bucket] = day.latencies.get(bucket, 0) + 1
        self._end_incident(ended_ms)

    def take_alike(self, runs: Iterator[EndedRow]) -> EndedRow | None:
        """Take runs while they go on as before, which is nearly always; return the first that differs.

        As before: good, as far from the one before it as usual, and on the same day.
        """
        at_ms, due_ms, counter = self._at_ms, self._due_ms, self._counter
        usual_ms = self._distances_ms[:1]
        if at_ms is None or not self._good or not usual_ms or self._distances_ms != usual_ms * DISTANCES:
            return next(runs, None)
        distance_ms, speaks_ms, begun_ms = usual_ms[0], self._speaks_ms, at_ms
        day_ends_ms, day = (at_ms // DAY_MS + 1) * DAY_MS, self._day(at_ms // DAY_MS)
        latencies, taken, otherwise = day.latencies, 0, None
        for run in runs:
            number, run_due_ms, state, ended_ms, latency_ms, _ = run
            usual = state == "ok" and run_due_ms - due_ms == distance_ms and number > counter
            if not (usual and at_ms <= ended_ms < day_ends_ms and ended_ms - at_ms <= speaks_ms):
                otherwise = run
                break
            counter, due_ms, at_ms = number, run_due_ms, ended_ms
            taken += 1
            if latency_ms is not None:
                bucket = bucket_of(latency_ms)
                latencies[bucket] = latencies.get(bucket, 0) + 1
        self._counter, self._due_ms, self._at_ms = counter, due_ms, at_ms
        day.ok += taken
        day.known_ms += at_ms - begun_ms
        day.good_ms += at_ms - begun_ms
        return otherwise

    def speak(self, *, until_ms: int) -> None:
        """Count the time from the newest outcome on; none if the clock was set back."""
        if self._at_ms is None:
            return
        from_ms = self._at_ms
        until_ms = min(until_ms, from_ms + self._speaks_ms)
        while from_ms < until_ms:
            number = from_ms // DAY_MS
            part_ms = min(until_ms, (number + 1) * DAY_MS) - from_ms
            day = self._day(number)
            day.known_ms += part_ms
            if self._good:
                day.good_ms += part_ms
            from_ms += part_ms

    def _measure(self, distance_ms: int) -> None:
        """Note the distance of two due times; a negative one, after the clock was set back, is ignored."""
        if distance_ms > 0 and self._distances_ms != (distance_ms,) * DISTANCES:
            self._distances_ms = (*self._distances_ms, distance_ms)[-DISTANCES:]
            self._speaks_ms = speaks_ms(self._distances_ms)

    def done(self) -> Rollup:
        days = self._encoded | {number: _encode(day) for number, day in self._days.items()}
        if len(days) > DAYS_MAX:
            days = dict(sorted(days.items())[-DAYS_MAX:])
        return Rollup(
            self._counter,
            self._at_ms,
            self._good,
            self._due_ms,
            self._distances_ms,
            days,
            tuple(self._incidents[-INCIDENTS_MAX:]),
        )

    def _day(self, number: int) -> UptimeDay:
        day = self._days.get(number)
        if day is None:
            text = self._encoded.get(number)
            day = self._days[number] = UptimeDay() if text is None else _decode_day(text)
        return day

    def _begin_incident(self, day: UptimeDay, at_ms: int, reason: str) -> None:
        if not self._incidents or self._incidents[-1].ended_ms is not None:
            self._incidents.append(Incident(at_ms, None, reason[:REASON_CHARS_MAX]))
            day.incidents += 1

    def _end_incident(self, at_ms: int) -> None:
        if self._incidents and self._incidents[-1].ended_ms is None:
            last = self._incidents[-1]
            self._incidents[-1] = msgspec.structs.replace(last, ended_ms=max(at_ms, last.began_ms))
