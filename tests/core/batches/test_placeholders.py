"""Placeholders: what is refused, how each place escapes what is filled in, and that a body keeps its structure."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.batches.batch import RecordSpec, parse_record, record_document
from paceline.core.batches.records.placeholders import (
    PLACEHOLDERS_MAX,
    Values,
    body_has_braces,
    body_problem,
    escape,
    escape_body,
    render_body,
    render_endpoint,
    render_header,
    text_problem,
)
from paceline.errors import InvalidInput

VALUES = Values("2026-11-15", "2026-11-15T08:00:00.000Z", "b/r%401@2026-11-15", "r@1", "2")
HOSTILE = Values('"', "\\", "a\r\nb", "{date}", "}}\x00\u00e9/")

texts = st.text(alphabet=st.sampled_from('ab{}"\\\u00e9 \n'), max_size=12)
pieces = ["{date}", "{due}", "{run}", "{record}", "{attempt}", "{{", "}}", "a", '"', "\\"]
templates = st.lists(st.sampled_from(pieces), max_size=6).map("".join)
documents = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), templates),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)
any_documents = st.recursive(
    st.one_of(st.none(), st.integers(), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)


def shape(value: Any) -> Any:
    """The value with every string value taken out."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    return "" if isinstance(value, str) else value


def expected(value: Any, values: Values) -> Any:
    """The value with every string value filled in, by walking it."""
    if isinstance(value, dict):
        return {name: expected(inner, values) for name, inner in value.items()}
    if isinstance(value, list):
        return [expected(inner, values) for inner in value]
    return value.format_map(values._asdict()) if isinstance(value, str) else value


@given(documents, st.sampled_from([VALUES, HOSTILE]), st.sampled_from([None, 1]))
def test_rendering_fills_in_string_values_and_never_changes_the_structure(
    document: Any, values: Values, indent: int | None
) -> None:
    body = json.dumps(document, indent=indent, ensure_ascii=indent is None)
    assert body_problem(body) is None
    rendered = json.loads(render_body(body, values))
    assert rendered == expected(document, values)
    assert shape(rendered) == shape(document)


@given(any_documents)
def test_escaped_body_renders_to_itself(document: Any) -> None:
    body = json.dumps(document)
    assert body_problem(escape_body(body)) is None
    assert render_body(escape_body(body), VALUES) == body


@given(texts)
def test_escaped_text_renders_to_itself(text: str) -> None:
    assert text_problem(escape(text)) is None
    assert render_endpoint(escape(text), HOSTILE) == render_header(escape(text), HOSTILE) == text


def test_filled_in_values_are_escaped_for_endpoint_header_and_body() -> None:
    assert render_endpoint("/o/{record}?d={date}&r={run}", VALUES) == "/o/r%401?d=2026-11-15&r=b%2Fr%25401%402026-11-15"
    assert render_header("try {attempt} of {run}", VALUES) == "try 2 of b/r%401@2026-11-15"
    assert render_header("{run}|{attempt}", HOSTILE) == "a%0D%0Ab|}}%00%C3%A9/"
    assert render_body('{"a": "{due}", "{date}": 1.50}', VALUES) == '{"a": "2026-11-15T08:00:00.000Z", "{date}": 1.50}'
    assert json.loads(render_body('"{run}{date}"', HOSTILE)) == 'a\r\nb"'
    assert render_endpoint("{{{record}}}", VALUES) == "{r%401}"


@pytest.mark.parametrize("text", ["{", "}", "{dat", "{{}", "{}", "{Date}", "{date }", "{{date}", "{a{date}}"])
def test_unknown_placeholder_is_refused_with_a_list_of_the_known_ones(text: str) -> None:
    for detail in (text_problem(text), body_problem(json.dumps([text])), body_problem(json.dumps({"a": {"b": text}}))):
        assert detail is not None
        assert "{date}, {due}, {run}, {record}, {attempt}" in detail
    assert body_problem(json.dumps({text: 1})) is None


@pytest.mark.parametrize("body", ['"{"', '{"a":"}"}', '["}"]', '{"}":1}', '{"a":"{"}', '{"a":{},"b":"{"}', '"}"'])
def test_brace_in_a_string_is_found_wherever_it_is(body: str) -> None:
    assert body_has_braces(body) is True


@pytest.mark.parametrize("body", ["{}", "null", '{"a":1}', "[1]", '{"a":{}}', '[{"a":[]},{}]', '"a"'])
def test_braces_around_objects_are_not_in_strings(body: str) -> None:
    assert body_has_braces(body) is False


def test_braces_of_json_and_escaped_braces_are_no_placeholders() -> None:
    body = '{"a": {}, "b": [{"c": "\\u007bdate\\u007d"}]}'
    assert body_has_braces(body) is False
    assert render_body(body, VALUES) == body
    assert text_problem("{date}" * PLACEHOLDERS_MAX) is None
    assert text_problem("{date}" * (PLACEHOLDERS_MAX + 1)) is not None


def test_record_with_an_unknown_placeholder_is_refused_by_its_field() -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_record(b'{"id": "r", "provider": "p", "endpoint": "/{id}", "body": {"a": ["{day}"]}}')
    assert [problem.pointer for problem in refused.value.errors] == ["/endpoint", "/body"]
    assert "{id}" in refused.value.errors[0].detail


@given(texts.filter(lambda text: text.isascii() and text.isprintable() and " " not in text), any_documents)
def test_record_of_before_placeholders_is_shown_so_that_it_means_the_same_when_put_again(
    endpoint: str, document: Any
) -> None:
    endpoint = endpoint.replace("\\", "")
    old = RecordSpec("r", "p", endpoint, json.dumps(document))
    shown = record_document(old)
    shown["body"] = json.loads(bytes(shown["body"]))
    again = parse_record(json.dumps(shown).encode())
    assert render_endpoint(again.endpoint, VALUES) == endpoint
    assert (json.loads(render_body(again.body, VALUES)) if again.body is not None else None) == document
