"""Claims of batches' runs: shares of the providers, the order of claimed runs, and the backlog of a provider."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paceline.core.batches.pace import LATE_MS, Backlog, FirstRun
from paceline.core.batches.provider import Policy
from paceline.core.batches.run_keys import NEVER_MS
from paceline.core.batches.values import ClaimedCall
from paceline.core.shares import Claimant, fair_shares

PASSES_MAX = 8
"""Maximum number of passes over the ready providers in a claim that has found too few runs."""
PROVIDERS_MIN = 64
"""Minimum number of providers that a claim reads at once, however few runs it still wants."""
GAPS_MAX = 16
"""Number of gaps whose mean is the usual gap between a provider's runs."""


def startable(policy: Policy, *, held: int, held_due: int) -> int:
    """Return how many of a provider's runs may start at once at most.

    ``held`` counts its runs that are out or in back-off, and ``held_due`` those of them whose time has come.
    """
    return max(held_due + max(policy.max_in_flight - held, 0), 1)


def divide_budget(runs_max: int, startables: Sequence[int]) -> list[int]:
    """Return how many runs each provider may start, in the order given.

    Providers beyond ``runs_max`` are left out, so each of the others gets at least one run.
    """
    return fair_shares(runs_max, [Claimant(one) for one in startables[:runs_max]])


def in_turn(claimed: Iterable[ClaimedCall], providers: Iterable[int]) -> list[ClaimedCall]:
    """Return claimed runs in the order in which their providers were ready.

    A provider that was opened again in a later pass, because its runs were ended, moved or set aside, keeps its turn.
    """
    turns: dict[int, int] = {}
    for provider in providers:
        turns.setdefault(provider, len(turns))
    return sorted(claimed, key=lambda call: turns[call.provider])


def first_late(front: Sequence[FirstRun], *, now_ms: int) -> int | None:
    """Return the position of the first run that is behind its time; None: all are on time."""
    late_ms = now_ms - LATE_MS
    return next((index for index, run in enumerate(front) if run.at_ms < late_ms), None)


def backlog_until_ms(due_ms: int, *, end_ms: int) -> int:
    """Return the time up to which runs count for the usual gap: the end of the late run's window, while that lasts."""
    return end_ms if due_ms < end_ms else NEVER_MS


def backlog(dues_ms: Sequence[int], *, end_ms: int) -> Backlog:
    """Return the usual gap between runs from a late run on, and the end of its window.

    ``dues_ms`` are, rising, the late run's due time and those of at most ``GAPS_MAX`` runs after it.
    """
    if len(dues_ms) < 2:
        return Backlog(max(end_ms - dues_ms[0], 1), end_ms)  # a single run has all the time that is left
    return Backlog(max((dues_ms[-1] - dues_ms[0]) // (len(dues_ms) - 1), 1), end_ms)
