"""Watch over the wall clock: the store keeps the latest time that a process has read.

A process that later reads an earlier time knows that the clock was set back, and pulls back what waits too far ahead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from paceline.core.alerts.telling import WAIT_MS_MAX
from paceline.core.clock import set_back_ms
from paceline.ports import Store
from paceline.ports.items import ItemStore
from paceline.steps import collection
from paceline.steps.alerts.upkeep import pull_back_alerts
from paceline.steps.collection import Collection
from paceline.steps.history.notes import note_set_back
from paceline.steps.monitors.tick import pull_back


class NotedTime(msgspec.Struct, frozen=True):
    """The time of the last note."""

    latest_ms: int


CLOCK = Collection("clock", NotedTime)
NOTED = "store"


class LongestWaits(NamedTuple):
    """Longest waits of runs, calls, sends and alerts by a clock that is right."""

    run_ms_max: int
    call_ms_max: int
    send_ms_max: int
    alert_ms_max: int = WAIT_MS_MAX


class SetBack(NamedTuple):
    """Amount by which the clock was set back, number of entries looked through, and counts of things pulled back."""

    by_ms: int
    entries: int
    moved: int
    runs: int
    sends: int
    alerts: int


def watch_clock(
    store: Store, *, read_ms: Callable[[], int], stepped_ms: int, apart_ms: int, waits: LongestWaits
) -> SetBack | None:
    """Note the time in the store and pull back what waits too far ahead. None: the clock was not set back.

    If it was set back, here or since the last note, the time is noted only when everything is pulled back: if this
    process dies before that, the next one notices the step as well. ``stepped_ms``: by how much this process saw its
    own clock go back.
    """
    latest_ms, now_ms = note_time(store, read_ms, apart_ms=apart_ms)
    by_ms = max(set_back_ms(now_ms, latest_ms=latest_ms, apart_ms=apart_ms), stepped_ms)
    if not by_ms:
        return None

    note_set_back(store, from_ms=now_ms + by_ms, to_ms=now_ms)

    def read_latest_ms() -> int:
        """Return the latest time that the clock of any process of this store may show by now."""
        return read_ms() + apart_ms

    report = pull_back(store, read_ms=read_latest_ms, wait_ms_max=waits.run_ms_max)
    calls = store.pull_back_calls(read_latest_ms, wait_ms_max=waits.call_ms_max)
    sends = store.pull_back_sends(read_latest_ms, wait_ms_max=waits.send_ms_max)
    alerts = pull_back_alerts(store, read_latest_ms, wait_ms_max=waits.alert_ms_max)
    accept_time(store, read_ms)
    return SetBack(by_ms, report.scanned, report.moved, report.runs + calls, sends, alerts)


def note_time(store: ItemStore, read_ms: Callable[[], int], *, apart_ms: int = 0) -> tuple[int | None, int]:
    """Keep the time, unless it shows that the clock was set back. Return the time kept before, and the time now.

    The clock is read after the noted time: read before, it would seem to be behind times that others note meanwhile. A
    process that notes its time in between has done what this note is for, so a lost write is not repeated.
    """
    found = CLOCK.find(store, NOTED)
    now_ms = read_ms()
    latest_ms = None if found.value is None else found.value.latest_ms
    if not set_back_ms(now_ms, latest_ms=latest_ms, apart_ms=apart_ms):
        collection.write(store, [CLOCK.change(found, NotedTime(now_ms))])
    return latest_ms, now_ms


def accept_time(store: ItemStore, read_ms: Callable[[], int]) -> None:
    """Keep the time, whatever was kept before."""
    CLOCK.put(store, NOTED, NotedTime(read_ms()))
