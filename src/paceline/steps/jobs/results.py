"""Results of a job, read from RIPE on request, as lines of JSON. Nothing is stored or changed.

Nothing is left out silently: a measurement that was not sent, that has no results or that RIPE did not hand out has its
line or its entry with an ``error``. No more than one result is in memory at a time, however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, assert_never

import msgspec

from paceline.core.jobs.atlas import Lost, Refused
from paceline.core.jobs.atlas_replies import Delivered
from paceline.core.jobs.measurement import MeasurementState
from paceline.core.jobs.values import StoredJob, StoredMeasurement
from paceline.ports import Atlas, JobStore, Vault
from paceline.steps.jobs.atlas_keys import secret_to_read
from paceline.steps.views.job_report import job_measurements

BYTES_MAX = 268_435_456
"""Maximum number of bytes of one definition's results: more can be read at RIPE itself."""
LOST_MAX = 3
"""Number of requests in a row without an answer after which RIPE is not asked for the rest."""
Take = Callable[[bytes], None]
_encode = msgspec.json.encode
_UNSENT: dict[MeasurementState, str] = {
    "queued": "it is not sent yet",
    "parked": "it is not sent yet",
    "sending": "it is being sent",
    "unknown": "whether it was sent is being looked up",
    "cancelled": "it was cancelled before it was sent",
    "failed": "it failed before it ran",
}


class Read(NamedTuple):
    """Number of written results, and of errors in place of results."""

    results: int
    errors: int


class _Source(NamedTuple):
    """One measurement at RIPE, or the reason why there is none."""

    measurement: int
    definition: int
    target: str | None
    atlas_id: int | None = None
    account: str = ""
    key: str | None = None
    ended: bool = False
    problem: str = ""

    @property
    def place(self) -> dict[str, int | str | None]:
        return {
            "measurement": self.measurement,
            "definition": self.definition,
            "atlas_id": self.atlas_id,
            "target": self.target,
        }


def write_results(store: JobStore, atlas: Atlas, vault: Vault, job: StoredJob, take: Take) -> Read:
    """Write lines ``{"measurement", "definition", "atlas_id", "target", "result"}`` or ``…"error"}``."""
    reader = _Reader(store, atlas, vault)
    for item in job_measurements(store, job):
        for source in _sources(item):
            head = _encode(source.place)[:-1]
            problem = reader.read(source, _wrapped(take, head + b',"result":', b"}\n"))
            if problem:
                take(head + b',"error":' + _encode(problem) + b"}\n")
    return Read(reader.results, reader.errors)


def write_merged(store: JobStore, atlas: Atlas, vault: Vault, job: StoredJob, take: Take) -> Read:
    """Write a line for each target: ``{"target", "measurements": […], "results": […RIPE's objects…], "errors": […]}``.

    Targets that differ only in case or in a last dot are one. ``take`` gets pieces of lines.
    """
    reader = _Reader(store, atlas, vault)
    for sources in _by_target(store, job).values():
        places = [source.place for source in sources if source.atlas_id is not None]
        take(_encode({"target": sources[0].target, "measurements": places})[:-1] + b',"results":[')
        comma, errors = _Comma(take), list[dict[str, int | str | None]]()
        for source in sources:
            if problem := reader.read(source, comma):
                errors.append(source.place | {"error": problem})
        take(b'],"errors":' + _encode(errors) + b"}\n")
    return Read(reader.results, reader.errors)


class _Reader:
    """Asks RIPE for one definition after the other, until RIPE asks for a pause or no longer answers."""

    def __init__(self, store: JobStore, atlas: Atlas, vault: Vault) -> None:
        self._store, self._atlas, self._vault = store, atlas, vault
        self._lost = 0
        self._over = ""
        self.results = self.errors = 0

    def read(self, source: _Source, take: Take) -> str:
        """Pass the results to ``take``. Return what is wrong with them, or an empty text."""

        def counted(line: bytes) -> None:
            take(line)
            self.results += 1

        problem = source.problem or self._over or self._ask(source, counted)
        self.errors += bool(problem)
        return problem

    def _ask(self, source: _Source, take: Take) -> str:
        assert source.atlas_id is not None
        secret = secret_to_read(self._store, self._vault, source.account, prefer=source.key)
        answer = self._atlas.results(secret, source.atlas_id, take, bytes_max=BYTES_MAX)
        match answer:
            case Delivered():
                self._lost = 0
                return _delivered_problem(source, answer)
            case Refused():
                if answer.scope == "global":
                    self._over = f"not asked, because RIPE said before: {answer.reason}"
                hint = "" if secret else "; its account has no key that can be used"
                return f"{answer.reason}{hint}"
            case Lost():
                self._lost += 1
                if self._lost >= LOST_MAX:
                    self._over = f"not asked, because RIPE did not answer before: {answer.reason}"
                return f"not all of it was read: {answer.reason}"
            case _:
                assert_never(answer)


class _Comma:
    """Puts a comma between one result and the next."""

    def __init__(self, take: Take) -> None:
        self._take = take
        self._between = b""

    def __call__(self, line: bytes) -> None:
        self._take(self._between + line)
        self._between = b","


def _wrapped(take: Take, head: bytes, tail: bytes) -> Take:
    return lambda line: take(head + line + tail)


def _delivered_problem(source: _Source, delivered: Delivered) -> str:
    if not delivered.whole:
        return f"there is more than {BYTES_MAX} bytes of it; read the rest at RIPE"
    if delivered.results:
        return ""
    return "RIPE has no results of it" if source.ended else "RIPE has no results of it yet"


def _sources(item: StoredMeasurement) -> Iterator[_Source]:
    definitions = item.measurement.definitions
    if not item.atlas:
        words = _UNSENT.get(item.state, "it has no results")
        problem = f"{words}: {item.reason}" if item.reason else words
        for number, definition in enumerate(definitions):
            yield _Source(item.index, number, definition.target, problem=problem)
        return
    ended = item.ended_ms is not None
    for number, (definition, atlas) in enumerate(zip(definitions, item.atlas, strict=True)):
        yield _Source(item.index, number, definition.target, atlas.atlas_id, item.account or "", item.key, ended)


def _by_target(store: JobStore, job: StoredJob) -> dict[str | None, list[_Source]]:
    """Return the definitions of each target, in the order in which the targets first come."""
    found: dict[str | None, list[_Source]] = {}
    for source in _all_sources(job_measurements(store, job)):
        target = None if source.target is None else source.target.lower().rstrip(".")
        found.setdefault(target, []).append(source)
    return found


def _all_sources(items: Iterable[StoredMeasurement]) -> Iterator[_Source]:
    for item in items:
        yield from _sources(item)
