"""Shapes of the client's types, and how they differ from the schemas of ``/openapi.json``."""

from __future__ import annotations

import ast
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, is_typeddict

import msgspec

from paceline_client.answers import Page
from paceline_client.calls import Call, Pages, Resource, Stream, listing, operation
from paceline_client.models import checks, states
from paceline_client.resources.jobs import JobHandle

Schema = dict[str, Any]
REF = "#/components/schemas/"
FREE = frozenset({"any"})
JSON_TYPES = {str: "string", int: "integer", bool: "boolean", type(None): "null"}
TEXTS = (datetime, date, timedelta)


# -- what the client has


class Method(typing.NamedTuple):
    """A method of the client, and the call that it describes when every argument is given."""

    name: str
    describe: Callable[..., Any]
    call: Call[Any]
    paged: bool


def methods(client: Resource[Any]) -> Iterator[Method]:
    """Every operation of a client and of its resources, but for plans of several."""
    parts = {"": client} | {name: part for name, part in vars(client).items() if isinstance(part, Resource)}
    parts["jobs.open()"] = JobHandle(client._transport, "job")
    for name, part in parts.items():
        for attribute in dir(type(part)):
            found = inspect.getattr_static(type(part), attribute)
            if isinstance(found, operation | listing):
                for call, paged in calls(part, found.describe):
                    yield Method(f"{name}.{attribute}", found.describe, call, paged)


def calls(part: Resource[Any], describe: Callable[..., Any]) -> Iterator[tuple[Call[Any], bool]]:
    """Twice: a truth may only be told in one of its two values."""
    for truth in (True, False):
        described = describe(part, **arguments(describe, truth=truth))
        if isinstance(described, Pages):
            yield described.first, True
        elif isinstance(described, Stream):
            yield described.call, False
        else:
            yield next(iter(described)), False


def arguments(describe: Callable[..., Any], *, truth: bool) -> dict[str, Any]:
    """A value for every parameter."""
    given: dict[str, Any] = {}
    for name, parameter in list(inspect.signature(describe).parameters.items())[1:]:
        hint = hints(describe)[name]
        if parameter.kind is parameter.VAR_KEYWORD:
            given |= dict.fromkeys(fields(get_args(hint)[0]), "x")
        else:
            given[name] = sample(hint, name, truth=truth)
    return given


def sample(hint: Any, name: str, *, truth: bool) -> Any:
    for one in options(hint):
        origin = get_origin(one) or one
        if is_typeddict(one):
            return dict.fromkeys(fields(one), "x")
        if origin is bool:
            return truth
        if origin is int:
            return 1
        if origin in (str, date, timedelta):
            return "2026-11-20" if date in options(hint) else "5s" if timedelta in options(hint) else name
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return {}
        if isinstance(origin, type) and issubclass(origin, Iterable):
            return [sample(get_args(one)[0], name, truth=truth)]
        if get_origin(one) is Literal:
            return get_args(one)[0]
    return None


# -- types


@cache
def closed_words() -> dict[str, Any]:
    """The sets of words that only type checkers see, and the check's documents in place of a plain one."""
    tree = ast.parse(Path(states.__file__).read_text())
    (branch,) = [node for node in tree.body if isinstance(node, ast.If)]
    names: dict[str, Any] = {"Literal": Literal}
    exec(compile(ast.Module(branch.body, []), states.__file__, "exec"), names)  # noqa: S102
    del names["__builtins__"]
    return names | {"Check": checks.CheckDocument}


def hints(holder: Any) -> dict[str, Any]:
    """Annotations as a type checker sees them."""
    if isinstance(holder, type):
        return typing.get_type_hints(holder, localns=closed_words(), include_extras=False)
    names = vars(inspect.getmodule(holder)) | closed_words()
    return {name: eval(text, names) for name, text in holder.__annotations__.items() if name != "return"}  # noqa: S307


