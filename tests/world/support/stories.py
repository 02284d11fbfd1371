"""Worlds of a test: made in its folder, closed at its end; and the proof that a world notices a broken store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

from paceline.ports import Store
from tests.world.support.damage import Faulty
from tests.world.support.ledger import Broken
from tests.world.support.seeded import Damage, Seeded

STEPS = int(os.environ.get("PACELINE_WORLD_STEPS", "1500"))
AnyWorld = TypeVar("AnyWorld", bound=Seeded)


def seeds() -> list[int]:
    first, _, last = os.environ.get("PACELINE_WORLD_SEEDS", "1-6").partition("-")
    return list(range(int(first), int(last or first) + 1))


@contextmanager
def worlds(kind: Callable[..., AnyWorld], folder: Path) -> Iterator[Callable[..., AnyWorld]]:
    """Yields a function that makes worlds of a kind, each on a store of its own unless it gets the same folder."""
    with ExitStack() as stack:

        def make(seed: int, *, folder_name: str = "world", **more: Any) -> AnyWorld:
            place = folder / folder_name
            place.mkdir(exist_ok=True)
            return stack.enter_context(closing(kind(seed, place, **more)))

        yield make


def noticed(fault: type[Faulty], tell: Callable[[int, Damage], None], *, tried: Iterable[int]) -> tuple[int, str]:
    """Tells stories of a store with the fault until one is Broken; the seed of that one, and what it says."""
    for seed in tried:
        try:
            tell(seed, lambda store: cast("Store", fault(store)))
        except Broken as broken:
            return seed, str(broken)
    raise AssertionError(f"{fault.__name__} went unnoticed")
