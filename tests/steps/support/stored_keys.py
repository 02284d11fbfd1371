"""What a test reads of a stored key."""

from __future__ import annotations

from paceline.ports import JobStore, Vault


def open_key(store: JobStore, vault: Vault, account_id: str, key_id: str) -> str | None:
    """Returns the secret of a stored key; None if there is no such key."""
    sealed = store.sealed_key(account_id, key_id)
    return None if sealed is None else vault.unseal(sealed)
