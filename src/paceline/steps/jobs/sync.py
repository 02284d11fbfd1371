"""Comparison of RIPE's counters with ours, which shows use by others.

Our own use that RIPE cannot see yet still counts.
"""

from __future__ import annotations

from typing import NamedTuple

from paceline.core.jobs.atlas import Lost, MeterName, Refused, site_tag
from paceline.core.jobs.atlas_replies import Credits, Unanswered
from paceline.core.jobs.meters import Reading, lagging_visible
from paceline.core.jobs.pool import Account
from paceline.ports import Atlas, Clock, JobStore, Vault
from paceline.steps.jobs.account_queries import Quarantined, Trouble, ask_as_owner
from paceline.steps.jobs.account_walk import walk_accounts


class SyncedAccount(NamedTuple):
    """RIPE's figures of an account; None: RIPE did not say."""

    account: str
    credits: Credits | None
    in_flight: int | None


class LowerLimit(NamedTuple):
    """RIPE allows less than the operator declared. The declared limit stays: RIPE refuses what exceeds its own."""

    account: str
    told: int
    declared: int


class Synced(NamedTuple):
    accounts: tuple[SyncedAccount, ...] = ()
    lower_limits: tuple[LowerLimit, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    paused_until_ms: int | None = None
    """End of the pause that RIPE asked for: the accounts that were not reached have their turn after it."""


def sync_accounts(store: JobStore, atlas: Atlas, vault: Vault, *, site: str, every_ms: int, clock: Clock) -> Synced:
    """Read RIPE's counters of each account that is due and enabled; one of several processes does it."""

    def visit(report: Synced, account: Account) -> tuple[Synced, Unanswered | None]:
        if not account.enabled:
            return report, None
        if not store.take_duty(f"sync/{account.id}", every_ms=every_ms, now_ms=clock.now_ms()):
            return report, None
        return _sync(store, atlas, vault, account.id, site, report, clock)

    report, paused_until_ms = walk_accounts(store, Synced(), visit, clock=clock)
    return report._replace(paused_until_ms=paused_until_ms)


def _sync(
    store: JobStore, atlas: Atlas, vault: Vault, account_id: str, site: str, report: Synced, clock: Clock
) -> tuple[Synced, Unanswered | None]:
    """Return the report with this account in it, and the last question that went unanswered."""
    asked_ms = clock.now_ms()
    account = store.account(account_id, now_ms=asked_ms)
    assert account is not None  # accounts are never removed
    # Fixed before the questions: what is taken while RIPE answers is added to the answer, and not hidden by it.
    visible = (lagging_visible(account.credits), lagging_visible(account.results))
    spend = ask_as_owner(store, vault, account_id, atlas.credits)
    report = report._replace(quarantined=report.quarantined + spend.quarantined)
    if isinstance(spend.answer, Refused | Lost):
        return _with_trouble(report, account_id, spend.answer), spend.answer
    readings: list[tuple[MeterName, Reading]] = [
        ("credits", Reading(asked_ms, spend.answer.spent_day, visible[0])),
        ("results", Reading(asked_ms, spend.answer.results_day, visible[1])),
        ("balance", Reading(asked_ms, spend.answer.balance, spend.answer.spent_day)),
    ]
    running = ask_as_owner(store, vault, account_id, lambda key: _running(atlas, key, site))
    report = report._replace(quarantined=report.quarantined + running.quarantined)
    in_flight, failed = None, None
    if isinstance(running.answer, Refused | Lost):
        failed = running.answer
        report = _with_trouble(report, account_id, failed)
    else:
        in_flight = running.answer.running
        slots = store.slots_seen(account_id, running.answer.own)
        readings.append(("concurrent", Reading(asked_ms, in_flight, slots)))
    store.sync_account(account_id, readings, now_ms=clock.now_ms())
    one = SyncedAccount(account_id, spend.answer, in_flight)
    return _with_limit(report._replace(accounts=(*report.accounts, one)), account, spend.answer), failed


class _Running(NamedTuple):
    """Number of the account's measurements that run as RIPE's lists show it, and which of them carry our marker."""

    running: int
    own: tuple[int, ...]


def _running(atlas: Atlas, key: str, site: str) -> _Running | Unanswered:
    """Ask for ours first: a send between the two questions is counted twice until the next sync, never forgotten."""
    own = atlas.running_by_marker(key, site_tag(site))
    if isinstance(own, Refused | Lost):
        return own
    count = atlas.in_flight(key)
    if isinstance(count, Refused | Lost):
        return count
    return _Running(count, tuple(one.id for one in own))


def _with_trouble(report: Synced, account: str, failed: Unanswered) -> Synced:
    return report._replace(troubles=(*report.troubles, Trouble(account, failed.reason)))


def _with_limit(report: Synced, account: Account, reported: Credits) -> Synced:
    if reported.limit_day is None or reported.limit_day >= account.credits.limit:
        return report
    lower = LowerLimit(account.id, reported.limit_day, account.credits.limit)
    return report._replace(lower_limits=(*report.lower_limits, lower))
