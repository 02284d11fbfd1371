"""Plans of files of definitions: what differs, and in which order it is done."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.as_code.declared import KINDS, Kind, Name, Normal, defined, normal, terse
from paceline.core.as_code.plan import ABSENT, FieldDifference, differences, plan
from paceline.errors import InvalidInput

CHECK = {"kind": "http", "url": "https://example.org/"}
documents = st.dictionaries(
    st.sampled_from("abc"),
    st.recursive(
        st.none() | st.booleans() | st.integers(0, 3),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xy"), inner, max_size=2),
        max_leaves=6,
    ),
    max_size=3,
)


@given(documents, documents)
def test_differences_are_none_exactly_if_documents_are_the_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert list(differences(one, one)) == []
    found = list(differences(one, other))
    assert bool(found) == (repr(one) != repr(other)) or sorted(one) == sorted(other)
    assert {(change.pointer, repr(change.after)) for change in found} == {
        (change.pointer, repr(change.before)) for change in differences(other, one)
    }


def test_differences_go_field_by_field_and_lists_are_whole() -> None:
    before = {"a": {"b": 1, "c": [1]}, "gone": {"x": True}, "same": 1}
    after = {"a": {"b": 2, "c": [1, 2]}, "new": {"y": {}}, "same": 1}
    assert list(differences(before, after)) == [
        FieldDifference("/a/b", 1, 2),
        FieldDifference("/a/c", [1], [1, 2]),
        FieldDifference("/gone/x", True, ABSENT),
        FieldDifference("/new/y", ABSENT, {}),
    ]
    assert [change.pointer for change in differences({"n": 1}, {"n": True})] == ["/n"]


names = st.builds(Name, st.sampled_from(KINDS), st.sampled_from(["", "ann"]), st.sampled_from("abc"))


@given(st.frozensets(names), st.frozensets(names), st.booleans())
def test_plan_puts_in_the_order_of_kinds_and_removes_in_the_opposite(
    wanted: frozenset[Name],
    there: frozenset[Name],
    prune: bool,  # noqa: FBT001 - drawn
) -> None:
    scopes = {(name.kind, name.user) for name in wanted} if prune else set()
    acts = plan(dict.fromkeys(wanted, Normal({})), dict.fromkeys(there, Normal({})), prunes=scopes)
    assert {act.name for act in acts} == wanted | there
    puts = [KINDS.index(act.name.kind) for act in acts if act.action in ("create", "keep")]
    assert puts == sorted(puts)
    assert {act.name for act in acts if act.action == "create"} == wanted - there
    removed = [act.name for act in acts if act.action == "remove"]
    assert [KINDS.index(name.kind) for name in removed] == sorted(
        (KINDS.index(name.kind) for name in removed), reverse=True
    )
    assert set(removed) == {name for name in there - wanted if (name.kind, name.user) in scopes}


EXAMPLES: list[tuple[Kind, dict[str, Any]]] = [
    ("provider", {"base_url": "https://a.example", "rate": "5/1s", "headers": {"X": "***"}}),
    ("provider", {"kind": "outgoing"}),
    ("batch", {}),
    ("batch", {"start": "02:00", "window": "6h", "paused": True}),
    ("channel", {"kind": "webhook", "url": "***"}),
    ("channel", {"kind": "apprise", "url": "***", "default": True}),
    ("monitor", {"check": CHECK, "every": "60s"}),
    ("monitor", {"check": CHECK, "cron": "0 0 * * *"}),
    ("monitor", {"check": {"kind": "outgoing"}, "cron": "1 0 * * *", "timezone": "Europe/Berlin", "tags": ["a"]}),
    ("monitor", {"check": {**CHECK, "auth": {"kind": "bearer", "token": "***"}}, "every": "60s", "attempts": 3}),
]


@pytest.mark.parametrize(("kind", "document"), EXAMPLES)
def test_terse_document_means_the_same_and_says_no_more(kind: Kind, document: dict[str, Any]) -> None:
    whole = normal(kind, document)
    assert not whole.gives_secrets
    assert normal(kind, whole.document) == whole
    short = terse(kind, whole.document)
    assert short == document
    assert normal(kind, short) == whole


def test_given_secrets_are_masked_and_noticed() -> None:
    check = {**CHECK, "method": "POST", "headers": {"X": "s3cret"}, "body": "***"}
    monitor = normal("monitor", {"check": check, "every": "60s"})
    assert monitor.gives_secrets
    assert monitor.document["check"]["headers"] == {"X": "***"}
    assert normal("channel", {"kind": "webhook", "url": "https://a.example/s3cret"}) == Normal(
        {"kind": "webhook", "url": "***", "default": False}, gives_secrets=True
    )


@pytest.mark.parametrize("document", [None, 5, "x", [], {"kind": "pigeon"}, {"kind": "webhook", "url": "file:///x"}])
def test_document_that_is_no_definition_is_refused(document: Any) -> None:
    with pytest.raises(InvalidInput):
        normal("channel", document)


def test_definition_is_named_with_its_user_if_it_has_one() -> None:
    assert str(Name("monitor", "ada", "web")) == "monitor ada/web"
    assert str(Name("provider", "", "shop")) == "provider shop"


def test_shown_definition_is_reduced_to_the_fields_that_its_user_declared() -> None:
    view = {"id": "ops", "kind": "webhook", "url": "***", "default": True, "created": "2026-11-15T08:00:00.000Z"}
    assert defined("channel", view) == {"kind": "webhook", "url": "***", "default": True}


def test_plan_says_which_fields_of_a_definition_change() -> None:
    name = Name("batch", "", "daily")
    [act] = plan({name: Normal({"start": "03:00"})}, {name: Normal({"start": "02:00"})}, prunes=set())
    assert (act.action, act.changes) == ("change", (FieldDifference("/start", "02:00", "03:00"),))
    [act] = plan({name: Normal({}, gives_secrets=True)}, {name: Normal({})}, prunes=set())
    assert act.action == "give_secrets"
