"""Receipts: whatever happens to a file of lines, its receipt shows it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.verify.receipt import MARK_EVERY, compare, make_receipt

LINES = [f"line {number}\n".encode() for number in range(2 * MARK_EVERY + 10)]


def test_receipt_of_the_same_lines_shows_no_difference() -> None:
    assert compare(make_receipt("a", LINES), LINES) is None
    assert compare(make_receipt("a", []), []) is None


@given(st.integers(0, len(LINES) - 2), st.sampled_from(["change", "remove", "double", "swap"]))
def test_receipt_shows_where_a_line_was_changed_removed_doubled_or_swapped(place: int, how: str) -> None:
    lines, receipt = list(LINES), make_receipt("a", LINES)
    if how == "change":
        lines[place] = lines[place][:-1] + b" \n"
    elif how == "remove":
        del lines[place]
    elif how == "double":
        lines.insert(place, lines[place])
    else:
        lines[place], lines[place + 1] = lines[place + 1], lines[place]
    found = compare(receipt, lines)
    assert found is not None
    if how == "change":
        assert found.first <= place + 1 <= found.last
        assert found.last - found.first < MARK_EVERY


def test_receipt_shows_that_the_end_is_missing() -> None:
    found = compare(make_receipt("a", LINES), LINES[:-5])
    assert found is not None
    assert (found.first, found.last) == (len(LINES) - 4, len(LINES))
