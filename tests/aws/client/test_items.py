"""Values go to DynamoDB and come back as they were, and no expression meets a reserved word."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.adapters.aws.client.items import (
    DIGITS,
    DynamoKey,
    decode,
    decode_item,
    encode,
    encode_item,
    joined,
    padded,
    query_params,
    setting,
    shard_of,
    update,
)

scalars = st.one_of(
    st.text(max_size=20),
    st.integers(-(2**63), 2**63),
    st.booleans(),
    st.binary(max_size=20),
    st.none(),
    st.floats(-1e15, 1e15, allow_nan=False),
)
values = st.recursive(
    scalars, lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(min_size=1), inner)), max_leaves=10
)


@given(values)
def test_encoded_value_decodes_to_the_same_value_and_type(value: Any) -> None:
    back = decode(encode(value))
    assert back == value
    assert type(back) is type(value)


def test_none_fields_are_left_out_of_an_item() -> None:
    assert decode_item(encode_item({"pk": "a", "sk": "b", "gone": None})) == {"pk": "a", "sk": "b"}


@given(st.lists(st.integers(0, 10**DIGITS - 1), min_size=2))
def test_padded_numbers_sort_as_numbers_do(numbers: list[int]) -> None:
    assert sorted(map(padded, numbers)) == [padded(number) for number in sorted(numbers)]


@given(st.lists(st.text(), max_size=3), st.lists(st.text(), max_size=3))
def test_promise_5_keys_of_several_parts_never_collide(one: list[str], other: list[str]) -> None:
    assert (joined("k", *one) == joined("k", *other)) == (one == other)


def test_shard_of_a_name_never_changes() -> None:
    assert [shard_of(name, 16) for name in ("a", "b", 7, "ann/home")] == [3, 9, 2, 7]


def test_every_name_of_an_expression_is_aliased_and_every_value_typed() -> None:
    action = update(
        "items", DynamoKey("a", "b"), "SET #counter = :next REMOVE #due", when="#counter = :seen", next=2, seen=1
    )
    assert action.params == {
        "Key": {"pk": {"S": "a"}, "sk": {"S": "b"}},
        "UpdateExpression": "SET #counter = :next REMOVE #due",
        "ConditionExpression": "#counter = :seen",
        "ExpressionAttributeNames": {"#counter": "counter", "#due": "due"},
        "ExpressionAttributeValues": {":next": {"N": "2"}, ":seen": {"N": "1"}},
    }


@pytest.mark.parametrize("values", [{}, {"x": 1, "y": 2}], ids=["missing", "left over"])
def test_expression_with_a_missing_or_unused_value_raises(values: dict[str, int]) -> None:
    with pytest.raises(AssertionError):
        query_params(where="#pk = :x", values=values)


def test_update_removes_fields_set_to_none() -> None:
    assert setting({"a": 1, "b": None, "c": ""}) == ("SET #a = :a, #c = :c REMOVE #b", {"a": 1, "c": ""})
