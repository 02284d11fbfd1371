"""A store with something of everything, behind a server, for each module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.shells.api.conftest import serving
from tests.shells.cli.support.both_ways import Both, stage_batches, stage_jobs, stage_monitors


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("both")
    with serving(folder, wrong_tokens_max=1_000) as world:
        root, alice = world.add("root", "admin"), world.add("alice")
        stage_monitors(world, alice)
        stage_batches(world, root)
        stage_jobs(root, alice)
        yield Both(world, folder)


@pytest.fixture
def both(staged: Both, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Both:
    staged.patch, staged.capture = monkeypatch, capfdbinary
    return staged
