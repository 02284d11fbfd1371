"""Names, which are computed and not drawn: the same thing gets the same name however often it is made."""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple
from urllib.parse import quote, unquote

from paceline.errors import FieldProblem

ID_CHARS_MAX = 128
ID_RULE = f"1 to {ID_CHARS_MAX} of A-Z a-z 0-9 . _ : @ + = ~ -, beginning with a letter or digit"
ID_PATTERN = rf"[A-Za-z0-9][A-Za-z0-9._:@+=~-]{{0,{ID_CHARS_MAX - 1}}}"
_ID = re.compile(ID_PATTERN)
_RUN = re.compile(r"([^/#]+)/([^/#]+)#(\d{1,18})@(\d{1,18})")
_PLAIN = re.compile(r"[A-Za-z0-9._~-]*")  # what quote leaves as it is
_PLAIN_CALL_RUN = re.compile(r"[A-Za-z0-9._~-]*/[A-Za-z0-9._~-]*@[0-9~-]*")
_CALL_RUN = re.compile(r"([^/#@]+)/([^/#@]+)@(\d{4}-\d{2}-\d{2}(?:~[1-9]\d?)?)")


class RunName(NamedTuple):
    """Parts of a run's id."""

    owner: str
    monitor: str
    generation: int
    counter: int


class CallRunName(NamedTuple):
    """Parts of the id of a batch's run. ``date`` is "2026-11-15", or "2026-11-15~1" for its first rerun."""

    batch: str
    record: str
    date: str


def id_problem(value: str, pointer: str) -> FieldProblem | None:
    """Return why this cannot be an id, or None."""
    if _ID.fullmatch(value):
        return None
    return FieldProblem(pointer, f"use {ID_RULE}")


@lru_cache(maxsize=16_384)
def entry_key(owner: str, monitor: str) -> str:
    """Return the global name of an entry. Parts are escaped, so (1, 2-3), (1-2, 3) and even (1/2, 3) never collide."""
    return f"{quote(owner, safe='')}/{quote(monitor, safe='')}"


def run_id(owner: str, monitor: str, *, generation: int, counter: int) -> str:
    return f"{entry_key(owner, monitor)}#{generation}@{counter}"


def parse_run_id(text: str) -> RunName | None:
    """Return the parts of a run's id; None for a text that ``run_id`` never makes."""
    match = _RUN.fullmatch(text) if text.isascii() else None
    if match is None:
        return None
    owner, monitor, generation, counter = match.groups()
    name = RunName(unquote(owner), unquote(monitor), int(generation), int(counter))
    return name if run_id(name.owner, name.monitor, generation=name.generation, counter=name.counter) == text else None


def call_run_id(batch: str, record: str, date: str) -> str:
    """Return the id of a batch's run: one record, one day. Parts are escaped as in ``entry_key``."""
    text = f"{batch}/{record}@{date}"
    if _PLAIN_CALL_RUN.fullmatch(text):  # nearly always true, so one match serves all parts
        return text
    return f"{_escaped(batch)}/{_escaped(record)}@{date}"


def parse_call_run_id(text: str) -> CallRunName | None:
    """Return the parts of the id of a batch's run; None for a text that ``call_run_id`` never makes."""
    match = _CALL_RUN.fullmatch(text) if text.isascii() else None
    if match is None:
        return None
    name = CallRunName(unquote(match[1]), unquote(match[2]), match[3])
    return name if call_run_id(*name) == text else None


def _escaped(part: str) -> str:
    return part if _PLAIN.fullmatch(part) else quote(part, safe="")


def stable_fraction(name: str) -> float:
    """Return a number in [0, 1) that depends on the name alone: tomorrow's jitter is today's."""
    return int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()) / 2**64
