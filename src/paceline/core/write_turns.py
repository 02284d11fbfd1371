"""Turns among users: whose writes go into the next commit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from paceline.core.shares import Claimant, fair_shares


def take_turns(waiting: Sequence[Sequence[int]], *, room: int) -> list[int]:
    """Return how many of each user's writes are taken, in the order in which the users were given.

    ``waiting`` has the weights of each user's writes, oldest first, and the user who has waited longest for a turn
    comes first. The room is shared max-min fair: a user with one write is never behind another's thousand. Writes are
    not cut, so the last one taken of a user may exceed its share; nobody with a share is left out because of its
    weight.
    """
    # No more than the room can be taken, so no more is looked at.
    near = [list(islice(weights, room)) for weights in waiting]
    shares = fair_shares(room, [Claimant(sum(weights)) for weights in near])
    return [_taken(weights, share) for weights, share in zip(near, shares, strict=True)]


def _taken(weights: Sequence[int], share: int) -> int:
    used = taken = 0
    while taken < len(weights) and used < share:
        used += weights[taken]
        taken += 1
    return taken
