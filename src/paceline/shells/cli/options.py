"""Options that several commands share, and how the options of ``… set`` become the document to put."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

PAGE_MAX = 1_000


def option(metavar: str, help_text: str, *names: str, **more: Any) -> Any:
    """Declares an option with a value. Without a name it has that of its parameter."""
    return typer.Option(*names, metavar=metavar, help=help_text, **more)


def flag(name: str, help_text: str, **more: Any) -> Any:
    """Declares an option without a value."""
    return typer.Option(name, help=help_text, **more)


def argument(metavar: str, help_text: str) -> Any:
    return typer.Argument(metavar=metavar, help=help_text)


ConfigOption = Annotated[
    Path | None, option("FILE", "Settings file. [default: paceline.toml, if there is one]", "--config")
]
StoreOption = Annotated[str | None, option("URL", "Store to open, for example sqlite:///paceline.db.", "--store")]
UrlOption = Annotated[str | None, option("URL", "Another Paceline, asked over REST. [default: $PACELINE_URL]", "--url")]
TokenOption = Annotated[
    str | None, option("TOKEN", "The token for --url. Other users can see it here; better use --token-file.", "--token")
]
TokenFileOption = Annotated[
    Path | None, option("FILE", "A file with the token for --url. [default: $PACELINE_TOKEN]", "--token-file")
]
CaFileOption = Annotated[
    Path | None, option("FILE", "CA certificates to trust for --url, PEM. [default: $PACELINE_CA_FILE]", "--ca-file")
]
JsonOption = Annotated[bool, flag("--json", "Print one JSON document, for programs.")]
UtcOption = Annotated[bool, flag("--utc", "Show exact times, not how far away they are.")]
ReplaceOption = Annotated[
    bool, flag("--replace", "Replace the whole definition: what no option names gets its default.")
]
UserOption = Annotated[str | None, option("USER", "The user. [default: $PACELINE_USER, or the only user]", "--user")]
DefinitionOption = Annotated[Path | None, option("FILE", "The whole definition as JSON; - reads stdin.", "--file")]
ProviderOption = Annotated[str | None, option("PROVIDER", "Only those of this provider.", "--provider")]
PausedOption = Annotated[bool | None, flag("--paused/--no-paused", "Whether the monitor is paused.")]


class PageOptions(NamedTuple):
    """Which page of a list is printed."""

    limit: Annotated[int, option("N", "Most items to list.", "--limit", min=1, max=PAGE_MAX)] = 100
    cursor: Annotated[
        str | None, option("CURSOR", "Where this page begins: the cursor that the last page printed.", "--cursor")
    ] = None


LONGEST_PAGE = PageOptions(PAGE_MAX)


def given(options: NamedTuple, paths: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Returns the options that were given as the JSON document of the API, so that one parser checks both.

    None stands for an option that was not given. ``paths`` names options that are elsewhere in the document:
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
    """Returns the document that ``… set`` puts without ``--replace``: the existing one with the changes applied.

    Objects are merged field by field.
    """
    return {**there} | {
        name: (there.get(name) or {}) | value if isinstance(value, dict) else value for name, value in changes.items()
    }
