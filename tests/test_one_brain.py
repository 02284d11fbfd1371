"""Both engines share one brain: what they have in common is in core or in a port, not written twice.

The syntax trees of both adapters are compared. A constant, a text of five words or more, or the body of a function or
class that is the same in both belongs above them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ADAPTERS = Path(__file__).parents[1] / "src/paceline/adapters"
TEXT_SPACES_MIN = 4
BODY_STATEMENTS_MIN = 2
KINDS = {
    "constant": "declare it once in core (or in the port, if it is a limit of the port) and import it in both",
    "body": "make it one function of core that takes values; the adapters fetch them and write what it returns",
    "text": "put the sentence where the rule is, in core; a docstring that both need belongs to the port's method",
}


NOT_YET: tuple[str, ...] = ()
"""Folders of both adapters that still have something in common. To become empty."""


class Fact(NamedTuple):
    """``shown`` is for people, ``same`` is what is compared."""

    kind: str
    shown: str
    same: str


def test_adapters_have_no_constant_text_or_body_in_common() -> None:
    sqlite, aws = facts_of(ADAPTERS / "sqlite"), facts_of(ADAPTERS / "aws")
    twice = [fact for fact in sorted(sqlite.keys() & aws.keys()) if not _is_allowed(sqlite[fact], aws[fact])]
    told = [
        f"{fact.kind} {fact.shown}\n    {sqlite[fact]}\n    {aws[fact]}\n    -> {KINDS[fact.kind]}" for fact in twice
    ]
    assert not twice, f"{len(twice)} things are written in both adapters:\n\n" + "\n".join(told)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("LIMIT = 5", {("constant", "LIMIT = 5")}),
        ("LIMIT: int = 5", {("constant", "LIMIT = 5")}),
        ("A = B = 5\nlimit = 6\nLIMIT = Decoder(5)", set()),
        ("def f(x):\n    y = x\n    return y", {("body", "f")}),
        ("def f(x):\n    return x", set()),
        ('WHY = "it was refused by the provider"', {("constant", ...), ("text", "it was refused by the provider")}),
        ('"""Reads the rows of it."""', {("text", "Reads the rows of it.")}),
        ('"""Reads rows of it."""', set()),
    ],
)
def test_comparison_of_adapters_finds_constants_texts_and_bodies(
    source: str, expected: set[tuple[str, object]]
) -> None:
    found = {(fact.kind, fact.shown) for fact in facts_in(ast.parse(source))}
    assert {kind for kind, _ in found} == {kind for kind, _ in expected}
    assert {pair for pair in expected if pair[1] is not ...} <= found


def facts_of(folder: Path) -> dict[Fact, str]:
    """Each fact with the file and line where it stands first."""
    found: dict[Fact, str] = {}
    for file in sorted(folder.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for fact, line in _facts_with_lines(tree):
            found.setdefault(fact, f"{file.relative_to(ADAPTERS.parents[2])}:{line}")
    return found


def _is_allowed(sqlite: str, aws: str) -> bool:
    return any(f"/{folder}" in aws for folder in NOT_YET) and bool(sqlite)


def facts_in(tree: ast.AST) -> list[Fact]:
    return [fact for fact, _ in _facts_with_lines(tree)]


def _facts_with_lines(tree: ast.AST) -> Iterator[tuple[Fact, int]]:
    for node in ast.walk(tree):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ) if name.isupper() and not isinstance(value, ast.Call):
                yield Fact("constant", f"{name} = {ast.unparse(value)[:80]}", ast.dump(value)), node.lineno
            case ast.FunctionDef(name=name, body=body) | ast.ClassDef(name=name, body=body) if (
                len(body) >= BODY_STATEMENTS_MIN
            ):
                yield Fact("body", name, "".join(map(ast.dump, body))), node.lineno
            case ast.Constant(value=str(text)) if text.count(" ") >= TEXT_SPACES_MIN:
                yield Fact("text", " ".join(text.split())[:100], text), node.lineno
            case _:
                pass
