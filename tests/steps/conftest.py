from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.batches.batch import Batch
from paceline.ports import Store
from tests.contract.support.batch_stage import put_provider, put_records
from tests.contract.support.stage import user
from tests.steps.support.scene import RECORDS


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A real file with the users ann and bob; in order at the end, whatever was done."""
    with closing(SqliteStore(str(tmp_path / "store.db"), synchronous="normal")) as store:
        for name in ("ann", "bob"):
            assert store.add_user(user(name))
        yield store
        assert store.verify() == []


@pytest.fixture
def second(store: Store, tmp_path: Path) -> Iterator[Store]:
    """Another process's view of the same file."""
    del store
    with closing(SqliteStore(str(tmp_path / "store.db"), synchronous="normal")) as second:
        yield second


@pytest.fixture
def batch(store: Store) -> Batch:
    """Forty records at three providers, as ``RECORDS`` has them."""
    for name in "abc":
        put_provider(store, name)
    return put_records(store, RECORDS)
