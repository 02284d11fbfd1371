"""The stores that a move reads from and writes to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from paceline.adapters.sqlite.store import SqliteStore
from paceline.ports import Store


@pytest.fixture
def source() -> Iterator[Store]:
    with closing(SqliteStore(":memory:")) as store:
        yield store
        assert store.verify() == []


@pytest.fixture
def target() -> Iterator[Store]:
    with closing(SqliteStore(":memory:")) as store:
        yield store
        assert store.verify() == []


@pytest.fixture
def aws_store() -> Iterator[Store]:
    from paceline.adapters.aws.client import tables
    from paceline.adapters.aws.store import AwsStore
    from tests.aws.support.ministack import delete_tables, fresh_prefix, shared_clients

    clients, prefix = shared_clients(), fresh_prefix()
    tables.create(clients, prefix)
    with closing(AwsStore(prefix, clients=clients)) as store:
        yield store
        assert store.verify() == []
    delete_tables(clients, prefix)
