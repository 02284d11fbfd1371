"""Created, replaced or unchanged, and which records are planned into a day that is on."""

from __future__ import annotations

import pytest

from paceline.core.batches.batch import RecordSpec
from paceline.core.batches.put import RecordPuts, RecordState, new_names, put_disposition, put_record, wanted_state

NOW = RecordState(7, 1, active=True, deleted=False, endpoint="/", body=None)


@pytest.mark.parametrize(
    ("revision", "expected", "same", "disposition"),
    [
        (None, None, False, "created"),
        (None, 0, False, "created"),
        (None, 3, False, "revision_mismatch"),
        (3, 0, True, "revision_mismatch"),
        (3, 2, False, "revision_mismatch"),
        (3, 3, True, "unchanged"),
        (3, None, True, "unchanged"),
        (3, 3, False, "replaced"),
    ],
)
def test_disposition_of_a_put_depends_on_the_expected_revision(
    revision: int | None, expected: int | None, disposition: str, *, same: bool
) -> None:
    assert put_disposition(revision=revision, expected=expected, same=same) == disposition


def test_record_joins_the_day_if_it_is_new_restored_activated_or_moved() -> None:
    assert put_record(None, NOW) == ("created", "comes")
    assert put_record(NOW._replace(deleted=True), NOW) == ("created", "comes")
    assert put_record(NOW._replace(active=False), NOW) == ("replaced", "comes")
    assert put_record(NOW._replace(provider=2), NOW) == ("replaced", "comes")


def test_inactive_record_leaves_the_day() -> None:
    assert put_record(NOW, NOW._replace(active=False)) == ("replaced", "goes")
    assert put_record(None, NOW._replace(active=False)) == ("created", "goes")


def test_a_record_with_another_endpoint_or_body_keeps_its_place_in_the_day() -> None:
    assert put_record(NOW._replace(endpoint="/old"), NOW) == ("replaced", "stays")
    assert put_record(NOW._replace(body="{}"), NOW) == ("replaced", "stays")
    assert put_record(NOW, NOW) == ("unchanged", "stays")


def test_new_records_are_numbered_in_the_order_of_their_import() -> None:
    records = [RecordSpec(name, provider) for name, provider in (("c", "p"), ("a", "p"), ("b", "gone"), ("d", "p"))]
    assert new_names([*records, records[0]], providers={"p"}, known={"d"}) == ["c", "a"]
    assert wanted_state(records[0], number=7, provider=1) == NOW._replace(endpoint="")


def test_page_of_puts_judges_each_record_by_those_before_it() -> None:
    known = {"a": NOW, "b": NOW._replace(number=8, endpoint="")}
    puts = RecordPuts(known, providers={"p": 1}, numbers={"c": 9})
    new, changed = RecordSpec("c", "p", "/"), RecordSpec("c", "p", "/", active=False)
    records = [RecordSpec("a", "p", "/"), new, changed, RecordSpec("b", "p", active=False), RecordSpec("d", "gone")]
    assert puts.judge(records) == ["unchanged", "created", "replaced", "replaced", "no_provider"]
    assert puts.changed() == {
        "b": NOW._replace(number=8, endpoint="", active=False),
        "c": NOW._replace(number=9, active=False),
    }
    assert (puts.came, puts.went) == ({}, {"b": 8, "c": 9})


def test_record_that_is_put_and_put_back_in_one_page_is_not_written() -> None:
    puts = RecordPuts({"a": NOW}, providers={"p": 1}, numbers={})
    records = [RecordSpec("a", "p", "/", active=False), RecordSpec("a", "p", "/")]
    assert puts.judge(records) == ["replaced", "replaced"]
    assert (puts.changed(), puts.came, puts.went) == ({}, {"a": 7}, {})
