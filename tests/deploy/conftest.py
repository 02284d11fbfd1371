"""The image is built once for all tests that run it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.support.podman import BASE, ROOT, Podman


@pytest.fixture(scope="session")
def base() -> str:
    """The name of the image that ours begins with."""
    return "localhost/base" if Path(BASE).is_file() else BASE


@pytest.fixture(scope="session")
def podman(base: str) -> Iterator[Podman]:
    folder = ROOT / "build" / "image"
    engine = Podman(folder)
    if Path(BASE).is_file():
        engine("import", BASE, base)
    engine.build(base=base, tag="localhost/paceline")
    yield engine
    engine("rm", "--all", "--force", "--time", "1")
    engine("volume", "rm", "--all", "--force")
    for place in ("storage", "run"):
        shutil.rmtree(folder / place, ignore_errors=True)
