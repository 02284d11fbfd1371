"""A real boto3 against a real server on loopback: one emulator for each process that tests, a prefix for each test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from paceline.adapters.aws.client.connect import Clients, Threads
from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.queues import Queues
from paceline.adapters.aws.store import AwsStore
from tests.aws.support.lambda_stage import Stage, Target, lambda_stage
from tests.aws.support.ministack import Emulator, fresh_prefix, make_tables, shared_clients, shared_emulator
from tests.aws.support.monitor_stage import with_users


@pytest.fixture(scope="session")
def aws() -> Emulator:
    return shared_emulator()


@pytest.fixture(scope="session")
def clients() -> Clients:
    return shared_clients()


@pytest.fixture
def prefix() -> str:
    """A prefix for one test, so that nothing has to be deleted between tests."""
    return fresh_prefix()


@pytest.fixture
def threads() -> Iterator[Threads]:
    with closing(Threads(4)) as made:
        yield made


@pytest.fixture
def aws_store(clients: Clients, prefix: str) -> Iterator[AwsStore]:
    """An empty store with its tables and queues."""
    make_tables(clients, prefix)
    with closing(AwsStore(prefix, clients=clients)) as store:
        yield store


@pytest.fixture
def database(aws_store: AwsStore) -> DynamoDatabase:
    return aws_store._database


@pytest.fixture
def queues(aws_store: AwsStore) -> Queues:
    return aws_store._queues


@pytest.fixture
def store(aws_store: AwsStore) -> AwsStore:
    """A store with the users ann and bob."""
    with_users(aws_store)
    return aws_store


@pytest.fixture
def silent_bell(store: AwsStore) -> None:
    """Switches alarms after writes off."""
    store.alarms.sends = False


@pytest.fixture
def stage() -> Iterator[Stage]:
    with lambda_stage() as made:
        yield made


@pytest.fixture
def target() -> Iterator[Target]:
    with closing(Target()) as made:
        yield made
