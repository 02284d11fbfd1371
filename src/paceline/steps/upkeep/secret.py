"""Check that the secret key is the store's own. The store keeps a check value, which only that key can make."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from paceline.errors import StoreUnavailable, WrongSecretKey, WrongSetting
from paceline.ports import Store, Vault
from paceline.ports.items import ItemStore
from paceline.steps import collection
from paceline.steps.batches.headers import without_mark
from paceline.steps.collection import Collection
from paceline.steps.monitors.check_secrets import seal_stored
from paceline.steps.walk import walk

PROOF_TEXT = "paceline secret key"
SEALED_TEXT = "paceline secret key, and checks are sealed"
"""Text of the check value once nothing of an older version is stored in the clear any more."""
TRIES_MAX = 5

WAY_OUT = (
    "Start with the key that the store was made with: PACELINE_SECRET_KEY as it was, or the key file that lay beside"
    " the store. If that key is lost, `paceline migrate --adopt-key` goes on with this one: every token, header,"
    " check's body and account's key must then be given again."
)


class SecretCheck(msgspec.Struct, frozen=True):
    """Check value: a known text, sealed with the store's secret key."""

    proof: str


SECRET = Collection("secret", SecretCheck)
KEY = "key"


def proof(store: ItemStore) -> str | None:
    """Return the check value of the secret key; None if none is kept yet."""
    kept = SECRET.get(store, KEY)
    return None if kept is None else kept.proof


def keep_proof(store: ItemStore, text: str, *, was: str | None) -> bool:
    """Keep another check value, if the stored one is still ``was``."""
    found = SECRET.find(store, KEY)
    kept = None if found.value is None else found.value.proof
    return kept == was and collection.write(store, [SECRET.change(found, SecretCheck(text))])


def check_secret(store: Store, vault: Vault, *, now_ms: int) -> None:
    """Raise WrongSecretKey unless the key is the store's.

    A store without a check value (new, or of an older version) takes this key's if the key opens what is sealed. A
    store on which nothing depends on a key takes any.
    """
    for _ in range(TRIES_MAX):
        kept, mine = proof(store), vault.seal(PROOF_TEXT)
        if kept in (mine, vault.seal(SEALED_TEXT)):
            return
        if not _may_take(store, vault, kept, now_ms=now_ms):
            raise _wrong()
        if keep_proof(store, mine, was=kept):
            return
    raise StoreUnavailable("The secret key of this store changes all the time: see which other process starts on it.")


def compare_secret(store: Store, vault: Vault) -> None:
    """Raise WrongSecretKey if a check value is kept and is not this key's. Write nothing."""
    if proof(store) not in (None, vault.seal(PROOF_TEXT), vault.seal(SEALED_TEXT)):
        raise _wrong()


def adopt_secret(store: Store, vault: Vault) -> bool:
    """Make this key the store's, whatever key it was made with. False: it is the store's already."""
    for _ in range(TRIES_MAX):
        kept, mine = proof(store), vault.seal(PROOF_TEXT)
        if kept in (mine, vault.seal(SEALED_TEXT)):
            return False
        if keep_proof(store, mine, was=kept):
            return True
    raise StoreUnavailable("The secret key of this store changes all the time: see which other process starts on it.")


def seal_checks(store: Store, vault: Vault) -> int:
    """Seal what an older version stored in the clear, once in a store's life. Return how many monitors were sealed."""
    first, then = vault.seal(PROOF_TEXT), vault.seal(SEALED_TEXT)
    if proof(store) != first:
        return 0
    sealed = seal_stored(store, vault)
    keep_proof(store, then, was=first)
    return sealed


def needs_its_key(store: Store, *, now_ms: int) -> bool:
    """Return whether a new key would be a wrong one: a check value is kept, or something is sealed."""
    return proof(store) is not None or next(_sealed(store, now_ms=now_ms), None) is not None


def _may_take(store: Store, vault: Vault, kept: str | None, *, now_ms: int) -> bool:
    sealed = list(_sealed(store, now_ms=now_ms))
    if kept is not None:
        return not sealed and not store.users(after="", limit=1)
    return not sealed or any(_opens(vault, text) for text in sealed)


def _opens(vault: Vault, sealed: str) -> bool:
    try:
        vault.unseal(sealed)
    except WrongSetting:
        return False
    return True


def _sealed(store: Store, *, now_ms: int) -> Iterator[str]:
    """Yield the sealed headers of providers and the sealed keys of accounts."""
    for provider in walk(store.providers):
        yield from map(without_mark, provider.spec.headers.values())
    for account in store.accounts(now_ms=now_ms, releases_until_ms=now_ms):
        for key in store.keys(account.id):
            if (text := store.sealed_key(account.id, key.id)) is not None:
                yield text


def _wrong() -> WrongSecretKey:
    return WrongSecretKey(f"PACELINE_SECRET_KEY: this store was made with another secret key. {WAY_OUT}")
