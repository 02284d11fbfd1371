"""Turns a function that takes a connection into a method of the store: one function in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar
from weakref import WeakKeyDictionary

from paceline.adapters.sqlite.database import MEMORY, Connection, SqliteDatabase

P = ParamSpec("P")
T = TypeVar("T")


class HasDatabase(Protocol):
    """A store, as far as its methods need it."""

    @property
    def _db(self) -> SqliteDatabase: ...


Act = Callable[Concatenate[Connection, P], T]
Method = Callable[Concatenate[HasDatabase, P], T]


def writes(act: Act[P, T]) -> Method[P, T]:
    """Return a method that runs ``act`` in one write transaction and returns its result."""

    @wraps(act)
    def method(self: HasDatabase, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._db.write() as db:
            return act(db, *args, **kwargs)

    return method


def reads(act: Act[P, T]) -> Method[P, T]:
    """Return a method that runs ``act`` on one consistent view of the store."""

    @wraps(act)
    def method(self: HasDatabase, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._db.read() as db:
            return act(db, *args, **kwargs)

    return method


def peeks(act: Act[P, T]) -> Method[P, T]:
    """Return a method that runs ``act``, a single statement, without a transaction around it."""

    @wraps(act)
    def method(self: HasDatabase, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._db.peek() as db:
            return act(db, *args, **kwargs)

    return method


def cached_peeks(act: Callable[[Connection], T]) -> Callable[[HasDatabase], T]:
    """Return a method that runs ``act``, a single statement, only if something was committed since the last time.

    For reads that loops repeat several times a second. ``act`` must not depend on the time.
    """
    kept: WeakKeyDictionary[SqliteDatabase, tuple[bytes, T]] = WeakKeyDictionary()

    @wraps(act)
    def method(self: HasDatabase, /) -> T:
        mark = self._db.commit_mark()  # before the statement: a commit in between then counts for the next call
        before = kept.get(self._db)
        if mark is not None and before is not None and before[0] == mark:
            return before[1]
        with self._db.peek() as db:
            found = act(db)
        if mark is not None:
            kept[self._db] = (mark, found)
        return found

    return method


def streams(act: Callable[[Connection], Iterator[T]]) -> Callable[[HasDatabase], Iterator[T]]:
    """Return a method that yields what ``act`` yields, from one consistent view of the store.

    The view is open until the last value is taken. A store in memory has one connection, so its values are collected
    before the first one is yielded.
    """

    @wraps(act)
    def method(self: HasDatabase, /) -> Iterator[T]:
        if self._db.path == MEMORY:
            with self._db.read() as db:
                found = list(act(db))
            yield from found
            return
        with self._db.snapshot() as db:
            yield from act(db)

    return method
