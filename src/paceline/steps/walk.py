"""Walks through a list that a store reads in order of id, a page at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeVar

PAGE = 1_000
PAGES_MAX = 1_000_000


class HasId(Protocol):
    @property
    def id(self) -> str: ...


T = TypeVar("T", bound=HasId)


class ReadPage(Protocol[T]):
    """Function that reads the first ``limit`` items whose id is after ``after``."""

    def __call__(self, *, after: str, limit: int) -> list[T]: ...


def walk(read: ReadPage[T], *, page: int = PAGE) -> Iterator[T]:
    """Yield the whole list. Items that are added meanwhile may be in it or not."""
    for found in walk_pages(read, page=page):
        yield from found


def walk_pages(read: ReadPage[T], *, page: int = PAGE) -> Iterator[list[T]]:
    """Yield the list page by page; no page is empty."""
    after = ""
    for _ in range(PAGES_MAX):
        if found := read(after=after, limit=page):
            yield found
        if len(found) < page:
            return
        after = found[-1].id
