"""Walk over all accounts in one pass, in which RIPE is asked about each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from paceline.core.jobs.atlas import Lost
from paceline.core.jobs.atlas_replies import Unanswered
from paceline.core.jobs.pool import Account
from paceline.ports import Clock, JobStore
from paceline.steps.jobs.account_queries import LOSTS_MAX, pause_until_ms, says_pause

T = TypeVar("T")


def walk_accounts(
    store: JobStore, report: T, visit: Callable[[T, Account], tuple[T, Unanswered | None]], *, clock: Clock
) -> tuple[T, int | None]:
    """Return the report after the last visit, and until when RIPE asks for a pause, if it does.

    ``visit`` takes the report so far. It returns the report with the account in it, and the last question that went
    unanswered. The walk ends early at a pause, or when too many questions went unanswered.
    """
    lost, now_ms = 0, clock.now_ms()
    for account in store.accounts(now_ms=now_ms, releases_until_ms=now_ms):
        report, failed = visit(report, account)
        if failed is not None and says_pause(failed):
            return report, pause_until_ms(failed, refusals=1, now_ms=clock.now_ms())
        lost += isinstance(failed, Lost)
        if lost >= LOSTS_MAX:
            break
    return report, None
