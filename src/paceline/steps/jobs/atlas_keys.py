"""Choice of the key for a question about an account's measurements: a usable one, preferably the one that sent them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from paceline.core.jobs.lookups import NoKey
from paceline.errors import WrongSetting
from paceline.ports import JobStore, Vault

SEALED_OTHERWISE = "it was sealed with another PACELINE_SECRET_KEY: start with that one, or add the key again"


class OpenKey(NamedTuple):
    """``secret`` is for a request to RIPE and nothing else."""

    id: str
    secret: str


def open_key(store: JobStore, vault: Vault, account_id: str, key_id: str) -> OpenKey | NoKey:
    sealed = store.sealed_key(account_id, key_id)
    if sealed is None:
        return NoKey("it was removed")
    try:
        return OpenKey(key_id, vault.unseal(sealed))
    except WrongSetting:
        # The vault's message is about another use, so it is replaced. One key that cannot be opened must not stop the
        # accounts whose keys can.
        return NoKey(SEALED_OTHERWISE)


def open_keys(store: JobStore, vault: Vault, account_id: str, *, prefer: str | None = None) -> Iterator[OpenKey]:
    """Yield the usable keys, opened one at a time. Keys of a disabled account, too: its measurements may still run."""
    usable = [key.id for key in store.keys(account_id) if key.enabled and not key.quarantine]
    for key_id in sorted(usable, key=lambda one: one != prefer):
        found = open_key(store, vault, account_id, key_id)
        if isinstance(found, OpenKey):
            yield found


def find_key(store: JobStore, vault: Vault, account_id: str, *, prefer: str | None = None) -> OpenKey | None:
    """Return a usable key; None: the account has none, and ``no_key_reason`` says why."""
    return next(open_keys(store, vault, account_id, prefer=prefer), None)


def secret_to_read(store: JobStore, vault: Vault, account_id: str | None, *, prefer: str | None) -> str:
    """Return the secret to read results with; empty if no key can be used: most results are public and need none."""
    key = find_key(store, vault, account_id or "", prefer=prefer)
    return key.secret if key else ""


def no_key_reason(store: JobStore, vault: Vault, account_id: str) -> str:
    """Return why ``find_key`` finds none: each key and what is wrong with it."""
    problems = []
    for key in store.keys(account_id):
        if not key.enabled:
            problems.append(f"{key.id} is disabled")
        elif key.quarantine:
            problems.append(f"{key.id} is quarantined: {key.quarantine}")
        elif isinstance(found := open_key(store, vault, account_id, key.id), NoKey):
            problems.append(f"{key.id}: {found.reason}")
    return f"its account has no key that can be used: {'; '.join(problems) or 'it has none'}"
