"""Integer keys that cluster tables: a due row by its time, a run by its queue and order."""

from __future__ import annotations

from paceline.core.schedule import SLOT_MS

EPOCH_MS = 1_767_225_600_000  # 2026-01-01: counting from here keeps the key small for 54 years
GENERATION_BITS = 28
GENERATION_MASK = (1 << GENERATION_BITS) - 1
RESTING_SLOT = (1 << 35) - 1
LANE_BITS = 40
OLD_CHECKS_LANE = 1
"""Everybody's checks, in stores that were made before each owner had a lane for them."""
CHECK_LANES = 1 << 21
"""Lanes of checks begin behind this one; those before it are for outgoing runs."""
NEVER_MS = 1 << 60


def due_key(due_ms: int | None, generation: int) -> int:
    """None, or a time beyond the last slot: the entry rests."""
    if due_ms is None:
        return RESTING_SLOT << GENERATION_BITS | generation
    slot = (due_ms - EPOCH_MS) // SLOT_MS
    return min(max(slot, 0), RESTING_SLOT) << GENERATION_BITS | generation


def due_ms_of(k: int) -> int | None:
    slot = k >> GENERATION_BITS
    return None if slot == RESTING_SLOT else slot * SLOT_MS + EPOCH_MS


def due_bound(now_ms: int) -> int:
    """Every key below this is due at or before now. A clock that is not set yet makes nothing due."""
    if now_ms < EPOCH_MS:
        return 0
    return due_key(now_ms, 0) + (1 << GENERATION_BITS)


def lane_bounds(lane: int) -> tuple[int, int]:
    """The handles of a lane: from the first, to before the second."""
    return lane << LANE_BITS, (lane + 1) << LANE_BITS


def outgoing_lane(user: int) -> int:
    return OLD_CHECKS_LANE + user


def check_lane(user: int) -> int:
    return CHECK_LANES + user


def is_outgoing(lane: int) -> bool:
    return OLD_CHECKS_LANE < lane <= CHECK_LANES
