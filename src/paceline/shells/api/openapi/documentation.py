"""Pages about the API, /docs and /openapi.json. They are made once and load nothing from other sites."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from html import escape
from typing import Any

import msgspec

from paceline.shells.api.http.answers import ApiAnswer, text_answer
from paceline.shells.api.http.context import ApiCall
from paceline.shells.api.http.problems import CODES
from paceline.shells.api.http.route import Route, RouteGroup
from paceline.shells.api.openapi.document import openapi_document

_STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
code,pre{font:14px/1.4 ui-monospace,monospace}
h2{border-bottom:1px solid #8886;margin-top:2.5rem}
table{border-collapse:collapse;width:100%}
td,th{text-align:left;vertical-align:top;padding:.2rem .8rem .2rem 0;border-bottom:1px solid #8883}
details{margin:.4rem 0;border:1px solid #8884;border-radius:.4rem;padding:.4rem .8rem}
summary{cursor:pointer}
.method{display:inline-block;min-width:4.5rem;font-weight:700}
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_CODE = re.compile(r"`([^`]*)`")


def documentation_routes(routes: Iterable[Route]) -> tuple[Route, ...]:
    """Returns the routes of both pages. They are no part of the table of routes, because they describe it."""
    document = openapi_document(routes)
    return (
        _page("/openapi.json", "openapi", "application/json", msgspec.json.encode(document)),
        _page("/docs", "docs", "text/html; charset=utf-8", docs_page(document).encode()),
    )


def docs_page(document: dict[str, Any]) -> str:
    """Returns the OpenAPI document as a page to read."""
    groups: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            groups.setdefault(operation["tags"][0], []).append(_operation(method.upper(), path, operation))
    schemas = document["components"]["schemas"]
    return _html(
        "Paceline API",
        "".join(
            [
                f"<h1>Paceline API {_text(document['info']['version'])}</h1>",
                "<p>Send <code>Authorization: Bearer &lt;token&gt;</code>. ",
                'For programs: <a href="/openapi.json">/openapi.json</a>.</p>',
                *(f"<h2>{_text(group)}</h2>{''.join(parts)}" for group, parts in groups.items()),
                "<h2>Errors</h2>",
                _errors(),
                "<h2>Schemas</h2>",
                *(_schema(name, schema) for name, schema in schemas.items()),
            ]
        ),
    )


def _page(path: str, name: str, content_type: str, body: bytes) -> Route:
    policy = _POLICY if content_type.startswith("text/html") else None
    answer = text_answer(200, body, content_type, policy=policy)

    async def show(call: ApiCall) -> ApiAnswer:
        del call
        return answer

    group = RouteGroup("Documentation")
    return Route(group, "GET", path, {200: content_type}, access="open", handler=show, summary=name)


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    parameters = "".join(
        f"<tr><td><code>{_text(p['name'])}</code></td><td>{_text(p['in'])}</td><td>{_text(p['description'])}</td></tr>"
        for p in operation.get("parameters", ())
    )
    body = operation.get("requestBody")
    responses = "".join(
        f"<tr><td>{_text(status)}</td><td>{_text(response['description'])}</td><td>{_link(response)}</td></tr>"
        for status, response in operation["responses"].items()
    )
    return "".join(
        [
            f'<details><summary><span class="method">{_text(method)}</span> <code>{_text(path)}</code> ',
            f"{_text(operation['summary'])}</summary>",
            f"<p>{_text(operation['description'])}</p>" if "description" in operation else "",
            f"<table><tr><th>Parameter</th><th>In</th><th></th></tr>{parameters}</table>" if parameters else "",
            f"<p>Body: {_link(body)}</p>{_body_example(body)}" if body else "",
            f"<table><tr><th>Status</th><th></th><th>Body</th></tr>{responses}</table></details>",
        ]
    )


def _body_example(body: dict[str, Any]) -> str:
    """Returns the first example of the body, as HTML."""
    example, *_ = body["content"]["application/json"]["examples"].values()
    return f"<pre>{escape(_json(example['value']))}</pre>"


def _link(holder: dict[str, Any]) -> str:
    """Returns a link to the schema of the holder's content, or nothing if that schema has no name."""
    for media in holder.get("content", {}).values():
        name = media["schema"].get("$ref", "").rpartition("/")[2]
        if name:
            return f'<a href="#schema-{_text(name)}">{_text(name)}</a>'
    return ""


def _errors() -> str:
    rows = "".join(
        f'<tr id="error-{_text(code)}"><td><code>{_text(code)}</code></td><td>{error.status}</td>'
        f"<td>{_text(error.title)}.</td></tr>"
        for code, error in CODES.items()
    )
    return f"<table><tr><th>Code</th><th>Status</th><th></th></tr>{rows}</table>"


def _schema(name: str, schema: dict[str, Any]) -> str:
    linked = re.sub(r"#/components/schemas/(\w+)", r'<a href="#schema-\1">\1</a>', escape(_json(schema)))
    return (
        f'<details id="schema-{_text(name)}"><summary><code>{_text(name)}</code></summary><pre>{linked}</pre></details>'
    )


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _html(title: str, body: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{_text(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>'
        f"<body>{body}</body></html>"
    )


def _text(text: str) -> str:
    """Returns the text escaped, with the parts in backticks as code."""
    return _CODE.sub(r"<code>\1</code>", escape(text))
