"""Integer keys that cluster tables: a due row by its time, a run by its queue and order."""

from __future__ import annotations

from paceline.core.monitors.schedule import SLOT_MS

EPOCH_MS = 1_767_225_600_000  # 2026-01-01: counting from here keeps the key small for 54 years
GENERATION_BITS = 28
GENERATION_MASK = (1 << GENERATION_BITS) - 1
RESTING_SLOT = (1 << 35) - 1
LANE_BITS = 40
CHECKS_LANE = 1
"""The queue of all owners' checks, in the order in which they are made."""
OLD_CHECK_LANES = 1 << 21
"""Lanes behind this one held each owner's checks in stores of an earlier version; those before it are for outgoing
runs."""
NEVER_MS = 1 << 60


def due_key(due_ms: int | None, generation: int) -> int:
    """Return the key of an entry. None, or a time beyond the last slot: the entry is paused."""
    if due_ms is None:
        return RESTING_SLOT << GENERATION_BITS | generation
    slot = (due_ms - EPOCH_MS) // SLOT_MS
    return min(max(slot, 0), RESTING_SLOT) << GENERATION_BITS | generation


def due_ms_of(k: int) -> int | None:
    slot = k >> GENERATION_BITS
    return None if slot == RESTING_SLOT else slot * SLOT_MS + EPOCH_MS


def due_bound(now_ms: int) -> int:
    """Return the bound below which every key is due now. A clock that is not set yet makes nothing due."""
    if now_ms < EPOCH_MS:
        return 0
    return due_key(now_ms, 0) + (1 << GENERATION_BITS)


def lane_bounds(lane: int) -> tuple[int, int]:
    """Return the first handle of a lane, and the first behind the lane."""
    return lane << LANE_BITS, (lane + 1) << LANE_BITS


def outgoing_lane(user: int) -> int:
    """Return the lane of a user's default queue. Users are numbered from 1 up."""
    return CHECKS_LANE + user


def queue_lane(made: int) -> int:
    """Return the next lane of a named queue, from the last of the outgoing ones down: so many were made before."""
    lane = OLD_CHECK_LANES - made
    assert is_outgoing(lane), "two million users and queues together are the most there may ever be"
    return lane


def is_outgoing(lane: int) -> bool:
    return CHECKS_LANE < lane <= OLD_CHECK_LANES


def queue_of(handle: int) -> int:
    """Return the lane from which a run is claimed."""
    lane = handle >> LANE_BITS
    return lane if is_outgoing(lane) else CHECKS_LANE
