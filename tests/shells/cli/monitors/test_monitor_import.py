"""``paceline monitor import``: large files, and what is refused."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.shells.cli.monitors import items as monitor_items
from paceline.shells.cli.monitors.items import Broken, Item, read_items
from tests.shells.cli.support.program import Program


def monitor(name: str, every: str = "1h") -> dict[str, object]:
    return {"id": name, "check": {"kind": "http", "url": f"https://example.org/{name}"}, "every": every}


@pytest.fixture
def alice(program: Program) -> Program:
    program.ok("user", "add", "alice")
    return program


def test_the_three_forms_of_a_file_mean_the_same(alice: Program) -> None:
    monitors = [monitor(f"m{number}") for number in range(2_500)]
    Path(alice.folder, "array.json").write_text(json.dumps(monitors, indent=2))
    Path(alice.folder, "items.json").write_text(json.dumps({"items": monitors}))
    lines = "\n".join(json.dumps(item) for item in monitors)

    first = alice.json("monitor", "import", "array.json")
    assert first == {"created": 2_500, "replaced": 0, "unchanged": 0, "refused": 0, "refusals": []}
    assert alice.json("monitor", "import", "items.json")["unchanged"] == 2_500
    assert alice.ok("monitor", "import", "-", stdin=lines).startswith("0 created, 0 replaced, 2500 unchanged")
    assert alice.json("status")["entries"] == 2_500


def test_import_keeps_good_lines_and_names_bad_lines(alice: Program) -> None:
    lines = [
        json.dumps(monitor("good")),
        "",
        '{"id": "cut", "check":',
        json.dumps(monitor("often", every="1ms")),
        json.dumps({"check": {"kind": "http", "url": "https://example.org/"}, "every": "1h"}),
        json.dumps(monitor("a b")),
        "[]",
        json.dumps(monitor("also-good")),
    ]
    ended = alice.run("monitor", "import", "-", "--json", stdin="\n".join(lines))
    assert ended.code == 1
    assert (ended.document["created"], ended.document["refused"]) == (2, 5)
    assert [(refusal["line"], refusal["id"], refusal["code"]) for refusal in ended.document["refusals"]] == [
        (3, None, "malformed_body"),
        (4, "often", "invalid_input"),
        (5, None, "invalid_input"),
        (6, "a b", "invalid_input"),
        (7, None, "invalid_input"),
    ]
    told = alice.run("monitor", "import", "-", stdin="\n".join(lines))
    assert "line 4 (often): /every: must be from 1s" in told.err
    assert told.out == "0 created, 0 replaced, 2 unchanged, 5 refused\n"


def test_import_groups_refused_lines_by_reason_and_the_commonest_comes_first(alice: Program) -> None:
    lines = [json.dumps(monitor("good")), json.dumps(monitor("a b")), '{"id": "cut"', '{"id": "also-cut"']
    lines += [json.dumps(monitor(f"often-{number}", every="1ms")) for number in range(7)]
    ended = alice.run("monitor", "import", "-", stdin="\n".join(lines))
    often, broken, name = ended.err.splitlines()
    assert often.startswith("7 lines (5, 6, 7, 8, 9, …): /every: must be from 1s")
    assert broken.startswith("2 lines (3, 4): ")
    assert name.startswith("line 2 (a b): /id: ")
    assert ended.out == "1 created, 0 replaced, 0 unchanged, 10 refused\n"


def test_import_of_many_reasons_counts_those_that_are_not_shown(alice: Program) -> None:
    lines = [json.dumps(monitor(f"m{number}") | {"x" * (number + 1): 1}) for number in range(23)]
    ended = alice.run("monitor", "import", "-", stdin="\n".join(lines))
    told = ended.err.splitlines()
    assert (len(told), told[-1]) == (21, "and 3 more refused for other reasons")


def test_import_of_a_truncated_array_keeps_the_monitors_before_the_end(alice: Program) -> None:
    text = f"[\n{json.dumps(monitor('one'))},\n{json.dumps(monitor('two'))},\n oops]"
    ended = alice.run("monitor", "import", "-", stdin=text)
    assert ended.code == 1
    assert "line 4: Not valid JSON" in ended.err
    assert ended.out.startswith("2 created")


def test_import_refused_only_by_limits_exits_with_4(alice: Program) -> None:
    lines = "\n".join(json.dumps(monitor(name)) for name in "abc")
    ended = alice.run("monitor", "import", "-", "--json", stdin=lines, monitors_max="2")
    assert ended.code == 4
    assert [(refusal["line"], refusal["code"]) for refusal in ended.document["refusals"]] == [(3, "limit_reached")]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
objects = st.lists(st.dictionaries(st.text(max_size=5), values, max_size=4), max_size=6)


@given(objects=objects, indent=st.sampled_from([None, 0, 2]), wrapped=st.booleans(), chunk=st.integers(1, 60))
def test_an_array_is_read_whole_wherever_its_pieces_end(
    objects: list[object], *, indent: int | None, wrapped: bool, chunk: int
) -> None:
    text = json.dumps({"items": objects} if wrapped else objects, indent=indent, ensure_ascii=False)
    read = read_in_pieces(text.encode("utf-8", "surrogatepass"), chunk)
    assert [json.loads(item.body.decode("utf-8", "surrogatepass")) for item in read] == objects
    if indent is not None:
        lines = text.split("\n")
        assert all(lines[item.line - 1].lstrip().startswith("{") for item in read)


@given(objects=objects, chunk=st.integers(1, 60), end=st.sampled_from(["", "\n", "\r\n\r\n"]))
def test_lines_are_read_whole_wherever_their_pieces_end(objects: list[object], chunk: int, end: str) -> None:
    text = "\n".join(json.dumps(item) for item in [{"first": 1}, *objects]) + end
    read = read_in_pieces(text.encode(), chunk)
    assert [(item.line, json.loads(item.body)) for item in read] == list(enumerate([{"first": 1}, *objects], start=1))


def read_in_pieces(body: bytes, chunk: int) -> list[Item]:
    read = list(read_items(io.BytesIO(body), chunk_chars=chunk))
    assert not any(isinstance(item, Broken) for item in read), read
    return [item for item in read if isinstance(item, Item)]


@pytest.mark.parametrize("body", [b"[" * 100_000, b'["' + b"x" * (monitor_items.ITEM_BYTES_MAX + 200_000)])
def test_a_hostile_file_is_refused_without_being_read_to_its_end(body: bytes) -> None:
    *_, last = read_items(io.BufferedReader(_Endless(body)))
    assert isinstance(last, Broken)


class _Endless(io.RawIOBase):
    """The given bytes, then more of the last one for ever."""

    def __init__(self, body: bytes) -> None:
        self._body = io.BytesIO(body)
        self._last = body[-1:]

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._body.read(size) or self._last * size

    def readinto(self, buffer: Any) -> int:
        piece = self.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)