def fields(type_: Any) -> dict[str, Any]:
    """The fields of a document or a model."""
    found = {name: hint for name, hint in hints(type_).items() if name in names_of(type_)}
    if is_typeddict(type_):
        return found
    written = dict(zip(type_.__struct_fields__, type_.__struct_encode_fields__, strict=True))
    return {written[name]: hint for name, hint in found.items()}


def names_of(type_: Any) -> set[str]:
    if is_typeddict(type_):
        return set(type_.__required_keys__ | type_.__optional_keys__)
    return set(type_.__struct_fields__)


def options(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the one type."""
    if get_origin(hint) in (Union, types.UnionType):
        return tuple(inner for one in get_args(hint) for inner in options(one))
    return (hint,)


def is_model(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def is_list(hint: Any) -> bool:
    origin = get_origin(hint)
    return isinstance(origin, type) and issubclass(origin, Iterable) and not issubclass(origin, Mapping)


def is_mapping(hint: Any) -> bool:
    origin = get_origin(hint)
    return isinstance(origin, type) and issubclass(origin, Mapping)


def json_types(hint: Any) -> frozenset[str]:
    """What JSON a type stands for; ``any`` among them: whatever it is."""
    found: set[str] = set()
    for one in options(hint):
        origin = get_origin(one) or one
        if one is Any:
            return FREE
        if origin is Literal:
            found |= {JSON_TYPES[type(value)] for value in get_args(one)}
        elif one is float:
            found |= {"number", "integer"}
        elif is_list(one):
            found.add("array")
        elif isinstance(origin, type) and issubclass(origin, TEXTS):
            found.add("string")
        else:
            found.add(JSON_TYPES.get(one, "object"))
    return frozenset(found)


# -- schemas


class Comparison:
    """Walks schemas and types side by side, and keeps what differs."""

    def __init__(self, document: Schema) -> None:
        self.schemas: Mapping[str, Schema] = document["components"]["schemas"]
        self.seen: set[str] = set()
        self.wrong: list[str] = []

    def resolve(self, schema: Schema) -> Schema:
        while "$ref" in schema:
            name = schema["$ref"].removeprefix(REF)
            self.seen.add(name)
            schema = self.schemas[name]
        return schema

    def branches(self, schema: Schema) -> list[Schema]:
        """The alternatives of a schema, each resolved."""
        schema = self.resolve(schema)
        for word in ("anyOf", "oneOf"):
            if word in schema and "properties" not in schema:
                return [branch for one in schema[word] for branch in self.branches(one)]
        return [schema]

    def json_types(self, schema: Schema) -> frozenset[str]:
        found: set[str] = set()
        for one in self.branches(schema):
            if "enum" in one or "const" in one:
                found |= {JSON_TYPES[type(value)] for value in one.get("enum", [one.get("const")])}
            elif "type" in one:
                found |= {one["type"]} if isinstance(one["type"], str) else set(one["type"])
            else:
                return FREE
        return frozenset(found)

    def compare(self, schema: Schema, hint: Any, where: str, *, answer: bool, optional: bool = False) -> None:
        """``answer``: the client reads it, else it writes it. ``optional``: it may be left out; then it is None."""
        theirs, ours = self.json_types(schema), json_types(hint)
        left_out = {"null"} if optional or not answer else set()
        whole = {"integer"} if "number" in theirs else set()
        if FREE not in (theirs, ours) and (theirs - left_out) | whole != (ours - left_out) | whole:
            self.wrong.append(f"{where}: {sorted(theirs)} in the schema, {sorted(ours)} in the client")
            return
        self._compare_words(schema, hint, where)
        self._compare_format(schema, hint, where, answer=answer)
        objects = [one for one in self.branches(schema) if "properties" in one]
        documents = [one for one in options(hint) if is_typeddict(one) or is_model(one)]
        if len(documents) == 1 and objects:
            self.compare_fields(merged(objects), documents[0], where, answer=answer)
        elif documents and objects:
            self._compare_kinds(objects, documents, where, answer=answer)
        elif ours != FREE and any("," in tag_of_schema(one) for one in objects):
            # A document of one kind, such as a check that is handed over, may be a plain one.
            self.wrong.append(f"{where}: the client has no type for it")
        for one in options(hint):
            for array in self.branches(schema) if is_list(one) else ():
                if "items" in array:
                    self.compare(array["items"], get_args(one)[0], f"{where}[]", answer=answer)
            for mapping in self.branches(schema) if is_mapping(one) else ():
                if isinstance(values := mapping.get("additionalProperties"), dict):
                    self.compare(values, get_args(one)[1], f"{where}{{}}", answer=answer)

    def compare_fields(self, schema: Schema, type_: Any, where: str, *, answer: bool) -> None:
        ours, theirs = fields(type_), schema["properties"]
        self.compare_names(set(theirs), set(ours) - {"etag"}, f"{where} ({type_.__name__})")
        for name in set(theirs) & set(ours):
            if theirs[name]:
                optional = name not in schema.get("required", ())
                self.compare(theirs[name], ours[name], f"{where}.{name}", answer=answer, optional=optional)

    def compare_names(self, theirs: set[str], ours: set[str], where: str) -> None:
        if theirs - ours:
            self.wrong.append(f"{where}: the client lacks {sorted(theirs - ours)}")
        if ours - theirs:
            self.wrong.append(f"{where}: the service does not have {sorted(ours - theirs)}")

    def _compare_kinds(self, objects: Sequence[Schema], documents: Sequence[Any], where: str, *, answer: bool) -> None:
        """Alternatives are told apart by the one word that each allows for a field, such as ``kind``."""
        theirs = {tag_of_schema(one): one for one in objects}
        ours = {tag_of_type(one): one for one in documents}
        self.compare_names(set(theirs), set(ours), f"{where}, kinds")
        for tag in set(theirs) & set(ours):
            self.compare_fields(theirs[tag], ours[tag], f"{where}<{tag}>", answer=answer)

    def _compare_words(self, schema: Schema, hint: Any, where: str) -> None:
        theirs = {
            word for one in self.branches(schema) for word in one.get("enum", [one["const"]] if "const" in one else ())
        }
        ours = {word for one in options(hint) if get_origin(one) is Literal for word in get_args(one)}
        if (ours or len(theirs) > 1) and theirs and theirs != ours:
            self.wrong.append(f"{where}: {sorted(theirs)} in the schema, {sorted(ours)} in the client")

    def _compare_format(self, schema: Schema, hint: Any, where: str, *, answer: bool) -> None:
        formats = {one["format"] for one in self.branches(schema) if "format" in one}
        for format_, type_ in (("date-time", datetime), ("date", date)):
            if answer and format_ in formats and type_ not in options(hint):
                self.wrong.append(f"{where}: {format_} in the schema, but no {type_.__name__} in the client")


def merged(objects: Sequence[Schema]) -> Schema:
    """One schema with the fields of all, such as of a monitor with an interval and of one with cron."""
    properties = {name: field for one in objects for name, field in one["properties"].items()}
    required = set[str].intersection(*(set(one.get("required", ())) for one in objects))
    return {"type": "object", "properties": properties, "required": sorted(required)}


def tag_of_schema(schema: Schema) -> str:
    for name in ("kind", "type"):
        words = schema["properties"].get(name, {})
        if "const" in words or len(words.get("enum", ())) == 1:
            return str(words.get("const") or words["enum"][0])
    return ",".join(sorted(schema["properties"]))


def tag_of_type(type_: Any) -> str:
    for name in ("kind", "type"):
        words = get_args(fields(type_).get(name))
        if len(words) == 1:
            return str(words[0])
    return ",".join(sorted(names_of(type_) - {"etag"}))


def answer_type(call: Call[Any]) -> Any:
    """What one answer is; for a page, its items."""
    type_ = getattr(call.answer, "type", None)
    return get_args(type_)[0] if get_origin(type_) is Page else type_
