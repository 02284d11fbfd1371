"""All commands of the command line, as typer knows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import typer

from paceline.shells.cli.app import app


class Command(NamedTuple):
    path: str
    command: Any


def commands() -> Iterator[Command]:
    def walk(command: Any, path: list[str]) -> Iterator[Command]:
        below = getattr(command, "commands", None)
        if not below:
            yield Command(" ".join(path), command)
            return
        for name, inner in below.items():
            yield from walk(inner, [*path, name])

    return walk(typer.main.get_command(app), ["paceline"])
