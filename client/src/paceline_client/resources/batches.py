from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Unpack

from paceline_client.answers import IfChanged, IfLeft, Json, Nothing, Page
from paceline_client.calls import Call, Pages, Plan, Resource, Transport, given, listing, operation
from paceline_client.models.batches import Batch, BatchDefinition
from paceline_client.models.providers import Provider, ProviderDefinition
from paceline_client.resources.editing import guarded_edit

_PROVIDER = "/v1/providers/{provider}"
_BATCH = "/v1/batches/{batch}"


class Providers(Resource[Transport]):
    """Services you do not own, and how they are to be treated. For admins."""

    @operation
    def put(
        self,
        provider: str,
        *,
        if_match: str | None = None,
        if_none_match: str | None = None,
        **fields: Unpack[ProviderDefinition],
    ) -> Call[Provider]:
        """Creates the provider or replaces it. What is left out is the default."""
        headers = {"If-Match": if_match, "If-None-Match": if_none_match}
        places = {"provider": provider}
        return Call("PUT", _PROVIDER, Json(Provider), places, headers=headers, body=given(**fields))

    @operation
    def get(self, provider: str) -> Call[Provider]:
        """The provider, and how it is doing."""
        return Call("GET", _PROVIDER, Json(Provider), {"provider": provider})

    @operation
    def get_if_changed(self, provider: str, *, if_none_match: str) -> Call[Provider | None]:
        """The provider, or None if its definition is still the one with this ETag."""
        headers = {"If-None-Match": if_none_match}
        return Call("GET", _PROVIDER, IfChanged(Provider), {"provider": provider}, headers=headers)

    @operation
    def edit(self, provider: str, change: Callable[[Provider], ProviderDefinition]) -> Plan[Provider]:
        """Reads the provider, puts what ``change`` makes of it, and does so again if somebody else was faster.

        ``change`` gets the provider and returns the fields that are to be different, such as ``{"rate": "5/1s"}``.
        """
        read, put = Providers.get.describe(self, provider), partial(Providers.put.describe, self, provider)
        return guarded_edit(read, put, ProviderDefinition, change)

    @operation
    def remove(self, provider: str) -> Call[None]:
        """Removes the provider, unless a record names it or a run of it has not ended."""
        return Call("DELETE", _PROVIDER, Nothing(), {"provider": provider})

    @operation
    def pause(self, provider: str) -> Call[Provider]:
        """Lets nothing more of the provider start."""
        return Call("POST", f"{_PROVIDER}/pause", Json(Provider), {"provider": provider}, repeatable=True)

    @operation
    def resume(self, provider: str) -> Call[Provider]:
        """Lets the provider go on; it catches up at a pace."""
        return Call("POST", f"{_PROVIDER}/resume", Json(Provider), {"provider": provider}, repeatable=True)

    @listing
    def list(self, *, figures: bool | None = None, limit: int | None = None) -> Pages[Provider]:
        """All providers in order of id. ``figures``: with the latency of each."""
        query = {"figures": None if figures is None else str(figures).lower()}
        return Pages(Call("GET", "/v1/providers", Json(Page[Provider]), query=query), limit)


class Batches(Resource[Transport]):
    """Records that run once a day, spread evenly over a window. For admins."""

    @operation
    def put(
        self,
        batch: str,
        *,
        if_match: str | None = None,
        if_none_match: str | None = None,
        **fields: Unpack[BatchDefinition],
    ) -> Call[Batch]:
        """Creates the batch or replaces it. What is left out is the default."""
        headers = {"If-Match": if_match, "If-None-Match": if_none_match}
        return Call("PUT", _BATCH, Json(Batch), {"batch": batch}, headers=headers, body=given(**fields))

    @operation
    def get(self, batch: str) -> Call[Batch]:
        """The batch with its next start."""
        return Call("GET", _BATCH, Json(Batch), {"batch": batch})

    @operation
    def get_if_changed(self, batch: str, *, if_none_match: str) -> Call[Batch | None]:
        """The batch, or None if its definition is still the one with this ETag."""
        headers = {"If-None-Match": if_none_match}
        return Call("GET", _BATCH, IfChanged(Batch), {"batch": batch}, headers=headers)

    @operation
    def edit(self, batch: str, change: Callable[[Batch], BatchDefinition]) -> Plan[Batch]:
        """Reads the batch, puts what ``change`` makes of it, and does so again if somebody else was faster.

        ``change`` gets the batch and returns the fields that are to be different, such as ``{"window": "6h"}``.
        """
        read, put = Batches.get.describe(self, batch), partial(Batches.put.describe, self, batch)
        return guarded_edit(read, put, BatchDefinition, change)

    @operation
    def remove(self, batch: str) -> Call[Batch | None]:
        """Deletes the batch with its records and runs. None: it is gone; else the service goes on with it."""
        return Call("DELETE", _BATCH, IfLeft(Batch), {"batch": batch})

    @operation
    def pause(self, batch: str) -> Call[Batch]:
        """Lets nothing more of the batch start."""
        return Call("POST", f"{_BATCH}/pause", Json(Batch), {"batch": batch}, repeatable=True)

    @operation
    def resume(self, batch: str) -> Call[Batch]:
        """Lets the batch go on; it catches up at a pace."""
        return Call("POST", f"{_BATCH}/resume", Json(Batch), {"batch": batch}, repeatable=True)

    @listing
    def list(self, *, limit: int | None = None) -> Pages[Batch]:
        """All batches in order of id."""
        return Pages(Call("GET", "/v1/batches", Json(Page[Batch])), limit)
