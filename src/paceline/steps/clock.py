"""The store remembers how late it was; who finds an earlier time later on brings back what waits too far ahead."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from paceline.core.clock import set_back_ms
from paceline.ports import Store
from paceline.steps.tick import pull_back


class Waits(NamedTuple):
    """By a clock that is right, nothing of its kind waits for a time further ahead."""

    run_ms_max: int
    call_ms_max: int
    send_ms_max: int


class SetBack(NamedTuple):
    """The clock was set back. What was looked through and what came back."""

    by_ms: int
    entries: int
    moved: int
    runs: int
    sends: int


def watch_clock(
    store: Store, *, read_ms: Callable[[], int], stepped_ms: int, apart_ms: int, waits: Waits
) -> SetBack | None:
    """Notes the time in the store. None: the clock was not set back, neither here nor since the last note.

    If it was, the time is noted once everything is pulled back: whoever dies on the way leaves it to the next.

    ``stepped_ms``: by how much this process saw its own clock go back. The store reads the time where nobody else
    writes meanwhile: a time that was read before a wait would make what others wrote since seem to lie ahead.
    """
    latest_ms, now_ms = store.note_time(read_ms, apart_ms=apart_ms)
    by_ms = max(set_back_ms(now_ms, latest_ms=latest_ms, apart_ms=apart_ms), stepped_ms)
    if not by_ms:
        return None

    def read_latest_ms() -> int:
        """What the clocks of all who write to the store may show by now."""
        return read_ms() + apart_ms

    report = pull_back(store, read_ms=read_latest_ms, wait_ms_max=waits.run_ms_max)
    calls = store.pull_back_calls(read_latest_ms, wait_ms_max=waits.call_ms_max)
    sends = store.pull_back_sends(read_latest_ms, wait_ms_max=waits.send_ms_max)
    store.accept_time(read_ms)
    return SetBack(by_ms, report.scanned, report.moved, report.runs + calls, sends)
