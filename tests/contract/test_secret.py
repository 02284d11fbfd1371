"""The check value of the secret key: kept once, and compared at every start."""

from __future__ import annotations

import pytest

from paceline.adapters.vault import SecretVault
from paceline.core.batches.provider import ProviderSpec
from paceline.core.batches.values import PutProvider
from paceline.core.jobs.values import AccountSpec, AddKey
from paceline.errors import WrongSecretKey
from paceline.ports import Store
from paceline.steps.upkeep.secret import adopt_secret, check_secret, compare_secret, keep_proof, needs_its_key, proof
from tests.contract.conftest import Opener
from tests.contract.support.stage import user

NOW_MS = 1_794_000_000_000
OURS = SecretVault(b"the installation's own secret...")
ANOTHER = SecretVault(b"a secret that somebody mistyped.")


def test_proof_of_the_secret_key_is_stored_once_and_replaced_only_by_its_owner(store: Store, other: Store) -> None:
    assert proof(store) is None
    assert keep_proof(store, "one", was=None)
    assert not keep_proof(other, "two", was=None)
    assert not keep_proof(other, "two", was="three")
    assert proof(other) == "one"
    assert keep_proof(other, "two", was="one")
    assert proof(store) == "two"


def test_another_key_is_refused_once_the_store_has_its_own(store: Store, other: Store) -> None:
    check_secret(store, OURS, now_ms=NOW_MS)
    check_secret(other, OURS, now_ms=NOW_MS)
    with pytest.raises(WrongSecretKey, match="PACELINE_SECRET_KEY"):
        check_secret(other, ANOTHER, now_ms=NOW_MS)
    with pytest.raises(WrongSecretKey, match="adopt-key"):
        compare_secret(other, ANOTHER)
    compare_secret(other, OURS)


def test_comparing_the_secret_key_writes_no_proof(store: Store) -> None:
    compare_secret(store, OURS)
    assert proof(store) is None


def test_store_of_an_older_version_takes_the_key_that_opens_its_headers(store: Store) -> None:
    spec = ProviderSpec(base_url="https://shop.example", headers={"Authorization": OURS.seal("Bearer s3cret")})
    store.put_provider(PutProvider("shop", spec), now_ms=NOW_MS)
    assert needs_its_key(store, now_ms=NOW_MS)
    with pytest.raises(WrongSecretKey):
        check_secret(store, ANOTHER, now_ms=NOW_MS)
    assert proof(store) is None
    check_secret(store, OURS, now_ms=NOW_MS)
    assert proof(store) is not None


def test_store_of_an_older_version_takes_the_key_that_opens_its_accounts_keys(store: Store) -> None:
    store.put_account("lab", AccountSpec())
    store.add_key(AddKey("lab", OURS.seal("11111111-2222-3333-4444-555555555555"), "5555", ""), now_ms=NOW_MS)
    with pytest.raises(WrongSecretKey):
        check_secret(store, ANOTHER, now_ms=NOW_MS)
    check_secret(store, OURS, now_ms=NOW_MS)


def test_empty_store_accepts_any_key_and_a_store_with_a_user_only_its_own(store_factory: Opener) -> None:
    store = store_factory()
    check_secret(store, OURS, now_ms=NOW_MS)
    check_secret(store, ANOTHER, now_ms=NOW_MS)
    store.add_user(user("ann"))
    with pytest.raises(WrongSecretKey):
        check_secret(store, OURS, now_ms=NOW_MS)


def test_adopted_secret_key_replaces_the_stores_key(store: Store) -> None:
    check_secret(store, OURS, now_ms=NOW_MS)
    assert adopt_secret(store, ANOTHER)
    assert not adopt_secret(store, ANOTHER)
    check_secret(store, ANOTHER, now_ms=NOW_MS)
    with pytest.raises(WrongSecretKey):
        check_secret(store, OURS, now_ms=NOW_MS)
