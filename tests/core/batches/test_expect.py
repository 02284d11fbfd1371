"""What statuses mean: exact before class, the record's word before the provider's, and that before the usual."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.batches.batch import RecordSpec, parse_record, record_document
from paceline.core.batches.calls import Call, CallResult, settle_call
from paceline.core.batches.provider import Policy, ProviderSpec, policy_of
from paceline.core.batches.records.expect import ExpectSpec, Meaning, expect_problems, meaning_of
from paceline.core.batches.records.options import call_timeout_ms, options_text, parse_options
from paceline.errors import InvalidInput

PROVIDER = ExpectSpec(done=("2xx", 409), failed=("4xx",), retry=(429, "5xx"))
codes = st.integers(200, 599)
wanted = st.one_of(codes, st.sampled_from(["2xx", "3xx", "4xx", "5xx"]))


def result(code: int) -> CallResult:
    return CallResult(1, 1, 0, 10, 1.0, code=code, reason="" if code < 300 else f"status {code}")


def call(expect: ExpectSpec | None = None) -> Call:
    return Call(1, 1, "b/r@2026-11-15", "POST", "http://example.org/", {}, None, 1_000, expect=expect)


def policy(expect: ExpectSpec | None = None) -> Policy:
    return policy_of(ProviderSpec(base_url="http://example.org", expect=expect))


@pytest.mark.parametrize(
    ("code", "usual", "of_provider"),
    [
        (200, "done", "done"),
        (204, "done", "done"),
        (301, "failed", "failed"),
        (404, "failed", "failed"),
        (409, "failed", "done"),
        (429, "retry", "retry"),
        (500, "retry", "retry"),
        (503, "retry", "retry"),
    ],
)
def test_statuses_have_their_default_meaning_unless_a_provider_declares_another(
    code: int, usual: Meaning, of_provider: Meaning
) -> None:
    assert meaning_of(code) == meaning_of(code, None, None) == usual
    assert meaning_of(code, None, PROVIDER) == of_provider


def test_record_comes_before_its_provider_and_a_status_before_its_class() -> None:
    record = ExpectSpec(retry=("4xx",), done=(404,))
    assert meaning_of(404, record, PROVIDER) == "done"
    assert meaning_of(409, record, PROVIDER) == "retry"  # the record's class comes before the provider's status
    assert meaning_of(500, record, ExpectSpec(failed=(500,))) == "failed"
    assert meaning_of(429, ExpectSpec(failed=("4xx",))) == "failed"


@given(codes, st.permutations([200, 409, "4xx", "5xx", 503]), st.integers(0, 5), st.integers(0, 5))
def test_each_status_has_its_declared_meaning_or_the_default_one(
    code: int, named: list[int | str], first: int, second: int
) -> None:
    low, high = sorted((first, second))
    expect = ExpectSpec(tuple(named[:low]), tuple(named[low:high]), tuple(named[high:]))
    assert expect_problems(expect) == []
    for meaning in ("done", "failed", "retry"):
        if code in getattr(expect, meaning):
            assert meaning_of(code, expect) == meaning
    if code not in named and f"{code // 100}xx" not in named:
        assert meaning_of(code, expect) == meaning_of(code)


def test_expect_problems_point_to_the_item_of_the_list() -> None:
    expect = ExpectSpec(done=("2xx", 409), failed=(99, "6xx"), retry=("2xx", 409, "409"))
    assert [(problem.pointer, "too" in problem.detail) for problem in expect_problems(expect)] == [
        ("/expect/failed/0", False),
        ("/expect/failed/1", False),
        ("/expect/retry/0", True),
        ("/expect/retry/1", True),
        ("/expect/retry/2", False),
    ]


def test_settlement_follows_the_expect_lists_of_record_and_provider() -> None:
    assert settle_call(call(), result(409), policy(PROVIDER), chance=0.5).state == "done"
    refused = settle_call(call(ExpectSpec(failed=(202,))), result(202), policy(PROVIDER), chance=0.5)
    assert (refused.state, refused.reason, refused.verdict) == ("failed", "status 202", "good")
    again = settle_call(call(ExpectSpec(retry=("2xx",))), result(202), policy(), chance=0.5)
    assert (again.state, again.reason, again.verdict) == ("retry", "status 202", "bad")
    looks_up = msgspec.structs.replace(call(ExpectSpec(failed=("2xx",))), looks_up=True)
    assert settle_call(looks_up, result(200), policy(PROVIDER), chance=0.5).state == "done"
    fault = msgspec.structs.replace(result(500), code=None, fault="refused", reason="refused")
    assert settle_call(call(ExpectSpec(retry=("5xx",))), fault, policy(), chance=0.5).state == "failed"


def test_record_may_have_its_own_method_timeout_headers_and_expect() -> None:
    body = b"""{"id": "r", "provider": "p", "method": "DELETE", "timeout": "2s", "headers": {"X-A": "{run}"},
                "expect": {"done": [404]}}"""
    record = parse_record(body)
    assert parse_options(options_text(record.options)) == record.options
    assert call_timeout_ms(options_text(record.options), policy()) == 2_000
    assert call_timeout_ms(None, policy()) == 30_000
    shown = record_document(record)
    assert (shown["method"], shown["timeout"], shown["headers"]) == ("DELETE", "2s", {"X-A": "***"})
    assert list(shown["expect"]["done"]) == [404]
    assert "method" not in record_document(RecordSpec("r", "p"))


@pytest.mark.parametrize(
    ("given_", "pointer"),
    [
        ('"method": "SING"', "/method"),
        ('"timeout": "99ms"', "/timeout"),
        ('"timeout": "soon"', "/timeout"),
        ('"headers": {"X-A": "a\\nb"}', "/headers/X-A"),
        ('"headers": {"Idempotency-Key": "mine"}', "/headers/Idempotency-Key"),
        ('"headers": {"X-A": "{what}"}', "/headers/X-A"),
        ('"expect": {"done": [7]}', "/expect/done/0"),
        ('"expect": {"good": [200]}', "/expect/good"),
    ],
)
def test_wrong_option_of_a_record_is_refused_by_its_field(given_: str, pointer: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_record(f'{{"id": "r", "provider": "p", {given_}}}'.encode())
    assert [problem.pointer for problem in refused.value.errors] == [pointer]
