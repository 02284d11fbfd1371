from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.http.patterns import PATTERN_CHARS_MAX, finds, pattern_problem

WIDE_BYTES = 65_536


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(a", "missing ): (a (at character 1)"),
        ("(a)(b", "missing ): (a)(b (at character 4)"),
        (r"\([(](", r"missing ): \([(]( (at character 6)"),
        ("ab)", "unexpected ): ab) (at character 3)"),
        ("x[z-a]", "invalid character class range: z-a (at character 3)"),
        ("x(?=y)", "invalid perl operator: (?= (at character 2); RE2 has no look-around and no backreferences"),
        (r"(a)\1", r"invalid escape sequence: \1 (at character 4); RE2 has no look-around and no backreferences"),
        ("a**", "bad repetition operator: ** (at character 2)"),
    ],
)
def test_wrong_pattern_is_refused_with_its_position(pattern: str, problem: str) -> None:
    assert pattern_problem(pattern) == f"not a regular expression: {problem}"


@pytest.mark.parametrize("pattern", [r"\pL{9}", "(?:(?:.{30}){30})", "x" * (PATTERN_CHARS_MAX + 1), "\x00"])
def test_pattern_that_is_too_large_is_refused(pattern: str) -> None:
    assert pattern_problem(pattern)


@pytest.mark.parametrize("pattern", [r"\pL{1000}", r"(\pL\pN){200}"])
def test_pattern_that_takes_too_much_memory_is_refused_with_advice(pattern: str) -> None:
    assert pattern_problem(pattern) == "too large; repeat less, or name fewer characters"


@pytest.mark.parametrize("pattern", ["", "ok|up", r"(?i)^status:\s*green$", r"\pL+", r"\d{4}-\d{2}-\d{2}", "é{100}"])
def test_usual_pattern_is_taken(pattern: str) -> None:
    assert pattern_problem(pattern) is None


@pytest.mark.parametrize("pattern", ["(a+)+$", "(?:a|aa)+$", "(.*a){20}$", "[ab]*a[ab]{400}c"])
def test_pattern_that_backtracks_elsewhere_is_searched_in_time(pattern: str) -> None:
    assert pattern_problem(pattern) is None
    began_s = time.process_time()
    assert not finds(pattern, b"ab" * (WIDE_BYTES // 2))
    assert time.process_time() - began_s < 2.0


@given(st.text(max_size=40), st.binary(max_size=200))
def test_any_pattern_is_refused_in_words_or_searches_any_bytes(pattern: str, text: bytes) -> None:
    if pattern_problem(pattern) is None:
        finds(pattern, text)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=40))
def test_literal_text_is_found_where_it_is(text: str) -> None:
    quoted = "".join(rf"\x{{{ord(char):X}}}" for char in text)
    assert pattern_problem(quoted) is None
    assert finds(quoted, f"before{text}after".encode())
