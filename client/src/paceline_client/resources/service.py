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
        """Lists all entries, in order of generation."""
        return Pages(Call("GET", "/v1/schedulers", Json(Page[SchedulerEntry])), limit)


class Service(Resource[Transport]):
    """State of the service, and its coming work."""

    @operation
    def status(self) -> Call[Status]:
        """Returns counts and ages of everything. For admins."""
        return Call("GET", "/v1/status", Json(Status))

    @operation
    def ahead(self, *, hours: int | None = None, user: str | None = None) -> Call[Ahead]:
        """Returns the next hours: starts against capacity, and the worst minutes.

        For admins of all users, or of one user.
        """
        return Call("GET", "/v1/ahead", Json(Ahead), query={"hours": hours, "user": user})

    @operation
    def alive(self) -> Call[Alive]:
        """Checks that the process answers. Needs no token."""
        return Call("GET", "/healthz", Json(Alive))

    @operation
    def ready(self) -> Call[Ready]:
        """Checks that the store can be written and every loop turns; raises ``Unavailable`` if not. Needs no token."""
        return Call("GET", "/readyz", Json(Ready))

    @operation
    def metrics(self) -> Call[str]:
        """Returns the metrics in the text format of Prometheus. Needs no token."""
        return Call("GET", "/metrics", Text())
