"""Options that several commands share, and how the options of ``… set`` become the document to put."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

PAGE_MAX = 1_000

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Settings file. [default: paceline.toml, if there is one]"),
]
StoreOption = Annotated[
    str | None, typer.Option("--store", metavar="URL", help="Store to open, for example sqlite:///paceline.db.")
]
UrlOption = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="A Paceline elsewhere, asked over REST. [default: $PACELINE_URL]"),
]
TokenOption = Annotated[
    str | None, typer.Option("--token", metavar="TOKEN", help="For --url; others can read it here. See --token-file.")
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="A file with the token for --url. [default: $PACELINE_TOKEN]"),
]
CaFileOption = Annotated[
    Path | None,
    typer.Option(
        "--ca-file", metavar="FILE", help="CA certificates to trust for --url, PEM. [default: $PACELINE_CA_FILE]"
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document, for programs.")]
UtcOption = Annotated[bool, typer.Option("--utc", help="Show exact times, not how far away they are.")]
ReplaceOption = Annotated[
    bool, typer.Option("--replace", help="Replace the whole definition: what no option names gets its default.")
]
UserOption = Annotated[
    str | None,
    typer.Option(
        "--user", metavar="USER", help="The user it is about. [default: $PACELINE_USER, or the only user there is]"
    ),
]
DefinitionOption = Annotated[
    Path | None, typer.Option("--file", metavar="FILE", help="The whole definition as JSON; - reads stdin.")
]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=PAGE_MAX, metavar="N", help="How many at most.")]
CursorOption = Annotated[
    str | None, typer.Option("--cursor", metavar="CURSOR", help="Where the next page begins, as the last one said.")
]
ProviderOption = Annotated[
    str | None, typer.Option("--provider", metavar="PROVIDER", help="Only those of this provider.")
]
PausedOption = Annotated[bool | None, typer.Option("--paused/--no-paused", help="Paused, or not.")]


def given(options: NamedTuple, paths: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The options that were given, as the JSON document that the API would get, so that one parser judges both.

    None stands for an option that was not given. An option named in ``paths`` stands elsewhere in the document:
    ``{"retry_base": "retry.base"}``.
    """
    document: dict[str, Any] = {}
    for name, value in options._asdict().items():
        if value is not None:
            *outer, last = (paths or {}).get(name, name).split(".")
            place = document
            for part in outer:
                place = place.setdefault(part, {})
            place[last] = value
    return document


def merged(there: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what ``… set`` puts without ``--replace``: the document that is there with the changes applied.

    Inside an object the same holds field by field.
    """
    return {**there} | {
        name: (there.get(name) or {}) | value if isinstance(value, dict) else value for name, value in changes.items()
    }
