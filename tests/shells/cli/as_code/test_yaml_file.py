"""YAML files of definitions: read as plain values with their lines, whatever somebody puts into them."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import InvalidInput
from paceline.shells.cli.as_code.yaml_file import YamlFile, dump


def read(text: str | bytes, **environment: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "a.yaml"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return YamlFile(file, environment).root().value()


def refusal(text: str | bytes) -> str:
    with pytest.raises(InvalidInput) as refused:
        read(text)
    (problem,) = refused.value.errors
    return f"{problem.pointer.rpartition('/a.yaml')[2]} {problem.detail}"


def test_plain_scalars_mean_what_they_mean_in_json() -> None:
    text = "a: 02:00\nb: yes\nc: 2026-11-15\nd: 012\ne: true\nf: null\ng: 1e3\nh: -7\ni: 0x10\nj:\nk: '5'\nl: !!str 6\n"
    assert read(text) == {
        "a": "02:00",
        "b": "yes",
        "c": "2026-11-15",
        "d": "012",
        "e": True,
        "f": None,
        "g": "1e3",
        "h": -7,
        "i": "0x10",
        "j": None,
        "k": "5",
        "l": "6",
    }


def test_own_fields_override_those_of_a_merged_mapping() -> None:
    text = "base: &b {a: 1, c: 1}\nother: &o {a: 2, d: 2}\none: {<<: *b, a: 3}\ntwo: {<<: [*b, *o]}\n"
    whole = read(text)
    assert whole["one"] == {"a": 3, "c": 1}
    assert whole["two"] == {"a": 1, "c": 1, "d": 2}


def test_variables_are_taken_from_the_environment_and_escaped_ones_are_not() -> None:
    text = 'a: "Bearer ${TOKEN}"\nb: ${TOKEN}-${TOKEN}\nc: $${TOKEN} $TOKEN\n'
    whole = read(text, TOKEN="5")
    assert whole == {"a": "Bearer 5", "b": "5-5", "c": "${TOKEN} $TOKEN"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", ":3 'a' is given twice; keep one of them"),
        ("a:\n  b: ${NO_SUCH}\n", ":2 /a/b the environment has no NO_SUCH; set it, or write $${NO_SUCH} for the text"),
        ("a: [1\nb: 2\n", ":2 not YAML: "),
        ("a: !!python/object/apply:os.system [ls]\n", ""),
        ("a: !secret x\n", ":1 /a the tag !secret means nothing here"),
        ("a: 1\n---\nb: 2\n", ":2 not YAML: "),
        ("? [a]\n: 1\n", ":1 a name must be a text"),
        ("a: {<<: 5}\n", ":1 /a << takes a mapping, or a list of mappings"),
        ("a: *nothing\n", ":1 not YAML: "),
        (b"a: \xff\xfe\n", ""),
        (b"a: \x00\n", ""),
    ],
)
def test_ambiguous_or_wrong_file_is_refused_with_its_line(text: str | bytes, words: str) -> None:
    assert refusal(text).startswith(words)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "a: " * 50 + "\n" + "- " * 100_000,
        "\n".join(f"{'  ' * n}a:" for n in range(1_000)),
        "a: &a [x]\n"
        + "".join(f"b{n}: &b{n} [{', '.join([f'*b{n - 1}' if n else '*a'] * 9)}]\n" for n in range(12))
        + "c: *b11\n",
        "a: &a {b: *a}\n",
        "a: &a\n  <<: *a\n",
        "a: &a [*a]\n",
    ],
)
def test_hostile_yaml_is_refused_soon(text: str) -> None:
    began_s = time.process_time()
    assert refusal(text)
    assert time.process_time() - began_s < 20.0


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    [
        "02:00",
        "yes",
        "1e5",
        "012",
        "~",
        "",
        "null",
        "***",
        "${A}",
        "$${A}",
        "$$${A}",
        "a: b",
        "- x",
        "#x",
        " x ",
        "x\ny\n",
    ]
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(texts.filter(lambda text: text != "<<"), values, max_size=4))
def test_document_that_is_written_is_read_as_the_same(document: dict[str, Any]) -> None:
    assert read(dump(document)) == document


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        read(body)
    except InvalidInput as error:
        assert error.errors  # noqa: PT017 - whatever else is raised fails the test
