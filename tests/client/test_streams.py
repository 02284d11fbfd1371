"""Lines of JSON both ways: in bounded memory, with progress, and with an error when they break off."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pandas as pd
import pytest

from paceline_client import AsyncClient, Client, NoAnswer, Throttled
from paceline_client.lines import CHUNK_BYTES, Lines, LineSplitter
from paceline_client.models.batches import RecordDocument
from tests.client.support.both import Connect
from tests.client.support.scripted import Say, ScriptedServer, problem
from tests.shells.api.conftest import World

LINES = [
    {"measurement": 0, "definition": 0, "atlas_id": 7, "target": "192.0.2.1", "result": {"avg": 1.5, "prb_id": number}}
    for number in range(3)
] + [{"measurement": 1, "definition": 0, "atlas_id": None, "target": None, "error": "it is not sent yet"}]


def records(count: int) -> Iterator[RecordDocument]:
    for number in range(count):
        yield {"id": f"r{number}", "provider": "shop", "body": {"text": "x" * 100}}


def ndjson(*documents: Any) -> Say:
    return Say(200, raw=b"".join(json.dumps(one).encode() + b"\n" for one in documents))


@pytest.fixture
def shop(admin: Any) -> Any:
    admin.providers.put("shop", base_url="https://api.example.org/v2")
    admin.batches.put("nightly")
    return admin


def test_records_of_a_generator_are_loaded_with_progress(shop: Any) -> None:
    told: list[int] = []
    put = shop.records.load("nightly", records(5_000), progress=told.append)
    assert (put.created, put.refused, put.refusals) == (5_000, 0, ())
    assert told == sorted(told)
    assert told[-1] == 5_000
    assert len(told) > 5
    assert shop.records.list("nightly", limit=2).to_list()[1].body == {"text": "x" * 100}


def test_refused_lines_are_named(shop: Any) -> None:
    put = shop.records.load("nightly", [{"id": "good", "provider": "shop"}, {"id": "bad", "provider": "nobody"}])
    assert (put.created, put.refused) == (1, 1)
    assert (put.refusals[0].line, put.refusals[0].id) == (2, "bad")


def test_async_source_is_loaded_by_the_async_client_and_refused_by_the_other(world: World) -> None:
    async def source() -> AsyncIterator[RecordDocument]:
        for record in records(10):
            await asyncio.sleep(0)
            yield record

    url, token = f"http://127.0.0.1:{world.port}", str(world.add("root", "admin").token)
    with Client(url, token) as client:
        client.providers.put("shop", base_url="https://api.example.org/v2")
        client.batches.put("nightly")
        with pytest.raises(TypeError, match="AsyncClient"):
            client.records.load("nightly", source())

    async def load() -> int:
        async with AsyncClient(url, token) as client:
            return (await client.records.load("nightly", source())).created

    assert asyncio.run(load()) == 10


def test_lines_are_encoded_in_bounded_memory() -> None:
    tracemalloc.start()
    try:
        total = sum(map(len, Lines(records(100_000)).chunks()))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert total > 10_000_000
    assert peak < 10 * CHUNK_BYTES


def test_results_are_read_as_lines(connect: Connect) -> None:
    with ScriptedServer([ndjson(*LINES)]) as server:
        found = connect(server.url, "t").jobs.open("j1").results().to_list()
    assert [one.result and one.result["prb_id"] for one in found] == [0, 1, 2, None]
    assert found[3].error == "it is not sent yet"


def test_results_become_a_data_frame_with_a_column_for_each_field(connect: Connect) -> None:
    with ScriptedServer([ndjson(*LINES)]) as server:
        frame = connect(server.url, "t").jobs.open("j1").results().to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert list(frame["result.prb_id"].dropna()) == [0, 1, 2]
    assert frame["error"].iloc[3] == "it is not sent yet"


def test_list_becomes_a_data_frame_with_times_and_durations(alice: Any) -> None:
    alice.monitors.put("home", check={"kind": "outgoing"}, every="60s")
    frame = alice.monitors.list().to_pandas()
    assert list(frame["id"]) == ["home"]
    assert frame["created_at"].iloc[0].tzinfo is not None
    assert frame["every"].iloc[0] == pd.Timedelta(seconds=60)
    assert frame["schedule.counter"].iloc[0] == 0


def test_stream_that_breaks_off_raises_after_the_lines_that_came(connect: Connect) -> None:
    whole = ndjson(*LINES)
    assert whole.raw is not None
    cut = whole._replace(cut=whole.raw.index(b'"prb_id": 2'))
    with ScriptedServer([cut]) as server:
        found = []
        with pytest.raises(NoAnswer, match="broke off"):  # noqa: PT012  what came before counts too
            for one in connect(server.url, "t").jobs.results("j1"):
                found.append(one)  # noqa: PERF402
    assert [one.result["prb_id"] for one in found] == [0, 1]


def test_stream_that_is_refused_raises_the_problem(connect: Connect) -> None:
    refusal = problem(429, "throttled")._replace(headers={"retry-after": "3600"})
    with ScriptedServer([refusal]) as server, pytest.raises(Throttled):
        connect(server.url, "t").jobs.results_by_target("j1").to_list()


def test_lines_are_found_wherever_the_pieces_are_cut() -> None:
    body = b'{"a":1}\n\n{"b":2}\n{"c":3}'
    for size in range(1, len(body) + 1):
        splitter = LineSplitter()
        found = [line for at in range(0, len(body), size) for line in splitter.feed(body[at : at + size])]
        assert found + splitter.end() == [b'{"a":1}', b'{"b":2}', b'{"c":3}']
