"""Results under Paceline's ids, read from RIPE while the answer is sent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain

from paceline.core.jobs.compatible.measurements import number_in, parse_number, parse_result_filter, result_translator
from paceline.errors import AtlasUnavailable, NotFound
from paceline.ports import Atlas
from paceline.shells.api.atlas_reads import AtlasPages
from paceline.shells.api.http.answers import Stream, stream_answer
from paceline.shells.ripe_api.call import CompatibleCall, wait_for_place
from paceline.steps.jobs import compatible
from paceline.steps.jobs.compatible import FoundMeasurement

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
LATEST_BYTES_MAX = 67_108_864
VERSIONS_MAX = 10

Take = Callable[[bytes], None]
Translate = Callable[[bytes], tuple[int, bytes] | None]


async def stream(call: CompatibleCall) -> Stream:
    """Streams all results, in RIPE's order."""
    found, translate = await _question(call)
    writer = _ResultWriter(lines=call.query.get("format") == "txt")

    def work(atlas: Atlas, take: Take) -> None:
        writer.begin(take)

        def each(line: bytes) -> None:
            if (result := translate(line)) is not None:
                writer.write(result[1])

        _read(call, atlas, found, each)
        writer.end()

    return await _streamed(call, found, work, writer)


async def latest(call: CompatibleCall) -> Stream:
    """Streams the newest result of each probe, or the newest few."""
    found, translate = await _question(call)
    writer = _ResultWriter(lines=call.query.get("format") == "txt")
    versions = max(1, number_in(call.query, "versions", default=1, most=VERSIONS_MAX))

    def work(atlas: Atlas, take: Take) -> None:
        newest = _Newest(versions)

        def each(line: bytes) -> None:
            if (result := translate(line)) is not None:
                newest.add(*result)

        _read(call, atlas, found, each)
        writer.begin(take)
        for line in newest:
            writer.write(line)
        writer.end()

    return await _streamed(call, found, work, writer)


async def _question(call: CompatibleCall) -> tuple[FoundMeasurement, Translate]:
    if not call.owner_or_nobody:
        raise NotFound("Not found.")
    number = parse_number(call.part, "id")
    found = await call.api.read(compatible.find, call.api.store, call.owner_or_nobody, number)
    return found, result_translator(found.shown, parse_result_filter(call.query, now_ms=call.api.now_ms()))


def _read(call: CompatibleCall, atlas: Atlas, found: FoundMeasurement, take: Take) -> None:
    system = call.api.system
    unread = compatible.read_results(system.store, atlas, system.vault, found, take)
    if unread is not None:
        raise AtlasUnavailable(f"Not all results could be read from RIPE: {unread.reason}")


async def _streamed(
    call: CompatibleCall, found: FoundMeasurement, work: Callable[[Atlas, Take], None], writer: _ResultWriter
) -> Stream:
    """Returns the answer once its first page is there: if RIPE does not answer, the status can still say so."""

    async def begin() -> AtlasPages:
        return call.api.reads.stream(found.stored.owner, work)

    pages = await wait_for_place(begin)
    threads = call.api.reads.threads
    try:
        first = await asyncio.get_running_loop().run_in_executor(threads, next, pages, b"")
    except BaseException:
        pages.close()
        raise
    return stream_answer(chain([first], pages), writer.media, threads=threads, close=pages.close)


class _ResultWriter:
    """Writes results as a JSON list, or one per line."""

    def __init__(self, *, lines: bool) -> None:
        self.media = TEXT if lines else JSON
        self._lines = lines
        self._take: Take = _nowhere
        self._before = b"["

    def begin(self, take: Take) -> None:
        self._take = take

    def write(self, result: bytes) -> None:
        if self._lines:
            self._take(result + b"\n")
        else:
            self._take(self._before + result)
            self._before = b","

    def end(self) -> None:
        if not self._lines:
            self._take(b"[]" if self._before == b"[" else b"]")


class _Newest:
    """The newest results of each probe, in order of the probe's number. RIPE sends results oldest first."""

    def __init__(self, versions: int) -> None:
        self._versions = versions
        self._by_probe: dict[int, deque[bytes]] = {}
        self._bytes = 0

    def add(self, probe: int, line: bytes) -> None:
        kept = self._by_probe.setdefault(probe, deque())
        kept.append(line)
        self._bytes += len(line)
        if len(kept) > self._versions:
            self._bytes -= len(kept.popleft())
        if self._bytes > LATEST_BYTES_MAX:
            raise AtlasUnavailable(f"The newest results are more than {LATEST_BYTES_MAX} bytes; ask for fewer probes.")

    def __iter__(self) -> Iterator[bytes]:
        for probe in sorted(self._by_probe):
            yield from self._by_probe[probe]


def _nowhere(_: bytes) -> None:
    raise AssertionError("written before it has begun")
