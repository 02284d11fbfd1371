"""Headers and bodies of checks: sealed where they are stored, opened where the check is made."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from paceline.adapters.vault import SecretVault
from paceline.core.http.auth import BasicAuth
from paceline.core.monitors.checks import HttpCheck, check_document
from paceline.core.monitors.definition import SpecLimits, encode_spec
from paceline.core.monitors.values import PutMonitor
from paceline.errors import InvalidInput
from paceline.ports import Store
from paceline.steps.monitors import define
from paceline.steps.monitors.check_secrets import CheckOpener, seal_put, seal_stored
from paceline.steps.upkeep.secret import check_secret, seal_checks
from tests.contract.support.stage import T0_MS

VAULT = SecretVault(b"the installation's own secret...")
CANARY = "canary-7f3a9c-secret"
DOCUMENT = {
    "check": {
        "kind": "http",
        "url": "https://example.org/",
        "method": "POST",
        "headers": {"Authorization": f"Bearer {CANARY}", "Accept": "text/plain"},
        "body": f"password={CANARY}",
    },
    "every": "60s",
    "initial_delay": "0s",
}


def parsed(document: object = DOCUMENT) -> PutMonitor:
    return define.parse_put("ann", "home", json.dumps(document).encode(), SpecLimits())


def put(store: Store, document: object = DOCUMENT) -> str:
    sealed = seal_put(store, VAULT, parsed(document))
    return define.put_monitor(store, sealed, monitors_max=10, now_ms=T0_MS).disposition


def stored_check(store: Store) -> HttpCheck:
    found = store.monitor("ann", "home")
    assert found is not None
    assert isinstance(found.spec.check, HttpCheck)
    return found.spec.check


def test_secrets_are_stored_sealed_shown_masked_and_opened_for_the_check(store: Store, other: Store) -> None:
    assert put(store) == "created"
    found = other.monitor("ann", "home")
    assert found is not None
    assert CANARY.encode() not in encode_spec(found.spec)
    shown = check_document(found.spec.check)
    assert shown["headers"] == {"Authorization": "***", "Accept": "***"}
    assert shown["body"] == "***"
    assert "sealed" not in shown
    opened = CheckOpener(VAULT).open(stored_check(other))
    assert isinstance(opened, HttpCheck)
    assert (opened.headers["Authorization"], opened.body) == (f"Bearer {CANARY}", f"password={CANARY}")


def test_same_definition_again_is_unchanged_and_another_secret_replaces(store: Store) -> None:
    assert put(store) == "created"
    assert put(store) == "unchanged"
    other_body = {**DOCUMENT, "check": {**DOCUMENT["check"], "body": "another"}}  # type: ignore[dict-item]
    assert put(store, other_body) == "replaced"


def test_masked_secrets_in_a_put_keep_the_stored_values(store: Store) -> None:
    put(store)
    before = stored_check(store)
    masked = {**DOCUMENT, "check": check_document(before), "every": "30s"}
    assert put(store, masked) == "replaced"
    assert stored_check(store) == before
    assert put(store, masked) == "unchanged"


def test_auth_is_stored_sealed_shown_masked_and_kept_by_its_mask(store: Store) -> None:
    basic = {"kind": "basic", "username": f"user-{CANARY}", "password": CANARY}
    document = {"check": {"kind": "http", "url": "https://example.org/", "auth": basic}, "every": "60s"}
    assert put(store, document) == "created"
    assert put(store, document) == "unchanged"
    found = store.monitor("ann", "home")
    assert found is not None
    assert CANARY.encode() not in encode_spec(found.spec)
    shown = check_document(found.spec.check)
    assert shown["auth"] == {"kind": "basic", "username": "***", "password": "***"}
    before = stored_check(store)
    assert put(store, {"check": shown, "every": "30s"}) == "replaced"
    assert stored_check(store) == before
    opened = CheckOpener(VAULT).open(before)
    assert isinstance(opened, HttpCheck)
    assert opened.auth == BasicAuth(username=f"user-{CANARY}", password=CANARY)
    other_password = {**shown, "auth": {**shown["auth"], "password": "new"}}
    assert put(store, {"check": other_password, "every": "30s"}) == "replaced"
    opened = CheckOpener(VAULT).open(stored_check(store))
    assert isinstance(opened, HttpCheck)
    assert opened.auth == BasicAuth(username=f"user-{CANARY}", password="new")


def test_masked_auth_of_another_kind_is_refused_by_name(store: Store) -> None:
    put(store)
    check = {"kind": "http", "url": "https://example.org/", "auth": {"kind": "bearer", "token": "***"}}
    with pytest.raises(InvalidInput) as refused:
        put(store, {"check": check, "every": "60s"})
    assert [problem.pointer for problem in refused.value.errors] == ["/check/auth/token"]


def test_mask_without_a_stored_value_is_refused_by_name(store: Store) -> None:
    check = {"kind": "http", "url": "https://example.org/", "headers": {"X-Key": "***"}}
    with pytest.raises(InvalidInput) as refused:
        put(store, {"check": check, "every": "60s"})
    assert [one.pointer for one in refused.value.errors] == ["/check/headers/X-Key"]


def test_patch_keeps_seals_and_removes_secrets(store: Store) -> None:
    put(store)
    before = stored_check(store)

    def patched(patch: object) -> HttpCheck:
        define.edit_monitor(
            store,
            "ann",
            "home",
            lambda spec: define.merge_patch(spec, json.dumps(patch).encode(), SpecLimits(), VAULT),
            expected_revision=None,
            monitors_max=10,
            now_ms=T0_MS,
        )
        return stored_check(store)

    assert patched({"tags": ["a"]}) == before
    changed = patched({"check": {"headers": {"Accept": None, "X-New": CANARY}}})
    assert set(changed.headers) == {"Authorization", "X-New"}
    assert changed.headers["Authorization"] == before.headers["Authorization"]
    assert VAULT.unseal(changed.headers["X-New"]) == CANARY
    assert changed.body == before.body


def test_large_body_can_still_be_read_after_it_was_sealed(store: Store) -> None:
    body = "x" * 60_000
    put(store, {**DOCUMENT, "check": {**DOCUMENT["check"], "body": body}})  # type: ignore[dict-item]
    opened = CheckOpener(VAULT).open(stored_check(store))
    assert isinstance(opened, HttpCheck)
    assert opened.body == body


def test_user_cannot_claim_that_a_value_is_sealed(store: Store) -> None:
    with pytest.raises(InvalidInput, match="/check/sealed"):
        put(store, {**DOCUMENT, "check": {**DOCUMENT["check"], "sealed": True}})  # type: ignore[dict-item]


def test_unsealed_secrets_of_an_older_version_are_sealed_once_without_a_new_revision(store: Store) -> None:
    store.put_monitors([parsed()], monitors_max=10, now_ms=T0_MS)
    check_secret(store, VAULT, now_ms=T0_MS)
    assert seal_checks(store, VAULT) == 1
    found = store.monitor("ann", "home")
    assert found is not None
    assert found.revision == 1
    assert CANARY.encode() not in encode_spec(found.spec)
    assert put(store) == "unchanged"
    assert seal_checks(store, VAULT) == 0
    check_secret(store, VAULT, now_ms=T0_MS)
    store.put_monitors([replace(parsed(), id="late")], monitors_max=10, now_ms=T0_MS)
    assert seal_stored(store, VAULT) == 1


def test_check_that_was_sealed_with_another_key_is_not_opened(store: Store) -> None:
    put(store)
    assert CheckOpener(SecretVault(b"a secret that somebody mistyped.")).open(stored_check(store)) is None
