from __future__ import annotations

from collections.abc import Iterator

import pytest

from paceline.adapters.providers.checks import CheckProvider
from paceline.simulators.http import ModelHttpServer
from tests.adapters.providers.support.drive import LOOPBACK, open_provider


@pytest.fixture
def server() -> Iterator[ModelHttpServer]:
    with ModelHttpServer() as running:
        yield running


@pytest.fixture
def provider() -> Iterator[CheckProvider]:
    """One that an operator has allowed to reach loopback."""
    opened = open_provider(*LOOPBACK)
    yield opened
    opened.close()


@pytest.fixture
def strict_provider() -> Iterator[CheckProvider]:
    """One as it is by default: public addresses only."""
    opened = open_provider()
    yield opened
    opened.close()
