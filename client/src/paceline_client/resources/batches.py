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
    """Services that you do not own, and the limits to keep at each. For admins."""

    @operation
    def put(
        self,
        provider: str,
        *,
        if_match: str | None = None,
        if_none_match: str | None = None,
        **fields: Unpack[ProviderDefinition],
    ) -> Call[Provider]:
        """Creates the provider or replaces it. Fields that are left out get their defaults."""
        headers = {"If-Match": if_match, "If-None-Match": if_none_match}
        places = {"provider": provider}
        return Call("PUT", _PROVIDER, Json(Provider), places, headers=headers, body=given(**fields))

    @operation
    def get(self, provider: str) -> Call[Provider]:
        """Returns the provider and its state."""
        return Call("GET", _PROVIDER, Json(Provider), {"provider": provider})

    @operation
    def get_if_changed(self, provider: str, *, if_none_match: str) -> Call[Provider | None]:
        """Returns the provider, or None if its definition still has this ETag."""
        headers = {"If-None-Match": if_none_match}
        return Call("GET", _PROVIDER, IfChanged(Provider), {"provider": provider}, headers=headers)

    @operation
    def edit(self, provider: str, change: Callable[[Provider], ProviderDefinition]) -> Plan[Provider]:
        """Reads the provider, puts the changes of ``change``, and repeats both if somebody else was faster.

        ``change`` gets the provider and returns the fields to change, such as ``{"rate": "5/1s"}``.
        """
        read, put = Providers.get.describe(self, provider), partial(Providers.put.describe, self, provider)
        return guarded_edit(read, put, ProviderDefinition, change)

    @operation
    def remove(self, provider: str) -> Call[None]:
        """Removes the provider, unless a record names it or one of its runs has not ended."""
        return Call("DELETE", _PROVIDER, Nothing(), {"provider": provider})

    @operation
    def pause(self, provider: str) -> Call[Provider]:
        """Pauses the provider: nothing more of it starts."""
        return Call("POST", f"{_PROVIDER}/pause", Json(Provider), {"provider": provider}, repeatable=True)

    @operation
    def resume(self, provider: str) -> Call[Provider]:
        """Resumes the provider; it catches up at a limited pace."""
        return Call("POST", f"{_PROVIDER}/resume", Json(Provider), {"provider": provider}, repeatable=True)

    @listing
    def list(self, *, figures: bool | None = None, limit: int | None = None) -> Pages[Provider]:
        """Lists all providers in order of id. ``figures``: with the latency of each."""
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
        """Creates the batch or replaces it. Fields that are left out get their defaults."""
        headers = {"If-Match": if_match, "If-None-Match": if_none_match}
        return Call("PUT", _BATCH, Json(Batch), {"batch": batch}, headers=headers, body=given(**fields))

    @operation
    def get(self, batch: str) -> Call[Batch]:
        """Returns the batch with its next start."""
        return Call("GET", _BATCH, Json(Batch), {"batch": batch})

    @operation
    def get_if_changed(self, batch: str, *, if_none_match: str) -> Call[Batch | None]:
        """Returns the batch, or None if its definition still has this ETag."""
        headers = {"If-None-Match": if_none_match}
        return Call("GET", _BATCH, IfChanged(Batch), {"batch": batch}, headers=headers)

    @operation
    def edit(self, batch: str, change: Callable[[Batch], BatchDefinition]) -> Plan[Batch]:
        """Reads the batch, puts the changes of ``change``, and repeats both if somebody else was faster.

        ``change`` gets the batch and returns the fields to change, such as ``{"window": "6h"}``.
        """
        read, put = Batches.get.describe(self, batch), partial(Batches.put.describe, self, batch)
        return guarded_edit(read, put, BatchDefinition, change)

    @operation
    def remove(self, batch: str) -> Call[Batch | None]:
        """Deletes the batch with its records and runs.

        Returns None if it is gone; else the service goes on deleting it.
        """
        return Call("DELETE", _BATCH, IfLeft(Batch), {"batch": batch})

    @operation
    def pause(self, batch: str) -> Call[Batch]:
        """Pauses the batch: nothing more of it starts."""
        return Call("POST", f"{_BATCH}/pause", Json(Batch), {"batch": batch}, repeatable=True)

    @operation
    def resume(self, batch: str) -> Call[Batch]:
        """Resumes the batch; it catches up at a limited pace."""
        return Call("POST", f"{_BATCH}/resume", Json(Batch), {"batch": batch}, repeatable=True)

    @listing
    def list(self, *, limit: int | None = None) -> Pages[Batch]:
        """Lists all batches in order of id."""
        return Pages(Call("GET", "/v1/batches", Json(Page[Batch])), limit)
