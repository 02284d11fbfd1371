"""Reads YAML as plain values with their lines: no tags, no duplicate keys, limited size, depth and aliases.

Plain scalars mean what they mean in JSON: 02:00 and yes are texts. ``${NAME}`` in a text is a variable of the
environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from yaml.events import CollectionEndEvent, CollectionStartEvent, NodeEvent
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from paceline.core.parsing import escape_pointer
from paceline.errors import FieldProblem, InvalidInput
from paceline.shells.cli.files import read_input

FILE_BYTES_MAX = 16 * 1024 * 1024
LEVELS_MAX = 40
NODES_MAX = 1_000_000
"""Most values of a file, with its aliases written out."""
MERGE = "<<"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXT_TAG = "tag:yaml.org,2002:str"
_TAGS, _PYTHON_TAGS = "tag:yaml.org,2002:", "tag:yaml.org,2002:python/"
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,30})")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORDS: Mapping[str, Any] = {"": None, "~": None, "null": None, "true": True, "false": False}
_VARIABLE = re.compile(r"\$(\$?)\{([A-Za-z_][A-Za-z0-9_]*)\}")


class YamlPart(NamedTuple):
    """A value of a file with its place. Parts of it are made on demand."""

    file: YamlFile
    node: Node
    pointer: str

    def value(self) -> Any:
        """Returns the value, with variables of the environment filled in."""
        return self.file.value(self.node, self.pointer)

    def written(self) -> Any:
        """Returns the value as it is written, with the names of variables, to show it."""
        return self.file.value(self.node, self.pointer, expand=False)

    def items(self) -> dict[str, YamlPart]:
        """Returns the parts of a mapping; none for an empty value."""
        if isinstance(self.node, ScalarNode) and self.file.value(self.node, self.pointer) is None:
            return {}
        if not isinstance(self.node, MappingNode):
            raise self.problem("a mapping of names to definitions")
        pairs = self.file.pairs(self.node, self.pointer)
        return {
            name: YamlPart(self.file, node, f"{self.pointer}/{escape_pointer(name)}") for name, node in pairs.items()
        }

    def problem(self, detail: str, pointer: str = "") -> InvalidInput:
        return InvalidInput.of(self.field_problem(detail, pointer))

    def field_problem(self, detail: str, pointer: str = "") -> FieldProblem:
        """Returns a problem of the value, or of the part that the pointer names, with its line."""
        node = self.node
        for name in pointer.split("/")[1:]:
            node = self.file.below(node, name.replace("~1", "/").replace("~0", "~"))
        return self.file.field_problem(node, self.pointer + pointer, detail)


class YamlFile:
    """One file. ``environment`` has the values for ``${NAME}``."""

    def __init__(self, path: Path, environment: Mapping[str, str]) -> None:
        self._path = path
        self._environment = environment
        self._nodes = 0
        text = read_input(path, FILE_BYTES_MAX, advice="Split it, and give -f several times.")
        try:
            _check_shape(text, path)
            self._root = yaml.compose(text, Loader=_LOADER)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            where = f"{path}:{mark.line + 1}" if mark else str(path)
            raise InvalidInput.of(FieldProblem(where, f"not YAML: {error.problem or error.context}")) from None
        except (yaml.YAMLError, UnicodeDecodeError):
            raise InvalidInput.of(FieldProblem(str(path), "not YAML: it has characters that are not allowed")) from None

    def root(self) -> YamlPart:
        return YamlPart(self, self._root or ScalarNode(f"{_TAGS}null", ""), "")

    def field_problem(self, node: Node, pointer: str, detail: str) -> FieldProblem:
        line = node.start_mark.line + 1 if node.start_mark else 1
        return FieldProblem(f"{self._path}:{line} {pointer}".rstrip(), detail)

    def value(self, node: Node, pointer: str, *, expand: bool = True, depth: int = 0) -> Any:
        self._nodes += 1
        if depth > LEVELS_MAX or self._nodes > 4 * NODES_MAX:
            raise InvalidInput.of(
                self.field_problem(node, pointer, "too much, or nested too deeply; use fewer aliases")
            )
        if not node.tag.startswith(_TAGS) or node.tag.startswith(_PYTHON_TAGS):
            raise InvalidInput.of(self.field_problem(node, pointer, f"the tag {node.tag} means nothing here"))
        match node:
            case MappingNode():
                return {
                    name: self.value(part, f"{pointer}/{escape_pointer(name)}", expand=expand, depth=depth + 1)
                    for name, part in self.pairs(node, pointer).items()
                }
            case SequenceNode():
                return [
                    self.value(part, f"{pointer}/{index}", expand=expand, depth=depth + 1)
                    for index, part in enumerate(node.value)
                ]
            case _:
                return self._scalar(node, pointer, expand=expand)

    def pairs(self, node: MappingNode, pointer: str, depth: int = 0) -> dict[str, Node]:
        """Returns the parts of a mapping by name. Its own parts win over those that ``<<`` merges in."""
        own: dict[str, Node] = {}
        brought: dict[str, Node] = {}
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                raise InvalidInput.of(self.field_problem(key, pointer, "a name must be a text"))
            if key.value == MERGE and _is_plain(key):
                brought |= self._brought(value, pointer, depth)
                continue
            name = self._expanded(key, pointer)
            if name in own:
                raise InvalidInput.of(self.field_problem(key, pointer, f"{name!r} is given twice; keep one of them"))
            own[name] = value
        return brought | own

    def below(self, node: Node, name: str) -> Node:
        """Returns the part of this name or number; the value itself if there is no such part."""
        if isinstance(node, MappingNode):
            return self.pairs(node, "").get(name, node)
        if isinstance(node, SequenceNode) and name.isdecimal() and int(name) < len(node.value):
            part: Node = node.value[int(name)]
            return part
        return node

    def _brought(self, value: Node, pointer: str, depth: int) -> dict[str, Node]:
        found: dict[str, Node] = {}
        for one in reversed(value.value) if isinstance(value, SequenceNode) else [value]:
            if not isinstance(one, MappingNode) or depth > LEVELS_MAX:
                raise InvalidInput.of(self.field_problem(one, pointer, "<< takes a mapping, or a list of mappings"))
            found |= self.pairs(one, pointer, depth + 1)
        return found

    def _scalar(self, node: Node, pointer: str, *, expand: bool) -> Any:
        assert isinstance(node, ScalarNode)
        text: str = node.value
        if _is_plain(node) and node.tag != _TEXT_TAG:
            if text.lower() in _WORDS:
                return _WORDS[text.lower()]
            if _INTEGER.fullmatch(text):
                return int(text)
            if _NUMBER.fullmatch(text):
                return float(text)
        return self._expanded(node, pointer) if expand else text

    def _expanded(self, node: ScalarNode, pointer: str) -> str:
        return _VARIABLE.sub(lambda found: self._variable(found, node, pointer), node.value)

    def _variable(self, found: re.Match[str], node: Node, pointer: str) -> str:
        if found[1]:
            return f"${{{found[2]}}}"
        value = self._environment.get(found[2])
        if value is None:
            detail = f"the environment has no {found[2]}; set it, or write $${{{found[2]}}} for the text itself"
            raise InvalidInput.of(self.field_problem(node, pointer, detail))
        return value


def _is_plain(node: ScalarNode) -> bool:
    """True if the scalar has no quotes and is no block.

    libyaml and the parser in Python show this in different ways.
    """
    return not node.style


def _check_shape(text: bytes, path: Path) -> None:
    """Refuses a document that is nested too deeply before it is parsed into nodes, because that recurses."""
    depth = nodes = 0
    for event in yaml.parse(text, Loader=_LOADER):
        nodes += isinstance(event, NodeEvent)
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > LEVELS_MAX or nodes > NODES_MAX:
            where = f"{path}:{event.start_mark.line + 1}"
            raise InvalidInput.of(FieldProblem(where, f"at most {LEVELS_MAX} levels and {NODES_MAX} values"))


def dump(document: Mapping[str, Any]) -> str:
    """Returns the document as YAML that ``YamlFile`` reads back unchanged: ambiguous texts are quoted."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110, default_flow_style=False)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        """Turns aliases off, because people read the file."""
        del data
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> ScalarNode:
    escaped = _VARIABLE.sub(lambda found: f"${found[0]}", text)
    node: ScalarNode = yaml.SafeDumper.represent_str(dumper, escaped)
    if not all(char.isprintable() or char == "\n" for char in escaped):
        node.style = '"'  # double quotes write them as escapes
    elif "\n" in escaped:
        node.style = "|"
    elif escaped.lower() in _WORDS or _NUMBER.fullmatch(escaped):
        node.style = "'"  # without quotes it would not be read as a text
    return node


_Dumper.add_representer(str, _represent_text)
