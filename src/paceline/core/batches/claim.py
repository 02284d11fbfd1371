"""How a claim divides its budget among providers, in which order runs come back, and how far behind a provider is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paceline.core.batches.pace import LATE_MS, Backlog, FirstRun
from paceline.core.batches.provider import Policy
from paceline.core.batches.run_keys import NEVER_MS
from paceline.core.batches.values import ClaimedCall
from paceline.core.shares import Claimant, fair_shares

PASSES_MAX = 8
"""A claim that has found too little goes through the providers that are ready so often at most."""
PROVIDERS_MIN = 64
"""A claim reads at least so many providers at once, however few runs it still wants."""
GAPS_MAX = 16
"""The usual gap between a provider's runs is the mean of so many."""


def startable(policy: Policy, *, held: int, held_due: int) -> int:
    """How many of a provider's runs may start at once at most.

    ``held`` are its runs that are out or in back-off, and ``held_due`` those of them whose time has come.
    """
    return max(held_due + max(policy.max_in_flight - held, 0), 1)


def divide_budget(runs_max: int, startables: Sequence[int]) -> list[int]:
    """How many runs each provider may start, in the order given: no more providers than runs, so at least one each."""
    return fair_shares(runs_max, [Claimant(one) for one in startables[:runs_max]])


def in_turn(claimed: Iterable[ClaimedCall], providers: Iterable[int]) -> list[ClaimedCall]:
    """Claimed runs in the order in which their providers were ready.

    A provider that was opened in a later pass, because runs of it were ended, moved or set aside, keeps its turn.
    """
    turns: dict[int, int] = {}
    for provider in providers:
        turns.setdefault(provider, len(turns))
    return sorted(claimed, key=lambda call: turns[call.provider])


def first_late(front: Sequence[FirstRun], *, now_ms: int) -> int | None:
    """Which of a provider's first runs is behind its time, by position. None: they are all on time."""
    late_ms = now_ms - LATE_MS
    return next((index for index, run in enumerate(front) if run.at_ms < late_ms), None)


def backlog_until_ms(due_ms: int, *, end_ms: int) -> int:
    """Up to when runs count for the usual gap from a late run on: to the end of its day's window, while that lasts."""
    return end_ms if due_ms < end_ms else NEVER_MS


def backlog(dues_ms: Sequence[int], *, end_ms: int) -> Backlog:
    """How far apart runs usually are, from a late run on.

    ``dues_ms`` are, rising, the late run's due time and those of at most ``GAPS_MAX`` runs after it.
    """
    if len(dues_ms) < 2:
        return Backlog(max(end_ms - dues_ms[0], 1), end_ms)  # alone: it has all the time that is left
    return Backlog(max((dues_ms[-1] - dues_ms[0]) // (len(dues_ms) - 1), 1), end_ms)
