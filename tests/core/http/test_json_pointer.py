from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.http.json_pointer import MISSING, look_up, pointer_problem, same
from paceline.core.parsing import escape_pointer

# The examples of RFC 6901, section 5.
DOCUMENT = {"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, 'k"l': 6, " ": 7, "m~n": 8}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("", DOCUMENT),
        ("/foo", ["bar", "baz"]),
        ("/foo/0", "bar"),
        ("/", 0),
        ("/a~1b", 1),
        ("/c%d", 2),
        ("/ ", 7),
        ("/m~0n", 8),
        ("/foo/2", MISSING),
        ("/foo/-", MISSING),
        ("/foo/00", MISSING),
        ("/foo/0/0", MISSING),
        ("/nothing/at/all", MISSING),
    ],
)
def test_pointer_finds_the_values_of_the_rfc_examples(pointer: str, value: Any) -> None:
    assert pointer_problem(pointer) is None
    assert look_up(DOCUMENT, pointer) == value


@pytest.mark.parametrize("pointer", ["foo", "#/foo", "/a~", "/a~2", "x" * 2_000])
def test_text_that_is_no_pointer_is_refused(pointer: str) -> None:
    assert pointer_problem(pointer)


@given(st.dictionaries(st.text(max_size=5), json_values, min_size=1, max_size=4), st.data())
def test_pointer_made_of_a_name_finds_its_value(document: dict[str, Any], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(document)))
    assert look_up(document, f"/{escape_pointer(name)}") is document[name]


@given(json_values, json_values)
def test_same_json_values_are_those_with_the_same_text(one: Any, other: Any) -> None:
    assert same(one, one)
    assert same(one, other) == same(other, one)


@pytest.mark.parametrize(
    ("one", "other", "are_same"),
    [(1, 1.0, True), (True, 1, False), (0, False, False), (None, 0, False), ("1", 1, False), ([1], [True], False)],
)
def test_json_kinds_are_distinguished(one: Any, other: Any, are_same: bool) -> None:  # noqa: FBT001 - a parameter
    assert same(one, other) is are_same
    assert same({"a": [one]}, {"a": [other]}) is are_same
