"""The cost of open pages that are only polled."""

from __future__ import annotations

import time

from tests.shells.api.conftest import World
from tests.shells.dashboard.support.polling import BYTES_MAX, LOOKS, PAGES, fail_checks, fill, polled_bytes

CPU_S_MAX = 1.0
"""Of one look, on any machine: what a person waits for is this, and the way to them."""


def test_pages_of_ten_thousand_monitors_and_a_thousand_providers_are_polled_cheaply(world: World) -> None:
    root = world.add("root", "admin")
    fill(root, monitors=10_000, providers=1_000)
    fail_checks(world, root, count=60)
    shown = root("GET", "/ui/monitors").body.decode()
    assert shown.count(">Status 503, expected 2xx from host ") == 50
    for path in PAGES:
        assert polled_bytes(root, path, changes=True) < BYTES_MAX, path
    for path in ("/ui/monitors", "/ui/providers"):
        changed, same = (polled_bytes(root, path, changes=changes) for changes in (True, False))
        assert same < changed / 3, path


def test_first_picture_of_ten_thousand_monitors_and_a_thousand_providers_takes_less_than_a_second_of_work(
    world: World,
) -> None:
    root = world.add("root", "admin")
    fill(root, monitors=10_000, providers=1_000)
    for path in PAGES:
        begun_s = time.process_time()
        for _ in range(LOOKS):
            assert root("GET", path).status == 200
        assert (time.process_time() - begun_s) / LOOKS < CPU_S_MAX, path
