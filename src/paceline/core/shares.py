"""Max-min fair shares: how places, a claim's budget or turns are divided among claimants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Claimant(NamedTuple):
    """A user, provider or target that wants places."""

    wanted: int
    """Number of further places it could use."""
    held: int = 0
    """Number of places it has already."""


def fair_shares(room: int, claimants: Sequence[Claimant], *, ceiling: int | None = None) -> list[int]:
    """Return the grants of the claimants, in the order given.

    The smallest total (held and granted) is raised first, so nobody gets a place while another who wants one has less.
    Places that one claimant does not use go to the others. No total exceeds ``ceiling``. If not all equals can have the
    last places, the first ones get them: callers put the claimant first that has waited longest for a turn.
    """
    wishes = [_wish(claimant, ceiling) for claimant in claimants]
    level = _level(room, claimants, wishes)
    grants = [min(wish, max(level - claimant.held, 0)) for claimant, wish in zip(claimants, wishes, strict=True)]
    left = room - sum(grants)
    for index, (claimant, wish) in enumerate(zip(claimants, wishes, strict=True)):
        if left <= 0:
            break
        if grants[index] < wish and claimant.held + grants[index] == level:
            grants[index] += 1
            left -= 1
    return grants


def _wish(claimant: Claimant, ceiling: int | None) -> int:
    most = claimant.wanted if ceiling is None else min(claimant.wanted, ceiling - claimant.held)
    return max(most, 0)


def _level(room: int, claimants: Sequence[Claimant], wishes: Sequence[int]) -> int:
    """Return the highest total to which everybody who wants it can be raised within the room."""
    below, above = (
        0,
        1 + max((claimant.held + wish for claimant, wish in zip(claimants, wishes, strict=True)), default=0),
    )
    while above - below > 1:
        level = (below + above) // 2
        needed = sum(min(wish, max(level - claimant.held, 0)) for claimant, wish in zip(claimants, wishes, strict=True))
        if needed <= room:
            below = level
        else:
            above = level
    return below
