"""Providers as they are declared: what is refused by its field, and the policy that follows from it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.batches.provider import (
    HEADERS_MAX,
    ProviderSpec,
    keep_hidden,
    known_policy,
    method_of,
    parse_provider,
    parse_stored_provider,
    policy_of,
    provider_document,
    rate_gap_us,
)
from paceline.core.batches.records.options import RecordOptions, keep_hidden_options
from paceline.core.ids import stable_fraction
from paceline.errors import InvalidInput

BASE: dict[str, Any] = {"base_url": "https://shop.example/v1"}


@pytest.mark.parametrize(
    ("document", "wrong"),
    [
        ({}, ["/base_url"]),
        (BASE | {"base_url": "https://shop.example/?q=1"}, ["/base_url"]),
        (BASE | {"base_url": "https://shop.example/#a"}, ["/base_url"]),
        (BASE | {"rate": "fast"}, ["/rate"]),
        (BASE | {"rate": "0/1s"}, ["/rate"]),
        (BASE | {"rate": "5/25h"}, ["/rate"]),
        (BASE | {"rate": "5/0s"}, ["/rate"]),
        (BASE | {"max_in_flight": 0, "retry": {"max_attempts": 0}}, ["/max_in_flight", "/retry/max_attempts"]),
        (BASE | {"breaker": {"failures": 0, "open_for": "0s"}}, ["/breaker/failures", "/breaker/open_for"]),
        (BASE | {"timeout": "11m", "retry": {"base": "x", "cap": "2d"}}, ["/timeout", "/retry/base", "/retry/cap"]),
        (BASE | {"headers": {"Idempotency-Key": "x", "X Y": "z"}}, ["/headers/Idempotency-Key", "/headers/X Y"]),
        (BASE | {"headers": {"X": "{nothing}"}}, ["/headers/X"]),
        (BASE | {"headers": {f"X-{number}": "y" for number in range(HEADERS_MAX + 1)}}, ["/headers"]),
        (BASE | {"unknown": "look_up"}, ["/look_up"]),
        (BASE | {"look_up": "calls/{run}"}, ["/look_up"]),
        (BASE | {"look_up": "/calls"}, ["/look_up"]),
        (BASE | {"look_up": "/calls/{run} x"}, ["/look_up"]),
        (BASE | {"expect": {"done": [404], "failed": [404]}}, ["/expect/failed/0"]),
        (BASE | {"expect": {"done": list(range(400, 500)) * 2}}, ["/expect/done"]),
        (BASE | {"kind": "outgoing", "headers": {"X": "y"}}, ["/base_url", "/headers"]),
        ({"kind": "outgoing", "unknown": "look_up"}, ["/unknown"]),
    ],
)
def test_invalid_provider_is_refused_by_its_fields(document: dict[str, Any], wrong: list[str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_provider(json.dumps(document).encode(), pointer="/provider")
    assert [problem.pointer for problem in caught.value.errors] == [f"/provider{pointer}" for pointer in wrong]


@pytest.mark.parametrize(
    "document",
    [
        BASE | {"rate": "5/1s", "look_up": "/calls/{run}", "unknown": "look_up"},
        BASE | {"headers": {"X-Day": "{date}"}, "method": "PUT", "order": "priority"},
        {"kind": "outgoing", "max_in_flight": 5},
    ],
)
def test_stored_provider_comes_back_as_it_was_declared(document: dict[str, Any]) -> None:
    spec = parse_provider(json.dumps(document).encode())
    assert parse_stored_provider(msgspec.json.encode(spec)) == spec


def test_policy_has_the_figures_of_the_definition() -> None:
    spec = parse_provider(json.dumps(BASE | {"rate": "3/1s", "timeout": "2s", "retry": {"base": "1s"}}).encode())
    policy = policy_of(spec)
    assert (policy.rate_gap_us, policy.timeout_ms, policy.retry_base_ms, policy.max_in_flight) == (
        333_334,
        2_000,
        1_000,
        1,
    )
    assert policy_of(ProviderSpec(kind="outgoing")).timeout_ms == 0
    assert policy_of(ProviderSpec("https://a")).rate_gap_us == 0
    known = known_policy("shop", 7, msgspec.json.encode(spec))
    assert known == (7, policy, stable_fraction("shop"))


@given(calls=st.integers(1, 1_000), seconds=st.integers(1, 3_600))
def test_gap_of_a_rate_never_lets_more_calls_through_than_it_allows(calls: int, seconds: int) -> None:
    gap_us = rate_gap_us(f"{calls}/{seconds}s")
    assert gap_us * calls >= seconds * 1_000_000
    assert (gap_us - 1) * calls < seconds * 1_000_000


def test_method_is_the_providers_else_it_depends_on_the_body() -> None:
    assert method_of(ProviderSpec("https://a"), has_body=True) == "POST"
    assert method_of(ProviderSpec("https://a"), has_body=False) == "GET"
    assert method_of(ProviderSpec("https://a", method="PATCH"), has_body=False) == "PATCH"


def test_promise_12_provider_is_shown_without_its_headers_values_which_stay_when_it_is_put_back() -> None:
    stored = ProviderSpec("https://a", headers={"Authorization": "s3cret", "X": "1"})
    shown = provider_document(stored)
    assert "s3cret" not in json.dumps(shown)
    put = parse_provider(json.dumps(shown | {"headers": shown["headers"] | {"X": "2"}}).encode())
    assert keep_hidden(put, stored).headers == {"Authorization": "s3cret", "X": "2"}


def test_masked_header_that_was_never_stored_needs_its_value() -> None:
    for stored in (None, ProviderSpec("https://a", headers={"Y": "1"})):
        with pytest.raises(InvalidInput) as caught:
            keep_hidden(ProviderSpec("https://a", headers={"X": "***"}), stored)
        assert [problem.pointer for problem in caught.value.errors] == ["/headers/X"]


def test_records_masked_headers_keep_their_stored_values() -> None:
    put = RecordOptions(headers={"X": "***", "Y": "2"}, priority=5)
    kept = keep_hidden_options(put, RecordOptions(headers={"X": "1"}))
    assert kept == RecordOptions(headers={"X": "1", "Y": "2"}, priority=5)
