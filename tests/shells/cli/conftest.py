from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shells.cli.support.program import Program, end_all_that_was_begun


@pytest.fixture(autouse=True)
def _nothing_is_left_running() -> Iterator[None]:
    yield
    end_all_that_was_begun()


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)
