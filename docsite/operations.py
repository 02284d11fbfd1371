"""Renders the OpenAPI document as pages to read: one for each group of operations, one for all schemas."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import escape
from typing import Any

from paceline.shells.api.openapi.document import openapi_document
from paceline.shells.api.routes import ROUTES

FOLDER = "reference/operations"
Doc = dict[str, Any]


def operation_pages() -> dict[str, str]:
    """Returns name and Markdown of each page, in the order of the document's groups; the schemas come last."""
    document = openapi_document(ROUTES)
    pages = {f"{FOLDER}/{_slug(tag['name'])}.md": _group(tag["name"], document) for tag in document["tags"]}
    return pages | {f"{FOLDER}/schemas.md": "".join(_schemas(document))}


def _group(name: str, document: Doc) -> str:
    parts = [
        f"# {name}\n\nMade from `/openapi.json`. How answers, errors and pages of lists work: [REST API](../api.md).\n"
    ]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if operation["tags"][0] == name:
                parts += _operation(method.upper(), path, operation, document)
    return "\n".join(parts)


def _operation(method: str, path: str, operation: Doc, document: Doc) -> Iterator[str]:
    yield f"\n## {method} {path} {{ #{operation['operationId']} }}\n"
    yield operation["summary"] + "\n"
    if "description" in operation:
        yield operation["description"] + "\n"
    if parameters := operation.get("parameters"):
        yield "| parameter | in | |\n|---|---|---|"
        for one in parameters:
            yield f"| `{one['name']}` | {one['in']} | {_cell(one['description'])} |"
        yield ""
    if body := operation.get("requestBody"):
        for media, content in body["content"].items():
            yield f"Body, `{media}`{_schema_link(content)}:\n"
            yield from _examples(content, document)
    yield from _answers(operation["responses"], document)


def _answers(responses: Doc, document: Doc) -> Iterator[str]:
    yield "| status | | body |\n|---|---|---|"
    shown: list[str] = []
    for status, response in responses.items():
        contents = response.get("content", {})
        links = ", ".join(f"`{media}`{_schema_link(content)}" for media, content in contents.items())
        yield f"| {status} | {_cell(response['description'])} | {links} |"
        if status.startswith("2"):
            shown += [text for content in contents.values() for text in _examples(content, document)]
    yield ""
    if shown:
        yield "An answer:\n"
        # 200 and 201 of an operation have the same answer.
        yield from dict.fromkeys(shown)


def _examples(content: Doc, document: Doc) -> Iterator[str]:
    for example in content.get("examples", {}).values():
        if "$ref" in example:
            example = document["components"]["examples"][example["$ref"].rpartition("/")[2]]  # noqa: PLW2901  what it names
        value = example["value"]
        text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
        yield f"```{'text' if isinstance(value, str) else 'json'}\n{text.rstrip()}\n```\n"


def _schemas(document: Doc) -> Iterator[str]:
    yield "# Schemas\n\nThe shapes of bodies and answers, as `/openapi.json` has them.\n"
    for name, schema in document["components"]["schemas"].items():
        text = escape(json.dumps(schema, indent=2, ensure_ascii=False))
        linked = re.sub(r"#/components/schemas/(\w+)", lambda ref: f'<a href="#{_anchor(ref[1])}">{ref[1]}</a>', text)
        yield f"\n## {name} {{ #{_anchor(name)} }}\n\n<pre><code>{linked}</code></pre>\n"


def _schema_link(content: Doc) -> str:
    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    return f" ([{name}](schemas.md#{_anchor(name)}))" if name else ""


def _anchor(name: str) -> str:
    return f"schema-{name}"


def _slug(name: str) -> str:
    return name.lower().replace(" ", "-")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
