from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Literal, TypeAlias, Unpack

from paceline_client.answers import IfChanged, Json, Nothing, Page, Text
from paceline_client.calls import Call, Pages, Plan, Resource, Transport, given, listing, operation
from paceline_client.durations import DurationLike
from paceline_client.lines import Progress
from paceline_client.models.alerts import Silence
from paceline_client.models.monitors import (
    BulkAnswer,
    BulkResult,
    Monitor,
    MonitorChanges,
    MonitorDefinition,
    MonitorFilters,
    MonitorItem,
    Run,
    RunNow,
    Upcoming,
    Uptime,
)
from paceline_client.models.why import Why
from paceline_client.resources.editing import guarded_edit

CHUNK_ITEMS = 1_000
_MONITORS = "/v1/users/{user}/monitors"
_MONITOR = _MONITORS + "/{id}"
_UPTIME = _MONITOR + "/uptime"
Results: TypeAlias = list[BulkResult]


class Monitors(Resource[Transport]):
    """Monitors of a user. ``user`` is ``me``, or for admins any user."""

    @operation
    def put(
        self,
        monitor: str,
        *,
        user: str = "me",
        if_match: str | None = None,
        if_none_match: str | None = None,
        **fields: Unpack[MonitorDefinition],
    ) -> Call[Monitor]:
        """Creates the monitor or replaces it. Fields that are left out get their defaults.

        ``if_match``: only if it still has this ETag. ``if_none_match="*"``: only if it does not exist.
        """
        headers = {"If-Match": if_match, "If-None-Match": if_none_match}
        places = {"user": user, "id": monitor}
        return Call("PUT", _MONITOR, Json(Monitor), places, headers=headers, body=given(**fields))

    @operation
    def get(self, monitor: str, *, user: str = "me") -> Call[Monitor]:
        """Returns the monitor with its schedule and health."""
        return Call("GET", _MONITOR, Json(Monitor), {"user": user, "id": monitor})

    @operation
    def get_if_changed(self, monitor: str, *, if_none_match: str, user: str = "me") -> Call[Monitor | None]:
        """Returns the monitor, or None if its definition still has this ETag."""
        headers = {"If-None-Match": if_none_match}
        return Call("GET", _MONITOR, IfChanged(Monitor), {"user": user, "id": monitor}, headers=headers)

    @operation
    def patch(
        self, monitor: str, *, user: str = "me", if_match: str | None = None, **fields: Unpack[MonitorChanges]
    ) -> Call[Monitor]:
        """Changes some fields: None removes one, documents merge, the rest replaces."""
        headers, places = {"If-Match": if_match}, {"user": user, "id": monitor}
        return Call("PATCH", _MONITOR, Json(Monitor), places, headers=headers, body=dict(fields))

    @operation
    def edit(self, monitor: str, change: Callable[[Monitor], MonitorChanges], *, user: str = "me") -> Plan[Monitor]:
        """Reads the monitor, puts the changes of ``change``, and repeats both if somebody else was faster.

        ``change`` gets the monitor and returns the fields to change, such as ``lambda home: {"tags": [*home.tags,
        "web"]}``. ``every`` replaces ``cron``, and the other way round.
        """

        def changed(seen: Monitor) -> dict[str, object]:
            changes: dict[str, object] = dict(change(seen))
            if changes.get("every") is not None:
                return {"cron": None, "timezone": None} | changes
            return {"every": None} | changes if changes.get("cron") is not None else changes

        read = Monitors.get.describe(self, monitor, user=user)
        return guarded_edit(read, partial(Monitors.put.describe, self, monitor, user=user), MonitorDefinition, changed)

    @operation
    def remove(self, monitor: str, *, user: str = "me", if_match: str | None = None) -> Call[None]:
        """Removes the monitor; nothing more fires."""
        return Call("DELETE", _MONITOR, Nothing(), {"user": user, "id": monitor}, headers={"If-Match": if_match})

    @operation
    def pause(self, monitor: str, *, user: str = "me", if_match: str | None = None) -> Call[Monitor]:
        """Pauses the monitor; it keeps its counter."""
        return _switch(monitor, "pause", user=user, if_match=if_match)

    @operation
    def resume(self, monitor: str, *, user: str = "me", if_match: str | None = None) -> Call[Monitor]:
        """Resumes the monitor at once."""
        return _switch(monitor, "resume", user=user, if_match=if_match)

    @operation
    def silence(self, monitor: str, *, lasting: DurationLike, reason: str = "", user: str = "me") -> Call[Silence]:
        """Holds back the monitor's alerts for this time; its runs go on."""
        body = given(reason=reason) | {"for": lasting}
        return Call("POST", f"{_MONITOR}/silence", Json(Silence), {"user": user, "id": monitor}, body=body)

    @listing
    def list(self, *, user: str = "me", limit: int | None = None, **filters: Unpack[MonitorFilters]) -> Pages[Monitor]:
        """Lists the user's monitors that match all filters, in order of id or as ``sort`` says."""
        return Pages(Call("GET", _MONITORS, Json(Page[Monitor]), {"user": user}, query=_query(filters)), limit)

    @listing
    def list_all(
        self, *, user: str | None = None, limit: int | None = None, **filters: Unpack[MonitorFilters]
    ) -> Pages[Monitor]:
        """Lists the monitors of all users, or of ``user``, that match all filters. For admins."""
        query = {"user": user, **_query(filters)}
        return Pages(Call("GET", "/v1/monitors", Json(Page[Monitor]), query=query), limit)

    @operation
    def put_many(
        self, monitors: Iterable[MonitorItem], *, user: str = "me", progress: Progress | None = None
    ) -> Plan[Results]:
        """Puts many monitors, a thousand per request; returns a disposition for each, in order.

        Each is judged by itself: a refused one does not stop the others.
        """
        results: Results = []
        left = iter(monitors)
        while items := [given(**monitor) for monitor in islice(left, CHUNK_ITEMS)]:
            answer = yield from Call("PUT", _MONITORS, Json(BulkAnswer), {"user": user}, body={"items": items})
            results += answer.items
            if progress is not None:
                progress(len(results))
        return results

    @operation
    def run(self, monitor: str, *, user: str = "me") -> Call[RunNow]:
        """Checks now, once; the cadence is not changed. If a run of the monitor is open, that run is returned."""
        return Call("POST", f"{_MONITOR}/run", Json(RunNow), {"user": user, "id": monitor}, repeatable=True)

    @operation
    def next(self, monitor: str, *, user: str = "me", count: int | None = None) -> Call[Upcoming]:
        """Returns the next times of the monitor, if nothing is edited: five times, or ``count``."""
        query = {"count": count}
        return Call("GET", f"{_MONITOR}/next", Json(Upcoming), {"user": user, "id": monitor}, query=query)

    @operation
    def why(self, monitor: str, *, user: str = "me") -> Call[Why]:
        """Explains why the monitor does not fire: by a run that waits, else by its next firing."""
        return Call("GET", f"{_MONITOR}/why", Json(Why), {"user": user, "id": monitor})

    @operation
    def uptime(self, monitor: str, *, user: str = "me") -> Call[Uptime]:
        """Returns shares of good time, latencies and incidents of the last 90 days, and the days."""
        return Call("GET", _UPTIME, Json(Uptime), {"user": user, "id": monitor})

    @operation
    def uptime_csv(self, monitor: str, *, user: str = "me") -> Call[str]:
        """Returns the days as CSV; the first line has the names of the columns."""
        return Call("GET", _UPTIME, Text(), {"user": user, "id": monitor}, {"format": "csv"})

    @listing
    def runs(self, monitor: str, *, user: str = "me", limit: int | None = None) -> Pages[Run]:
        """Lists the monitor's runs, newest first."""
        return Pages(Call("GET", f"{_MONITOR}/runs", Json(Page[Run]), {"user": user, "id": monitor}), limit)


def _switch(monitor: str, verb: str, *, user: str, if_match: str | None) -> Call[Monitor]:
    places, headers = {"user": user, "id": monitor}, {"If-Match": if_match}
    return Call("POST", f"{_MONITOR}/{verb}", Json(Monitor), places, headers=headers, repeatable=True)


def _query(filters: MonitorFilters) -> dict[str, str | None]:
    names: tuple[Literal["tag", "health", "kind", "q", "sort"], ...] = ("tag", "health", "kind", "q", "sort")
    figures = filters.get("figures")
    return {name: filters.get(name) for name in names} | {"figures": None if figures is None else str(figures).lower()}
