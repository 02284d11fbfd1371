"""Monitors for measurements: many owners, mixed intervals, phases that are independent of the order of creation."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from paceline.core.monitors.checks import HttpCheck, OutgoingCheck
from paceline.core.monitors.definition import MonitorSpec
from paceline.core.monitors.values import PutMonitor
from paceline.core.users import User
from paceline.ports import Store
from paceline.steps.monitors import define

START_MS = 1_900_000_000_000
"""A virtual time to start from; nothing here waits for a clock."""
OWNERS = 100
INTERVALS_S = (60, 300, 600, 3_600)
BATCH = 10_000
MONITORS_MAX = 10**9


def owner_name(index: int) -> str:
    return f"owner{index % OWNERS}"


def monitors(count: int, *, first: int = 0, outgoing_every: int = 0) -> Iterator[PutMonitor]:
    """Yields HTTP checks. With ``outgoing_every``, one in this many is an outgoing check for its owner's checker."""
    chance = random.Random(11 + first)
    for index in range(first, first + count):
        every_s = chance.choice(INTERVALS_S)
        url = f"https://host{index}.example.org/health"
        outgoing = outgoing_every and index % outgoing_every == 0
        check = OutgoingCheck({"kind": "outgoing", "url": url}) if outgoing else HttpCheck(url=url)
        spec = MonitorSpec(check=check, every=f"{every_s}s", initial_delay=f"{chance.randrange(every_s * 1_000)}ms")
        yield PutMonitor(owner=owner_name(chance.randrange(OWNERS)), id=f"monitor-{index}", spec=spec)


def add_owners(store: Store, names: Sequence[str] = ()) -> None:
    for name in names or [owner_name(index) for index in range(OWNERS)]:
        store.add_user(User(id=name, role="user", daily_credits=0, disabled=False, created_ms=START_MS))


def fill(store: Store, count: int, *, outgoing_every: int = 0) -> None:
    """Fills the store through the same step that the API calls, in bulk."""
    add_owners(store)
    left = monitors(count, outgoing_every=outgoing_every)
    while batch := [put for _, put in zip(range(BATCH), left, strict=False)]:
        define.put_monitors(store, batch, monitors_max=MONITORS_MAX, now_ms=START_MS)
