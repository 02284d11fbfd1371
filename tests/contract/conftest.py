"""Every store stands on the same stage. A new engine adds itself to ENGINES and must pass everything here.

``PACELINE_TEST_STORE=aws`` (or ``sqlite``) runs the contract on that engine alone; without it, it runs on all.
``PACELINE_TEST_STORE=storm`` runs it on AWS while requests and answers are lost, doubled, late, throttled and halved;
``PACELINE_TEST_SEED`` chooses another storm.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from paceline.adapters.sqlite.store import SqliteStore
from paceline.ports import Store
from tests.contract.support.stage import user

Opener = Callable[[], Store]
"""Each call gives a further handle on the same data: another process's view, where the engine knows such a thing."""


def memory_engine(stack: ExitStack, folder: Path) -> Opener:
    del folder
    store = stack.enter_context(closing(SqliteStore(":memory:")))
    return lambda: store


def file_engine(stack: ExitStack, folder: Path) -> Opener:
    path = str(folder / "store.db")
    # Durability on disk is not under test here.
    return lambda: stack.enter_context(closing(SqliteStore(path, synchronous="normal")))


def aws_engine(stack: ExitStack, folder: Path) -> Opener:
    """The emulator is one for the whole process; each test has tables and queues of its own in it, and leaves them."""
    from paceline.adapters.aws.store import AwsStore
    from tests.aws.support.ministack import fresh_prefix, make_tables, shared_clients

    del folder
    clients, prefix = shared_clients(), fresh_prefix()
    stack.enter_context(few_shards())
    make_tables(clients, prefix)
    return lambda: stack.enter_context(closing(AwsStore(prefix, clients=clients)))


@contextmanager
def few_shards() -> Iterator[None]:
    """Each look queries every shard; three are enough here, and tests/aws uses all of them."""
    from paceline.adapters.aws.monitors import keys as monitors_keys

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(monitors_keys, "SHARDS_MAX", 3)
        patch.setattr(monitors_keys, "GENERATIONS_EACH", 1)
        yield


def storm_engine(stack: ExitStack, folder: Path) -> Opener:
    """Indexes are not stale in it: a test of the contract asks once and wants to see what was written."""
    from paceline.adapters.aws.store import AwsStore
    from tests.aws.support.fault_proxy import Faults, fault_proxy
    from tests.aws.support.ministack import fresh_prefix, guarded_clients, make_tables, shared_clients, shared_emulator

    del folder
    prefix, seed = fresh_prefix(), int(os.environ.get("PACELINE_TEST_SEED", "1"))
    stack.enter_context(few_shards())
    make_tables(shared_clients(), prefix)
    faults = Faults(
        drop_before=0.02, drop_after=0.04, throttle=0.03, duplicate=0.03, delay=0.02, reorder=0.02, partial=0.2
    )
    proxy = stack.enter_context(fault_proxy(shared_emulator().url, seed=seed, faults=faults))
    clients = stack.enter_context(guarded_clients(proxy.url))
    return lambda: stack.enter_context(closing(AwsStore(prefix, clients=clients)))


ENGINES = {"aws": aws_engine, "sqlite-memory": memory_engine, "sqlite-file": file_engine}
ON_DEMAND = {"storm": storm_engine}
CHOSEN = os.environ.get("PACELINE_TEST_STORE", "")
assert any(name.startswith(CHOSEN) for name in ENGINES | ON_DEMAND), f"PACELINE_TEST_STORE: there is no {CHOSEN}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for a store runs once on each engine; one that is marked ``sqlite`` on that engine alone."""
    if "store_factory" not in metafunc.fixturenames:
        return
    known = ENGINES | ON_DEMAND if CHOSEN else ENGINES
    names = [name for name in sorted(known) if name.startswith(CHOSEN)]
    if metafunc.definition.get_closest_marker("sqlite"):
        names = [name for name in names if name.startswith("sqlite")]
    params = [pytest.param(name, marks=() if name.startswith("sqlite") else [pytest.mark.aws]) for name in names]
    metafunc.parametrize("store_factory", params, indirect=True)


@pytest.fixture
def store_factory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    with ExitStack() as stack:
        yield (ENGINES | ON_DEMAND)[request.param](stack, tmp_path)


@pytest.fixture
def by_request(request: pytest.FixtureRequest) -> bool:
    """Each act is requests, and far dearer than on a file: a scene is smaller where its size is not the point."""
    return not request.node.callspec.params["store_factory"].startswith("sqlite")


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
