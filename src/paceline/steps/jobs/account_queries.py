"""Questions to RIPE on behalf of an account: with a key of its own, and the next one if RIPE refuses the first."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from paceline.core.jobs.accounts import quarantine_key
from paceline.core.jobs.answers import cut
from paceline.core.jobs.atlas import Refused
from paceline.core.jobs.atlas_replies import Unanswered
from paceline.core.jobs.pool import backoff_until_ms
from paceline.ports import JobStore, Vault
from paceline.steps.jobs.atlas_keys import OpenKey, find_key, no_key_reason, open_keys

KEYS_TRIED_MAX = 10
LOSTS_MAX = 3
"""Number of unanswered questions in a pass after which RIPE is left alone until the next pass."""
NOBODY = OpenKey("", "")
"""Stands for no key: only public information is readable."""

T = TypeVar("T")


class Quarantined(NamedTuple):
    """A key that RIPE refused in a question."""

    account: str
    key: str
    reason: str


class Trouble(NamedTuple):
    """Problem at RIPE; the question or action will be tried again."""

    account: str
    reason: str


class AccountAnswer(NamedTuple, Generic[T]):
    """Answer to a question. ``key`` is the one that was used."""

    answer: T | Unanswered
    key: OpenKey
    quarantined: tuple[Quarantined, ...] = ()


def ask(
    store: JobStore,
    vault: Vault,
    account: str,
    question: Callable[[str], T | Unanswered],
    *,
    prefer: str | None = None,
) -> AccountAnswer[T]:
    """Ask with a key of the account, or without one if none can be used. A key that RIPE refuses is quarantined."""
    refused: list[Quarantined] = []
    for _ in range(KEYS_TRIED_MAX):
        key = find_key(store, vault, account, prefer=prefer) or NOBODY
        answer = question(key.secret)
        if key == NOBODY or not (isinstance(answer, Refused) and answer.scope == "key"):
            break
        store.change_key(account, key.id, quarantine_key(answer.reason))
        refused.append(Quarantined(account, key.id, answer.reason))
    return AccountAnswer(answer, key, tuple(refused))


def ask_as_owner(
    store: JobStore, vault: Vault, account: str, question: Callable[[str], T | Unanswered]
) -> AccountAnswer[T]:
    """Ask for what RIPE tells the account alone: without a key RIPE is not even asked."""

    def asked_by(secret: str) -> T | Unanswered:
        return question(secret) if secret else Refused("key", cut(no_key_reason(store, vault, account)))

    return ask(store, vault, account, asked_by)


def ask_any(
    store: JobStore, vault: Vault, account: str, first: OpenKey, question: Callable[[str], T | Unanswered]
) -> T | Unanswered:
    """Ask, and ask again with the account's other keys if the first is refused: a key can lack a single permission."""
    answer = question(first.secret)
    for key in islice(open_keys(store, vault, account), KEYS_TRIED_MAX):
        if not (isinstance(answer, Refused) and answer.scope == "key"):
            break
        if key != first:
            answer = question(key.secret)
    return answer


def says_pause(answer: object) -> bool:
    """Return whether RIPE asks everybody to wait, or something other than RIPE answered."""
    return isinstance(answer, Refused) and answer.scope == "global"


def pause_until_ms(answer: Unanswered, *, refusals: int, now_ms: int) -> int:
    """Return the end of the whole back-off, without jitter: only one process asks at a time."""
    return backoff_until_ms(refusals, now_ms=now_ms, retry_after_ms=answer.retry_after_ms, chance=1.0)
