"""The service itself."""

from __future__ import annotations

from paceline_client.answers import Json, Page, Text
from paceline_client.calls import Call, Pages, Resource, Transport, listing, operation
from paceline_client.models.ahead import Ahead
from paceline_client.models.service import Alive, Ready, SchedulerEntry, Status


class Schedulers(Resource[Transport]):
    """Entries of the scheduler. For admins."""

    @listing
    def list(self, *, limit: int | None = None) -> Pages[SchedulerEntry]:
        """All entries, in order of generation."""
        return Pages(Call("GET", "/v1/schedulers", Json(Page[SchedulerEntry])), limit)


class Service(Resource[Transport]):
    """Whether the service lives and what it has to do."""

    @operation
    def status(self) -> Call[Status]:
        """Counts and ages of everything. For admins."""
        return Call("GET", "/v1/status", Json(Status))

    @operation
    def ahead(self, *, hours: int | None = None, user: str | None = None) -> Call[Ahead]:
        """The next hours: starts against capacity, and the worst minutes. For admins of everybody, or of one user."""
        return Call("GET", "/v1/ahead", Json(Ahead), query={"hours": hours, "user": user})

    @operation
    def alive(self) -> Call[Alive]:
        """The process answers. Needs no token."""
        return Call("GET", "/healthz", Json(Alive))

    @operation
    def ready(self) -> Call[Ready]:
        """The store can be written and every loop turns; raises ``Unavailable`` otherwise. Needs no token."""
        return Call("GET", "/readyz", Json(Ready))

    @operation
    def metrics(self) -> Call[str]:
        """Figures in the text format of Prometheus. Needs no token."""
        return Call("GET", "/metrics", Text())
