"""Views are copied by the names of their fields."""

from __future__ import annotations

import msgspec
import pytest

from paceline.steps.views.to_view import to_view


class Thing(msgspec.Struct):
    id: str
    created_ms: int
    due_ms: int | None = None
    latency_ms: float | None = None
    secret: str = "hidden"


class ThingView(msgspec.Struct):
    id: str
    owner: str
    created_at: str
    due: str | None
    latency_ms: float | None
    note: str = "none"


def test_to_view_copies_equal_names_and_writes_instants_as_text() -> None:
    shown = to_view(Thing("a", 1_000, latency_ms=2.5), ThingView, owner="ann")
    assert shown == ThingView("a", "ann", "1970-01-01T00:00:01.000Z", None, 2.5)
    later = to_view(Thing("b", 0, due_ms=1), ThingView, owner="bob", note="late")
    assert later == ThingView("b", "bob", "1970-01-01T00:00:00.000Z", "1970-01-01T00:00:00.001Z", None, "late")


def test_given_fields_override_those_of_the_value() -> None:
    assert to_view(Thing("a", 0), ThingView, owner="ann", id="given").id == "given"


def test_view_field_without_a_value_is_an_error() -> None:
    with pytest.raises(TypeError, match="owner"):
        to_view(Thing("a", 0), ThingView)
