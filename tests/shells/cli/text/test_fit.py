"""How tables are fitted to a width, whatever stands in them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from paceline.core.instants import to_text
from paceline.shells.cli.text.columns import Heading
from paceline.shells.cli.text.fit import cut, cut_middle, fold, lay_out
from paceline.shells.cli.text.form import Form, draw_fields, draw_table, printable
from paceline.shells.cli.text.times import long_time, relative, short_time

NOW_MS = 1_795_000_000_000
texts = st.text(st.characters(blacklist_categories=("Cs", "Cc", "Cf", "Zl", "Zp")), max_size=60).map(printable)
idents = st.text("abcdefgh-0123456789", min_size=1, max_size=30)
HEADINGS = [
    Heading("ID", "ident"),
    Heading("STATE", "word"),
    Heading("URL", "address", 1),
    Heading("OWNER", "ident", 3),
    Heading("REASON", "words", 2),
]
rows = st.lists(st.tuples(idents, st.sampled_from(["ok", "failing"]), texts, idents, texts), max_size=5)


def lines_of(width: int | None, table: list[tuple[str, ...]]) -> tuple[list[str], list[str]]:
    drawn = draw_table(Form(width, NOW_MS), HEADINGS, table, {})
    return ["".join(one.text for one in line) for line in drawn.lines], drawn.left_out


@given(rows=rows, width=st.integers(20, 200))
def test_no_line_of_a_table_is_wider_than_the_terminal(rows: list[tuple[str, ...]], width: int) -> None:
    lines, _ = lines_of(width, rows)
    assert [line for line in lines if cell_len(line) > width and line not in {row[0] for row in rows}] == []


@given(rows=rows, width=st.integers(20, 200))
def test_tables_break_no_id_and_name_the_columns_left_out(rows: list[tuple[str, ...]], width: int) -> None:
    lines, left_out = lines_of(width, rows)
    text = "\n".join(lines)
    assert all(row[0] in text for row in rows)
    assert "OWNER" in left_out or all(row[3] in text for row in rows)
    assert set(left_out) <= {"URL", "OWNER", "REASON"}


@given(rows=rows)
def test_columns_of_the_highest_rank_are_left_out_first(rows: list[tuple[str, ...]]) -> None:
    ranks = {heading.text: heading.rank for heading in HEADINGS}
    for width in (120, 80, 60, 40):
        _, left_out = lines_of(width, rows)
        shown = [rank for text, rank in ranks.items() if text not in left_out]
        assert not left_out or max(shown) < min(ranks[text] for text in left_out)


@given(rows=rows)
def test_table_without_a_width_has_every_value_in_full(rows: list[tuple[str, ...]]) -> None:
    lines, left_out = lines_of(None, rows)
    assert left_out == []
    text = "\n".join(lines)
    assert all(cell.rstrip() in text for row in rows for cell in row)


def test_wider_terminal_never_makes_a_column_narrower() -> None:
    cells = [["a" * 20, "ok", "https://example.org/" + "x" * 60, "owner", "a reason " * 9]]
    found = [lay_out(HEADINGS, cells, width) for width in range(60, 220)]
    for one, other in pairwise(found):
        if one.columns == other.columns:
            assert all(wide <= wider for wide, wider in zip(one.widths, other.widths, strict=True))


def test_ids_that_do_not_fit_beside_the_state_are_stacked_and_stay_whole() -> None:
    long = "m" * 128
    lines, left_out = lines_of(80, [(long, "failing", "https://example.org/" + "x" * 100, "alice", "-")])
    assert (lines[0], left_out) == (long, [])
    assert lines[1:3] == ["  STATE   failing", "  URL     https://example.org/xxxxxxxxxxxxxxx…" + "x" * 34]
    assert lines[3:] == ["  OWNER   alice"]


@given(text=texts, width=st.integers(1, 80))
def test_cut_texts_keep_their_ends_and_fit(text: str, width: int) -> None:
    assert cell_len(cut(text, width)) <= width
    middle = cut_middle(text, width)
    assert cell_len(middle) <= width
    if middle != text:
        before, _, after = middle.partition("…")
        assert text.startswith(before)
        assert text.endswith(after)


@given(text=texts, width=st.integers(2, 80))
def test_folded_text_fits_and_loses_nothing(text: str, width: int) -> None:
    lines = list(fold(text, width, whole=lambda _: False))
    assert all(cell_len(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_fields_fold_long_values_and_never_an_id() -> None:
    run = "alice/" + "m" * 128 + "#1@1"
    pairs = [("run", run), ("check.url", "https://example.org/" + "x" * 100), ("reason", "no answer " * 12)]
    lines = list(draw_fields(Form(60, NOW_MS), pairs))
    assert run in lines
    assert [line for line in lines if len(line) > 60] == [run]
    assert "".join(lines).replace(" ", "").count("x") == 101
    assert " ".join(" ".join(lines).split()).endswith("reason " + ("no answer " * 12).strip())


def test_fields_in_a_pipe_have_a_line_each_with_exact_times() -> None:
    due = to_text(NOW_MS + 3_000)
    pairs = [("due", due), ("url", "x" * 500)]
    assert list(draw_fields(Form(None, NOW_MS), pairs)) == [f"due  {due}", f"url  {'x' * 500}"]
    assert next(draw_fields(Form(80, NOW_MS), pairs)) == f"due  {due} (in 3 s)"
    assert next(draw_fields(Form(80, NOW_MS, utc=True), pairs)) == f"due  {due}"


@pytest.mark.parametrize(
    ("away_ms", "told"),
    [
        (0, "now"),
        (999, "now"),
        (-999, "now"),
        (3_000, "in 3 s"),
        (-3_999, "3 s ago"),
        (119_999, "in 119 s"),
        (120_000, "in 2 min"),
        (-7_199_000, "119 min ago"),
        (7_200_000, "in 2 h"),
        (-172_800_000, "2 d ago"),
        (59 * 86_400_000, "in 59 d"),
    ],
)
def test_relative_times_have_one_unit_that_is_large_enough(away_ms: int, told: str) -> None:
    assert relative(NOW_MS + away_ms, NOW_MS) == told
    assert short_time(to_text(NOW_MS + away_ms), NOW_MS) == told
    assert long_time(to_text(NOW_MS + away_ms), NOW_MS).endswith(f"Z ({told})")


def test_time_far_away_is_its_date_and_other_texts_stay() -> None:
    assert short_time(to_text(NOW_MS + 61 * 86_400_000), NOW_MS) == to_text(NOW_MS + 61 * 86_400_000)[:10]
    assert short_time("tomorrow", NOW_MS) == long_time("tomorrow", NOW_MS) == "tomorrow"
