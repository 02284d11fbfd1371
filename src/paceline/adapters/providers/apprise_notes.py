"""Notes sent through apprise in a child process, each with a deadline."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, NamedTuple

from paceline.adapters.providers.guard import Network
from paceline.core.alerts.message import AppriseNote
from paceline.core.batches.calls import CallResult
from paceline.ports import Clock

MISSING = "apprise is not installed where Paceline runs: pip install apprise"
CUT_SHORT = "the process that sends through apprise was stopped; it is tried again"
TOO_SLOW = "time-out: the service did not answer"
STOP_S = 2.0
TAKEN = 200
"""Status code of a delivered note, the same as a webhook would answer."""


class _RunningNote(NamedTuple):
    note: AppriseNote
    started_ms: int
    child: int
    """Process id of the child that has the note; 0 for none."""


class AppriseNotes:
    """Sends notes through a child process, which is started with the first note.

    A child with a note past its deadline gets no further ones. It is stopped once its other notes have ended, so that a
    service that hangs costs nobody else a try; later notes go to a new child. At most two children run at a time,
    if all notes have the same time limit. One thread starts notes and takes results. ``ended`` is called on another
    thread when there are results.
    """

    def __init__(
        self,
        *,
        allow: Sequence[Network],
        own: Sequence[tuple[str, int]],
        clock: Clock,
        ended: Callable[[], None],
    ) -> None:
        self._first = {"path": sys.path, "allow": [str(one) for one in allow], "own": list(own)}
        self._clock = clock
        self._tell = ended
        self._lock = threading.Lock()
        self._child: subprocess.Popen[str] | None = None
        self._retired: list[subprocess.Popen[str]] = []
        """Children that get no further notes."""
        self._out: dict[tuple[int, int], _RunningNote] = {}
        self._results: list[CallResult] = []

    @property
    def in_flight(self) -> int:
        with self._lock:
            return len(self._out) + len(self._results)

    def start(self, notes: Sequence[AppriseNote]) -> None:
        for note in notes:
            if find_spec("apprise") is None:
                self._note_out(note, child=0)
                self._end(note.handle, note.attempt, MISSING)
                continue
            child = self._living_child()
            self._note_out(note, child=child.pid)
            try:
                _hand_over(child, note)
            except OSError as error:
                self._end(note.handle, note.attempt, f"{CUT_SHORT} ({error.strerror})")

    def finished(self) -> list[CallResult]:
        """Return the results so far. If a note is past its deadline, it ends, and its child gets no further ones."""
        now_ms = self._clock.now_ms()
        with self._lock:
            late = [one for one in self._out.values() if now_ms - one.started_ms >= one.note.timeout_ms]
        for one in late:
            self._end(one.note.handle, one.note.attempt, TOO_SLOW)
        if self._child is not None and any(one.child == self._child.pid for one in late):
            self._retired.append(self._child)
            self._child = None
        self._stop_idle()
        with self._lock:
            results, self._results = self._results, []
        return results

    def close(self) -> None:
        for child in (*self._retired, *([self._child] if self._child is not None else [])):
            _stop(child)
        self._retired, self._child = [], None

    def _note_out(self, note: AppriseNote, *, child: int) -> None:
        with self._lock:
            self._out[note.handle, note.attempt] = _RunningNote(note, self._clock.now_ms(), child)

    def _living_child(self) -> subprocess.Popen[str]:
        if self._child is None or self._child.poll() is not None:
            self._child = self._begin()
        return self._child

    def _begin(self) -> subprocess.Popen[str]:
        # Without our environment: it holds secrets, and may name proxies that would hide addresses from the guard.
        child = subprocess.Popen(  # noqa: S603  our own program, with our own interpreter
            [sys.executable, "-I", str(Path(__file__).with_name("apprise_child.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={},
            cwd="/",
            start_new_session=True,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(f"{json.dumps(self._first)}\n")
        threading.Thread(target=self._read, args=(child, child.stdout), name="paceline-apprise", daemon=True).start()
        return child

    def _read(self, child: subprocess.Popen[str], answers: IO[str]) -> None:
        with answers:
            for line in answers:
                answer: dict[str, Any] = json.loads(line)
                self._end(answer["handle"], answer["attempt"], answer["reason"])
        child.wait()
        with self._lock:
            left = [fence for fence, out in self._out.items() if out.child == child.pid]
        for handle, attempt in left:
            self._end(handle, attempt, CUT_SHORT)

    def _end(self, handle: int, attempt: int, reason: str) -> None:
        """Note how a note ended, once."""
        now_ms = self._clock.now_ms()
        with self._lock:
            out = self._out.pop((handle, attempt), None)
            if out is not None:
                code = None if reason else TAKEN
                self._results.append(CallResult(handle, attempt, out.started_ms, now_ms, code=code, reason=reason))
        self._tell()

    def _stop_idle(self) -> None:
        """Stop retired children whose notes have all ended."""
        with self._lock:
            busy = {one.child for one in self._out.values()}
        for child in self._retired:
            if child.pid not in busy:
                _stop(child)
        self._retired = [child for child in self._retired if child.pid in busy]


def _stop(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.wait(STOP_S)
    assert child.stdin is not None
    with suppress(OSError):  # the last text may still be in its buffer
        child.stdin.close()


def _hand_over(child: subprocess.Popen[str], note: AppriseNote) -> None:
    assert child.stdin is not None
    order = {"handle": note.handle, "attempt": note.attempt, "url": note.url, "title": note.title}
    order |= {"text": note.text, "severity": note.severity}
    child.stdin.write(f"{json.dumps(order)}\n")
    child.stdin.flush()
