"""Both clients, over a real API on a real file, or over a server that answers by a script."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.support.both import Connect, connecting
from tests.shells.api.conftest import World, serving


@pytest.fixture(params=["Client", "AsyncClient"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Makes clients of either kind."""
    yield from connecting(request.param)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with serving(tmp_path) as running:
        yield running


@pytest.fixture
def admin(world: World, connect: Connect) -> Any:
    return connect(f"http://127.0.0.1:{world.port}", world.add("root", "admin").token)


@pytest.fixture
def alice(world: World, connect: Connect) -> Any:
    return connect(f"http://127.0.0.1:{world.port}", world.add("alice").token)
