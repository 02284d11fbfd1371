"""What parsing refuses, whatever the value is for."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.parsing import decode, line_problem, repeated_name
from paceline.errors import InvalidInput, MalformedBody

ANY = msgspec.json.Decoder(Any)
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(documents)
def test_json_with_distinct_names_is_taken(document: Any) -> None:
    assert repeated_name(json.dumps(document).encode()) is None


@given(st.lists(st.tuples(st.text(max_size=2), documents), min_size=1, max_size=4), st.integers(0, 3))
def test_name_given_twice_is_found_however_the_rest_looks(members: list[tuple[str, Any]], again: int) -> None:
    parts = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in members]
    body = "[1, {" + ", ".join([*parts, parts[again % len(parts)]]) + "}]"
    assert repeated_name(body.encode()) is not None


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (b'{"a": 1, "a": 1}', "/a"),
        (b'{"a": 1, "\\u0061": 2}', "/a"),
        (b'{"check": {"url": "x", "kind": "http", "url": "y"}}', "/check/url"),
        (b'[{"a": 1}, {"b": [{"c/d": 1, "c/d": 2}]}]', "/1/b/0/c~1d"),
    ],
)
def test_a_name_given_twice_is_refused_with_its_pointer(body: bytes, pointer: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        decode(ANY, body)
    assert [problem.pointer for problem in caught.value.errors] == [pointer]


def test_a_number_with_thousands_of_digits_is_no_obstacle() -> None:
    assert repeated_name(b'{"a": ' + b"1" * 5_000 + b"}") is None


@pytest.mark.parametrize("text", ["a\nb", "a\tb", "\x1b[2J", "a\x7f", "\x9b1m", "a\u2028b"])
def test_control_characters_are_not_allowed_in_one_line(text: str) -> None:
    problem = line_problem(text, "/tags/0", chars_max=50)
    assert problem is not None
    assert problem.pointer == "/tags/0"


@pytest.mark.parametrize("text", ["web", "größer 東京", "a b", "\U0001f468\u200d\U0001f469"])
def test_ordinary_text_is_one_line(text: str) -> None:
    assert line_problem(text, "/tags/0", chars_max=50) is None


def test_names_of_json_that_is_nested_beyond_the_stack_are_not_looked_at() -> None:
    with pytest.raises(MalformedBody, match="nested too deeply"):
        repeated_name(b'{"a":' * 100_000 + b"1" + b"}" * 100_000)


def test_repeated_name_before_something_nested_beyond_the_stack_is_not_looked_for() -> None:
    with pytest.raises(MalformedBody, match="nested too deeply"):
        repeated_name(b'[{"a":1,"a":2},' + b"[" * 100_000 + b"]" * 100_000 + b"]")
