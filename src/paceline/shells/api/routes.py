"""All routes, collected from the modules that declare them, in the order of the OpenAPI document."""

from __future__ import annotations

from paceline.shells.api import (
    accounts,
    ahead,
    batches,
    channels,
    days,
    dead,
    jobs,
    monitor_queries,
    monitors,
    outgoing,
    providers,
    records,
    service,
    uptime,
    users,
    why,
)
from paceline.shells.api.http.route import Route, RouteGroup

_GROUPS: tuple[RouteGroup, ...] = (
    monitors.MONITORS,
    monitor_queries.MONITOR_QUERIES,
    uptime.UPTIME,
    channels.CHANNELS,
    outgoing.OUTGOING,
    why.WHY,  # before the routes of runs: their ids may contain slashes
    outgoing.RUNS,
    providers.PROVIDERS,
    batches.BATCHES,
    records.RECORDS,
    days.DAYS,
    dead.DEAD,
    jobs.JOBS,
    jobs.BUDGETS,
    accounts.ACCOUNTS,
    users.USERS,
    ahead.AHEAD,
    service.SERVICE,
)

ROUTES: tuple[Route, ...] = tuple(
    sorted((route for group in _GROUPS for route in group.routes), key=lambda route: not route.hot)
)
