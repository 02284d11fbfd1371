from __future__ import annotations

import json
from typing import Any

import pytest

from paceline.core.batches.batch import Batch, BatchSpec, RecordSpec, window_of
from paceline.errors import InvalidInput, NotFound, PacelineError, RevisionMismatch
from paceline.ports import Store
from paceline.steps.batches import batches, providers
from tests.contract.support.batch_stage import DATE, put_provider
from tests.contract.support.stage import T0_MS

START_MS = window_of(BatchSpec(), DATE).start_ms


class OpenVault:
    def seal(self, secret: str) -> str:
        return f"sealed {secret}"

    def unseal(self, sealed: str) -> str:
        return sealed.removeprefix("sealed ")


def test_records_are_judged_each_by_itself(store: Store, batch: Batch) -> None:
    bodies = [
        b'{"id": "r00", "provider": "a", "endpoint": "/r00"}',
        b'{"id": "new", "provider": "a", "body": {"x": [1]}}',
        b'{"id": "r01", "provider": "c"}',
        b'{"id": "bad id", "provider": "a"}',
        b'{"id": "x", "provider": "nobody"}',
        b"{",
        b'{"id": "x", "provider": "a", "body": "\xff"}',
        b'{"id": "x", "provider": "a", "endpoint": "http://example.org"}',
    ]
    results = batches.put_records(store, batch, bodies, now_ms=T0_MS)
    assert [result.disposition for result in results] == ["unchanged", "created", "replaced", *["refused"] * 5]
    assert [result.error.code if result.error else None for result in results[3:]] == [
        "invalid_input",
        "invalid_input",
        "malformed_body",
        "malformed_body",
        "invalid_input",
    ]
    assert store.record(batch, "new") == RecordSpec("new", "a", body='{"x": [1]}')
    with pytest.raises(NotFound):
        batches.remove_record(store, batch, "x")


def test_a_providers_secrets_are_sealed_and_kept_when_given_back_hidden(store: Store) -> None:
    def put(**headers: str) -> Any:
        body = json.dumps({"base_url": "http://example.org", "headers": headers}).encode()
        return providers.put_provider(store, OpenVault(), "a", body, now_ms=T0_MS)

    assert put(Key="secret", Other="x").disposition == "created"
    kept = put(Key="***").provider
    assert kept.spec.headers == {"Key": "sealed secret"}
    assert {name: OpenVault().unseal(value) for name, value in kept.spec.headers.items()} == {"Key": "secret"}
    with pytest.raises(InvalidInput):
        put(Gone="***")


def test_pausing_a_provider_changes_nothing_else(store: Store) -> None:
    with pytest.raises(NotFound):
        providers.set_provider_paused(store, "a", paused=True, now_ms=T0_MS)
    put_provider(store, "a", rate="5/1s")
    paused = providers.set_provider_paused(store, "a", paused=True, now_ms=T0_MS)
    assert paused.provider is not None
    assert (paused.provider.spec.paused, paused.provider.spec.rate) == (True, "5/1s")
    assert providers.set_provider_paused(store, "a", paused=True, now_ms=T0_MS).disposition == "unchanged"
    with pytest.raises(RevisionMismatch):
        providers.set_provider_paused(store, "a", paused=False, expected_revision=1, now_ms=T0_MS)


@pytest.mark.usefixtures("batch")
def test_a_provider_in_use_is_not_removed(store: Store) -> None:
    with pytest.raises(PacelineError, match="in use"):
        providers.remove_provider(store, "a")
    with pytest.raises(NotFound):
        providers.remove_provider(store, "nobody")
