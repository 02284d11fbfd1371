"""What is kept of refused jobs, and why they were refused."""

from __future__ import annotations

import pytest

from paceline.core.jobs.values import Budget
from paceline.core.why.chain import Link
from paceline.core.why.refusals import (
    KEPT_MAX,
    KEPT_MS,
    TITLE_CHARS_MAX,
    JobRefusal,
    RefusalName,
    Refusals,
    find_refusal,
    parse_refusal_id,
    refusal_id,
    why_refused,
    with_refusal,
)

NOW_MS = 1_790_000_000_000
RESETS_MS = NOW_MS + 3_600_000


def refusal(*, at_ms: int = NOW_MS, title: str = "", cost: int = 120) -> JobRefusal:
    return JobRefusal(
        0, at_ms, title, "over_daily_credits", cost, left=20, limit=200, resets_ms=RESETS_MS, measurements=1
    )


def links(one: JobRefusal, *, left: int, limit: int = 200) -> tuple[Link, Link]:
    then, now = why_refused("ann", one, Budget(limit, limit - left, 0, left, RESETS_MS)).chain
    return then, now


@pytest.mark.parametrize("owner", ["ann", "a@b", "a:b+c"])
def test_id_of_a_refusal_is_read_back(owner: str) -> None:
    assert parse_refusal_id(refusal_id(owner, 7)) == RefusalName(owner, 7)
    assert parse_refusal_id("ann/refused") == RefusalName("ann", None)


@pytest.mark.parametrize(
    "text", ["", "refused#1", "ann/refused#", "ann/refused#1@2", "a/b/refused#1", "ann/refused#\u0661"]
)
def test_other_text_is_no_id_of_a_refusal(text: str) -> None:
    assert parse_refusal_id(text) is None


def test_newest_refusals_are_kept_in_number_age_and_size() -> None:
    kept = Refusals()
    for number in range(KEPT_MAX + 2):
        kept = with_refusal(kept, refusal(at_ms=NOW_MS + number, title="x" * 1_000))
    assert (kept.last, len(kept.kept), kept.kept[0].number) == (KEPT_MAX + 2, KEPT_MAX, 3)
    assert len(kept.kept[0].title) == TITLE_CHARS_MAX
    later = with_refusal(kept, refusal(at_ms=NOW_MS + KEPT_MS + KEPT_MAX + 1))
    assert [one.number for one in later.kept] == [KEPT_MAX + 3]


def test_refusal_is_found_by_its_number_or_as_the_newest_until_it_is_too_old_or_another_user_s() -> None:
    kept = with_refusal(with_refusal(Refusals(), refusal()), refusal(at_ms=NOW_MS + 1))
    found = find_refusal(kept, RefusalName("ann", 1), since_ms=NOW_MS, now_ms=NOW_MS)
    assert (found and found.number) == 1
    newest = find_refusal(kept, RefusalName("ann", None), since_ms=NOW_MS, now_ms=NOW_MS)
    assert (newest and newest.number) == 2
    assert find_refusal(kept, RefusalName("ann", 3), since_ms=NOW_MS, now_ms=NOW_MS) is None
    assert find_refusal(kept, RefusalName("ann", 1), since_ms=NOW_MS + 1, now_ms=NOW_MS) is None
    assert find_refusal(kept, RefusalName("ann", 1), since_ms=NOW_MS, now_ms=NOW_MS + KEPT_MS) is None


def test_refusal_says_what_was_left_then_and_whether_the_job_would_fit_now() -> None:
    then, now = links(refusal(title="who sees us"), left=20)
    assert then[2:4] == (NOW_MS, RESETS_MS)
    assert "The job 'who sees us' of ann" in then.text
    assert "20 of the 200 of the day were left" in then.text
    assert ("refused now as well" in now.text, now.until_ms) == (True, RESETS_MS)
    then, now = links(refusal(), left=120)
    assert then.text.startswith("The job of ann was refused whole")
    assert (now.text.startswith("It would be admitted now"), now.change) == (True, "its user: submit it again")


def test_job_dearer_than_a_day_is_not_helped_by_the_next_one() -> None:
    then, now = links(refusal(cost=201), left=200)
    assert (then.until_ms, now.until_ms) == (None, None)
    assert "it does not fit on any day" in now.text
    assert "paceline user limit ann" in now.change
