"""Providers: put, paused, resumed and removed by operators. Their secrets are sealed before the store sees them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from paceline.core.batches.provider import ProviderDefinition, ProviderSpec, keep_hidden, parse_provider
from paceline.core.batches.values import ProviderPut, PutProvider
from paceline.core.ids import id_problem
from paceline.errors import AlreadyExists, InvalidInput, NotFound, RevisionMismatch
from paceline.ports import BatchStore, Vault
from paceline.steps.batches.headers import seal_headers
from paceline.steps.edit import edit


def put_provider(
    store: BatchStore, vault: Vault, provider_id: str, body: bytes, *, expected_revision: int | None = None, now_ms: int
) -> ProviderPut:
    """Put a provider from JSON. A header given as it is shown (hidden) keeps the stored value."""
    if problem := id_problem(provider_id, "/id"):
        raise InvalidInput.of(problem)
    return put_provider_spec(
        store, vault, provider_id, parse_provider(body), expected_revision=expected_revision, now_ms=now_ms
    )


def put_provider_spec(
    store: BatchStore, vault: Vault, provider_id: str, spec: ProviderSpec, *, expected_revision: int | None, now_ms: int
) -> ProviderPut:
    # Values that mean "as stored" are filled in by keep_hidden.
    sealed = msgspec.structs.replace(spec, headers=seal_headers(spec.headers, vault))

    def changed(stored: ProviderSpec | None) -> ProviderSpec:
        return keep_hidden(sealed, stored)

    return _edit(store, provider_id, changed, expected_revision=expected_revision, now_ms=now_ms)


def set_provider_paused(
    store: BatchStore, provider_id: str, *, paused: bool, expected_revision: int | None = None, now_ms: int
) -> ProviderPut:
    """Pause or resume a provider.

    Paused, it starts nothing more. Resumed, it catches up at the pace that ``core.batches.pace`` sets.
    """

    def changed(stored: ProviderSpec | None) -> ProviderSpec:
        if stored is None:
            raise no_provider(provider_id)
        return msgspec.structs.replace(stored, paused=paused)

    return _edit(store, provider_id, changed, expected_revision=expected_revision, now_ms=now_ms)


def remove_provider(store: BatchStore, provider_id: str) -> None:
    match store.remove_provider(provider_id):
        case "removed":
            return
        case "not_found":
            raise no_provider(provider_id)
        case "in_use":
            raise AlreadyExists(
                f"Provider {provider_id!r} is in use: records name it, or runs of it have not ended."
                " Remove its records or give them another provider, and let its runs end."
            )


def get_provider(store: BatchStore, provider_id: str) -> ProviderDefinition:
    provider = store.provider(provider_id)
    if provider is None:
        raise no_provider(provider_id)
    return provider


def no_provider(provider_id: str) -> NotFound:
    return NotFound(f"There is no provider {provider_id!r}. An admin can put one.")


def _edit(
    store: BatchStore,
    provider_id: str,
    change: Callable[[ProviderSpec | None], ProviderSpec],
    *,
    expected_revision: int | None,
    now_ms: int,
) -> ProviderPut:
    """Write the changed spec only onto the one that was read; try again if somebody wrote in between.

    With ``expected_revision``, raise RevisionMismatch unless that is the stored revision; 0: none.
    """

    def attempt() -> ProviderPut | None:
        stored = store.provider(provider_id)
        seen = (stored.revision if stored else 0) if expected_revision is None else expected_revision
        put = PutProvider(provider_id, change(stored.spec if stored else None), seen)
        result = store.put_provider(put, now_ms=now_ms)
        if result.disposition != "revision_mismatch":
            return result
        if expected_revision is None:
            return None
        now = f"it is at revision {result.provider.revision}" if result.provider else "it does not exist"
        raise RevisionMismatch(f"Provider {provider_id!r} is not as you have seen it: {now}. Read it again and retry.")

    return edit(f"Provider {provider_id!r}", attempt)
