"""Every store stands on the same stage. A new engine adds itself to ENGINES and must pass everything here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from paceline.adapters.sqlite.store import SqliteStore
from paceline.ports import Store
from tests.contract.stage import user

Opener = Callable[[], Store]
"""Each call gives a further handle on the same data: another process's view, where the engine knows such a thing."""


def memory_engine(stack: ExitStack, folder: Path) -> Opener:
    del folder
    store = stack.enter_context(closing(SqliteStore(":memory:")))
    return lambda: store


def file_engine(stack: ExitStack, folder: Path) -> Opener:
    path = str(folder / "store.db")
    # The disk's patience is not under test here.
    return lambda: stack.enter_context(closing(SqliteStore(path, synchronous="normal")))


ENGINES = {"sqlite-memory": memory_engine, "sqlite-file": file_engine}


@pytest.fixture(params=sorted(ENGINES))
def store_factory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    with ExitStack() as stack:
        yield ENGINES[request.param](stack, tmp_path)


@pytest.fixture
def store(store_factory: Opener) -> Iterator[Store]:
    """A store with the users ann and bob. Whatever a scene did, the promises' invariants hold at its end."""
    store = store_factory()
    for name in ("ann", "bob"):
        assert store.add_user(user(name))
    yield store
    assert store.verify() == []


@pytest.fixture
def other(store_factory: Opener, store: Store) -> Store:
    """A second handle on the same data."""
    del store  # opened first, so that it made the schema
    return store_factory()
