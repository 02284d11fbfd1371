"""Finds stores, and makes the message for a command that found none where it looked."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import islice
from pathlib import Path

from paceline.config import DEFAULT_FILE, aws_prefix
from paceline.errors import StoreUnavailable
from paceline.wiring import aws_prefixes, has_store

SQLITE = "sqlite:///"
DEMO = "-demo"
FILES_MAX = 500
"""Most files of a folder that are tried."""
PARENTS_MAX = 4
NAMED_MAX = 3


def demo_store(url: str) -> str:
    """Returns the demo's own store: beside the configured file, or in this folder if that store is on AWS."""
    if aws_prefix(url) is not None or url == f"{SQLITE}:memory:":
        url = f"{SQLITE}paceline.db"
    path = Path(url.removeprefix(SQLITE))
    return url if path.stem.endswith(DEMO) else f"{SQLITE}{path.with_stem(path.stem + DEMO)}"


def refuse_unreadable(url: str) -> None:
    """StoreUnavailable for a file that is there and cannot be read: nobody can tell whether it is a store."""
    path = Path(url.removeprefix(SQLITE))
    if aws_prefix(url) is None and path.is_file() and not os.access(path, os.R_OK):
        raise StoreUnavailable(f"{path} cannot be read: check its permissions, or run this as its owner.")


def no_store_text(url: str) -> str:
    """Returns which store was looked for, where one might be, and how to make one."""
    if aws_prefix(url) is not None:
        others = [f"aws://?prefix={prefix}" for prefix in aws_prefixes()]
        make = f"Make them: paceline aws init --store '{url}'; or set another region."
        return f"There is no store at {url}: its tables are missing. {_perhaps(url, others)}{make}"
    path = Path(url.removeprefix(SQLITE))
    there = f" (that {'folder' if path.is_dir() else 'file'} is no store of Paceline)" if path.exists() else ""
    what = f"There is no store at {url}, which is {path.absolute()}{there}."
    return f"{what} {_perhaps(url, _nearby(path))}To make a new one: paceline up, or paceline user add NAME."


def _perhaps(url: str, others: list[str]) -> str:
    """Returns the hint at other stores, the likeliest first: those with a similar name, and the demo's last."""

    def distance(other: str) -> tuple[bool, float]:
        names = Path(url).name, Path(other).name
        return Path(other).stem.endswith(DEMO), -SequenceMatcher(None, *names).ratio()

    found = sorted(dict.fromkeys(other for other in others if other != url), key=distance)[:NAMED_MAX]
    if not found:
        return ""
    return f"There is one at {' and one at '.join(found)}: name it with --store or PACELINE_STORE. "


def _nearby(path: Path) -> list[str]:
    """Returns stores in the folder of the one looked for, in this folder, and in the folders above it."""
    here = Path.cwd()
    folders = dict.fromkeys([path.absolute().parent, here])
    candidates = [file for folder in folders for file in _files(folder)]
    for folder in (here, *islice(here.parents, PARENTS_MAX)):
        candidates += _configured(folder)
    return [_url_of(file, here) for file in dict.fromkeys(candidates) if has_store(f"{SQLITE}{file}")]


def _files(folder: Path) -> list[Path]:
    try:
        return [file for file in islice(folder.iterdir(), FILES_MAX) if file.is_file()]
    except OSError:
        return []


def _configured(folder: Path) -> Iterator[Path]:
    """Yields the store that a folder's settings file names, and the one that is there without settings."""
    yield folder / "paceline.db"
    yield folder / f"paceline{DEMO}.db"
    try:
        url = tomllib.loads((folder / DEFAULT_FILE).read_text()).get("store")
    except (OSError, ValueError):
        return
    if isinstance(url, str) and url.startswith(SQLITE):
        yield folder / url.removeprefix(SQLITE)


def _url_of(file: Path, here: Path) -> str:
    return f"{SQLITE}{file.name if file.parent == here else file}"
