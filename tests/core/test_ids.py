from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.ids import (
    ID_CHARS_MAX,
    call_run_id,
    entry_key,
    id_problem,
    parse_call_run_id,
    parse_run_id,
    run_id,
    stable_fraction,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
tricky = st.text("1-2/3#@%.:+", min_size=1, max_size=6)
parts = st.one_of(texts, tricky)
numbers = st.integers(0, 10**18 - 1)


@given(one=st.tuples(parts, parts), other=st.tuples(parts, parts))
def test_promise_5_keys_never_collide(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (entry_key(*one) == entry_key(*other)) == (one == other)


@given(owner=parts, monitor=parts, generation=numbers, counter=numbers)
def test_promise_5_a_run_id_can_be_taken_apart_again(owner: str, monitor: str, generation: int, counter: int) -> None:
    name = run_id(owner, monitor, generation=generation, counter=counter)
    assert parse_run_id(name) == (owner, monitor, generation, counter)


@given(text=st.one_of(st.text(max_size=60), st.from_regex(r"[^/#]+/[^/#]+#[0-9]{1,20}@[0-9]{1,20}", fullmatch=True)))
def test_parsed_run_ids_are_exactly_those_that_run_id_makes(text: str) -> None:
    name = parse_run_id(text)
    if name is not None:
        assert run_id(name.owner, name.monitor, generation=name.generation, counter=name.counter) == text


def test_promise_5_owner_and_id_pairs_that_join_alike_have_different_keys() -> None:
    keys = {
        entry_key(*pair)
        for pair in [("1", "2-3"), ("1-2", "3"), ("1-a", "b"), ("1", "a-b"), ("1/2", "3"), ("1", "2/3")]
    }
    assert len(keys) == 6


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a/b",
        "a/b#1",
        "a/b#1@",
        "a/b#01@1",
        "a/b#1@01",
        "a/b#1@1 ",
        "a/b#-1@1",
        "a/b#1@1\n",
        "/b#1@1",
        "a/#1@1",
        "a/b/c#1@1",
        "a%2fb/c#1@1",
        "a/b#1@1@1",
        "a/b#\u0661@1",
        "%ff/b#1@1",
        f"a/b#{'9' * 19}@1",
        "\ud800/b#1@1",
    ],
)
def test_a_text_that_is_no_run_id_is_not_taken_for_one(text: str) -> None:
    assert parse_run_id(text) is None


@pytest.mark.parametrize("text", ["a", "A9", "1-a", "user.name@host", "x" * ID_CHARS_MAX, "a:b+c=d~e_f"])
def test_valid_id_has_no_problem(text: str) -> None:
    assert id_problem(text, "/id") is None


@pytest.mark.parametrize(
    "text", ["", "-a", ".a", "a b", "a/b", "a\n", "ä", "a\x00", "x" * (ID_CHARS_MAX + 1), "../a", "a#b"]
)
def test_invalid_id_is_reported_with_its_pointer(text: str) -> None:
    problem = id_problem(text, "/items/3/id")
    assert problem is not None
    assert problem.pointer == "/items/3/id"


@given(name=st.text())
def test_a_stable_fraction_is_stable_and_below_one(name: str) -> None:
    assert 0 <= stable_fraction(name) < 1
    assert stable_fraction(name) == stable_fraction(name)


def test_stable_fractions_are_spread_evenly() -> None:
    tenths = [0] * 10
    for number in range(10_000):
        tenths[int(stable_fraction(f"jitter:{number}") * 10)] += 1
    assert all(880 < count < 1_120 for count in tenths)


@given(st.text(min_size=1), st.text(min_size=1))
def test_the_id_of_a_batchs_run_escapes_its_parts_as_an_entrys_key_does(batch: str, record: str) -> None:
    assert call_run_id(batch, record, "2026-09-21") == f"{entry_key(batch, record)}@2026-09-21"


@given(st.from_regex(r"[a:@+=~%/-]{1,6}", fullmatch=True), st.from_regex(r"[a:@+=~%/-]{1,6}", fullmatch=True))
def test_the_id_of_a_batchs_run_can_be_taken_apart(batch: str, record: str) -> None:
    text = call_run_id(batch, record, "2026-09-21")
    assert text == f"{entry_key(batch, record)}@2026-09-21"
    assert parse_call_run_id(text) == (batch, record, "2026-09-21")


@pytest.mark.parametrize(
    "text",
    ["", "a/b", "a/b@2026-09", "a/b@2026-09-21~0", "a/b/c@2026-09-21", "%61/b@2026-09-21", "a/b@2026-09-2\u0661"],
)
def test_text_that_is_no_id_of_a_batchs_run_is_not_taken_for_one(text: str) -> None:
    assert parse_call_run_id(text) is None


def test_id_of_a_rerun_keeps_the_number_of_the_rerun() -> None:
    assert parse_call_run_id("daily/r1@2026-09-21~12") == ("daily", "r1", "2026-09-21~12")
