"""Accounts and their keys as an operator edits them, and when their slots come free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from paceline.core.jobs.atlas import MeterName
from paceline.core.jobs.meters import MeterRelease, Window
from paceline.core.jobs.names import key_id
from paceline.core.jobs.pool import Key
from paceline.core.jobs.refusals import quarantine_reason
from paceline.core.jobs.values import AccountPut, AccountSpec, SeenAccount

WINDOWS: dict[MeterName, Window] = {"concurrent": "until_released", "results": "sliding", "credits": "sliding"}
"""Meters of an account with their windows, in the order in which they are taken."""
ACCOUNTS_MAX = 1_000
KEYS_MAX = 100
TYPES_MAX = 100


def limits_of(spec: AccountSpec) -> dict[MeterName, int]:
    """Return the limit of each meter."""
    return {"concurrent": spec.concurrent, "results": spec.daily_results, "credits": spec.daily_credits}


def meter_name(account: str, meter: MeterName) -> str:
    return f"account/{account}/{meter}"


def put_account(spec: AccountSpec, known: AccountSpec | None, seen: SeenAccount | None) -> AccountPut:
    """Return the result of writing the account. ``seen``: the writer has seen this state, and overwrites no other."""
    if seen is not None and seen.spec != known:
        return "revision_mismatch"
    if known is None:
        return "created"
    return "unchanged" if spec == known else "replaced"


class KeyChange(NamedTuple):
    """Change to a stored key; None leaves a field as it is."""

    enabled: bool | None = None
    quarantine: str | None = None
    allows_types: bool = False
    """True if RIPE is asked again for types of measurements that it did not let the account make."""


def enable_key(*, enabled: bool) -> KeyChange:
    """Return what enabling or disabling a key changes; enabling also ends a quarantine."""
    return KeyChange(enabled=enabled, quarantine="" if enabled else None, allows_types=enabled)


def quarantine_key(reason: str) -> KeyChange:
    """Return the change that keeps a key that RIPE refused out of use until it is enabled again."""
    return KeyChange(quarantine=quarantine_reason(reason))


def pool_key(number: int, *, enabled: bool, quarantine: str) -> Key:
    """Return the key as the choice of an account sees it."""
    name = key_id(number)
    if not enabled:
        return Key(name, "disabled")
    return Key(name, "quarantined", quarantine) if quarantine else Key(name)


def slots_back(slots: Iterable[tuple[int, int]], *, now_ms: int, until_ms: int) -> tuple[MeterRelease, ...]:
    """Return when slots are expected back, in order. ``slots``: when each measurement should end, and its slots.

    A measurement that is overdue may end any moment.
    """
    found: Counter[int] = Counter()
    for expected_ms, count in slots:
        if expected_ms <= until_ms:
            found[max(expected_ms, now_ms)] += count
    return tuple(MeterRelease(*one) for one in sorted(found.items()))
