"""The loop of a guarded edit."""

from __future__ import annotations

import pytest

from paceline.errors import NotFound, RevisionMismatch
from paceline.steps.edit import TRIES_MAX, edit, unless_changed


def test_edit_is_repeated_after_concurrent_writes() -> None:
    answers = iter([None, None, "written"])
    assert edit("Batch 'b'", lambda: next(answers)) == "written"
    assert list(answers) == []


def test_edit_ends_after_a_bounded_number_of_tries() -> None:
    tries = list[int]()
    with pytest.raises(RevisionMismatch, match=r"Batch 'b' was modified concurrently too often; retry\."):
        edit("Batch 'b'", lambda: tries.append(1))
    assert len(tries) == TRIES_MAX


def test_error_raised_by_the_attempt_is_not_retried() -> None:
    tries = list[int]()

    def attempt() -> str:
        tries.append(1)
        raise RevisionMismatch("not as you have seen it")

    with pytest.raises(RevisionMismatch, match="not as you have seen it"):
        edit("Batch 'b'", attempt)
    assert tries == [1]


def test_unless_changed_returns_none_only_for_a_revision_mismatch() -> None:
    def changed() -> str:
        raise RevisionMismatch("changed")

    def missing() -> str:
        raise NotFound("missing")

    assert unless_changed(lambda: "written") == "written"
    assert unless_changed(changed) is None
    with pytest.raises(NotFound):
        unless_changed(missing)
