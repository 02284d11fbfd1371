"""Integer keys that order tables: an entry by its due time, a run by its queue and its place there."""

from __future__ import annotations

from paceline.core.monitors.schedule import SLOT_MS

EPOCH_MS = 1_767_225_600_000  # 2026-01-01: counting from here keeps the key small for 54 years
GENERATION_BITS = 28
GENERATION_MASK = (1 << GENERATION_BITS) - 1
RESTING_SLOT = (1 << 35) - 1
LANE_BITS = 40
CHECKS_LANE = 1
"""The queue of all users' checks, in the order in which they are made."""
OLD_CHECK_LANES = 1 << 21
"""Lanes above this number held each user's checks in stores of an earlier version; those up to it are for
outgoing runs."""
NEVER_MS = 1 << 60


def due_key(due_ms: int | None, generation: int) -> int:
    """Return the key of an entry. With None, or a time beyond the last slot, the entry is paused."""
    if due_ms is None:
        return RESTING_SLOT << GENERATION_BITS | generation
    slot = (due_ms - EPOCH_MS) // SLOT_MS
    return min(max(slot, 0), RESTING_SLOT) << GENERATION_BITS | generation


def due_ms_of(k: int) -> int | None:
    slot = k >> GENERATION_BITS
    return None if slot == RESTING_SLOT else slot * SLOT_MS + EPOCH_MS


def due_bound(now_ms: int) -> int:
    """Return the bound below which every key is due now. If the clock is not set yet, nothing is due."""
    if now_ms < EPOCH_MS:
        return 0
    return due_key(now_ms, 0) + (1 << GENERATION_BITS)


def lane_bounds(lane: int) -> tuple[int, int]:
    """Return the first handle of a lane, and the first handle after it."""
    return lane << LANE_BITS, (lane + 1) << LANE_BITS


def outgoing_lane(user: int) -> int:
    """Return the lane of a user's default queue. Users are numbered from 1 up."""
    return CHECKS_LANE + user


def queue_lane(made: int) -> int:
    """Return the lane of a new named queue, counted down from the last outgoing lane.

    ``made`` queues were made before.
    """
    lane = OLD_CHECK_LANES - made
    assert is_outgoing(lane), "two million users and queues together are the most there may ever be"
    return lane


def is_outgoing(lane: int) -> bool:
    return CHECKS_LANE < lane <= OLD_CHECK_LANES


def queue_of(handle: int) -> int:
    """Return the lane from which a run is claimed."""
    lane = handle >> LANE_BITS
    return lane if is_outgoing(lane) else CHECKS_LANE
