"""Turns a function that takes a connection into a method of the store: one transaction around one function."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from paceline.adapters.sqlite.database import Connection, Database

P = ParamSpec("P")
T = TypeVar("T")


class HasDatabase(Protocol):
    """A store, as its methods see it."""

    @property
    def _db(self) -> Database: ...


Act = Callable[Concatenate[Connection, P], T]
Method = Callable[Concatenate[HasDatabase, P], T]


def writes(act: Act[P, T]) -> Method[P, T]:
    """A method that runs ``act`` in one write transaction and returns what it returns."""

    @wraps(act)
    def method(self: HasDatabase, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._db.write() as db:
            return act(db, *args, **kwargs)

    return method


def reads(act: Act[P, T]) -> Method[P, T]:
    """A method that runs ``act`` on one consistent view of the store."""

    @wraps(act)
    def method(self: HasDatabase, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._db.read() as db:
            return act(db, *args, **kwargs)

    return method


def peeks(act: Act[P, T]) -> Method[P, T]:
    """A method that runs ``act``, a single statement, without a transaction around it."""

    @wraps(act)
    def method(self: HasDatabase, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._db.peek() as db:
            return act(db, *args, **kwargs)

    return method
