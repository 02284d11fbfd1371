"""The table of routes. It drives the routing, the checks before a handler runs, and the OpenAPI document."""

from __future__ import annotations

import sys

from paceline.errors import (
    AlreadyExists,
    LimitReached,
    NotClaimable,
    NotFound,
    RevisionMismatch,
    StaleLease,
    StoreDamaged,
    StoreUnavailable,
)
from paceline.shells.api import documents, monitors, outgoing, service, users
from paceline.shells.api.batch_routes import BATCHES, DEAD, PROVIDERS
from paceline.shells.api.job_routes import ACCOUNTS, JOBS
from paceline.shells.api.pages import Page
from paceline.shells.api.problems import NotReady
from paceline.shells.api.route import Handler, Route
from paceline.steps import report
from paceline.steps.days import CallRunView
from paceline.steps.outgoing import OutgoingItem

__all__ = ["ROUTES", "Handler", "Route"]

_EDIT_HEADERS = ("If-Match",)
_MONITORS = "/v1/users/{user}/monitors"
_MONITOR = f"{_MONITORS}/{{id}}"
_USER = "/v1/users/{user}"

HOT = (
    Route(
        "PUT",
        _MONITOR,
        monitors.put_monitor,
        "Monitors",
        "Creates the monitor (201) or replaces it (200).",
        {200: report.MonitorView, 201: report.MonitorView},
        document="MonitorBody",
        headers=("If-Match", "If-None-Match"),
        problems=(RevisionMismatch, LimitReached),
    ),
    Route(
        "POST",
        "/v1/outgoing/claim",
        outgoing.claim,
        "Outgoing queue",
        "Leases runs for your own checker; waits for the first, up to `wait`.",
        {200: documents.ClaimAnswer},
        body=documents.ClaimBody,
        body_needed=False,
        waits=True,
        problems=(NotFound,),
    ),
    Route(
        "POST",
        "/v1/runs/{run}/claim",
        outgoing.claim_run,
        "Outgoing queue",
        "Leases one run by its id, for a checker that was told of it by a message.",
        {200: OutgoingItem},
        body=documents.RunClaimBody,
        body_needed=False,
        problems=(NotClaimable,),
    ),
    Route(
        "POST",
        "/v1/runs/{run}/outcome",
        outgoing.report_outcome,
        "Outgoing queue",
        "Settles a leased run: ok, failed, or retry.",
        {200: report.RunView},
        body=documents.OutcomeBody,
        problems=(StaleLease,),
    ),
    Route(
        "POST",
        "/v1/outgoing/outcomes",
        outgoing.report_outcomes,
        "Outgoing queue",
        "Settles up to 1,000 leased runs; answers a disposition for each.",
        {200: documents.OutcomesAnswer},
        body=documents.OutcomesBody,
        body_bytes_max=sys.maxsize,
    ),
)
"""Matched first."""

MONITORS = (
    Route(
        "GET",
        _MONITOR,
        monitors.show_monitor,
        "Monitors",
        "The monitor with its schedule and health.",
        {200: report.MonitorView, 304: None},
        headers=("If-None-Match",),
    ),
    Route(
        "PATCH",
        _MONITOR,
        monitors.patch_monitor,
        "Monitors",
        "Changes some fields (JSON merge patch, RFC 7396).",
        {200: report.MonitorView},
        document="MonitorPatchBody",
        headers=_EDIT_HEADERS,
        problems=(RevisionMismatch,),
    ),
    Route(
        "DELETE",
        _MONITOR,
        monitors.remove_monitor,
        "Monitors",
        "Removes the monitor; nothing more fires.",
        {204: None},
        headers=_EDIT_HEADERS,
        problems=(RevisionMismatch,),
    ),
    Route(
        "POST",
        f"{_MONITOR}/pause",
        monitors.pause_monitor,
        "Monitors",
        "Pauses the monitor; it keeps its counter.",
        {200: report.MonitorView},
        headers=_EDIT_HEADERS,
        problems=(RevisionMismatch,),
    ),
    Route(
        "POST",
        f"{_MONITOR}/resume",
        monitors.resume_monitor,
        "Monitors",
        "Resumes the monitor at once.",
        {200: report.MonitorView},
        headers=_EDIT_HEADERS,
        problems=(RevisionMismatch,),
    ),
    Route(
        "GET",
        f"{_MONITOR}/runs",
        monitors.list_runs,
        "Monitors",
        "The monitor's runs, newest first.",
        {200: Page[report.RunView]},
        paged=True,
    ),
    Route(
        "GET",
        _MONITORS,
        monitors.list_monitors,
        "Monitors",
        "The user's monitors in order of id.",
        {200: Page[report.MonitorView]},
        paged=True,
    ),
    Route(
        "PUT",
        _MONITORS,
        monitors.put_monitors,
        "Monitors",
        "Puts many monitors; answers a disposition for each.",
        {200: documents.BulkAnswer},
        body=documents.BulkBody,
        body_bytes_max=sys.maxsize,
    ),
)

RUNS = (
    Route(
        "POST",
        "/v1/runs/{run}/extend",
        outgoing.extend_lease,
        "Outgoing queue",
        "Moves the end of a lease, counted from now.",
        {200: documents.ExtendAnswer},
        body=documents.ExtendBody,
        problems=(StaleLease,),
    ),
    Route(
        "GET",
        "/v1/runs/{run}",
        outgoing.show,
        "Runs",
        "One run by its id; a batch's runs are for admins.",
        {200: (report.RunView, CallRunView)},
    ),
)

USERS = (
    Route(
        "POST",
        "/v1/users",
        users.add_user,
        "Users",
        "Adds a user with a first token, which is shown this once.",
        {201: documents.NewUser},
        access="admin",
        body=documents.NewUserBody,
        problems=(AlreadyExists,),
    ),
    Route(
        "GET",
        "/v1/users",
        users.list_users,
        "Users",
        "All users in order of id.",
        {200: Page[report.UserView]},
        access="admin",
        paged=True,
    ),
    Route("GET", _USER, users.show_user, "Users", "The user; `me` is whose token it is.", {200: report.UserView}),
    Route(
        "PATCH",
        _USER,
        users.edit_user,
        "Users",
        "Changes role or daily credits; disables or enables.",
        {200: report.UserView},
        access="admin",
        body=documents.UserPatchBody,
    ),
    Route(
        "DELETE",
        _USER,
        users.remove_user,
        "Users",
        "Removes the user with tokens and monitors.",
        {204: None},
        access="admin",
    ),
    Route(
        "POST",
        f"{_USER}/tokens",
        users.add_token,
        "Users",
        "Makes a token, which is shown this once.",
        {201: documents.TokenMade},
        body=documents.NewTokenBody,
        body_needed=False,
        problems=(LimitReached,),
    ),
    Route(
        "GET",
        f"{_USER}/tokens",
        users.list_tokens,
        "Users",
        "The user's tokens, without their secrets.",
        {200: Page[report.TokenView]},
        paged=True,
    ),
    Route(
        "DELETE",
        f"{_USER}/tokens/{{token_id}}",
        users.revoke_token,
        "Users",
        "Revokes a token, from the next request on.",
        {204: None},
    ),
)

SERVICE = (
    Route(
        "GET",
        "/v1/schedulers",
        service.list_schedulers,
        "Service",
        "All entries, in order of generation.",
        {200: Page[report.SchedulerView]},
        access="admin",
        paged=True,
    ),
    Route(
        "GET",
        "/v1/status",
        service.status,
        "Service",
        "Counts and ages of everything.",
        {200: report.StatusView},
        access="admin",
    ),
    Route(
        "GET", "/healthz", service.healthz, "Service", "The process is alive.", {200: documents.Alive}, access="open"
    ),
    Route(
        "GET",
        "/readyz",
        service.readyz,
        "Service",
        "The store can be written and every loop turns.",
        {200: documents.Ready},
        access="open",
        problems=(StoreUnavailable, StoreDamaged, NotReady),
    ),
    Route(
        "GET",
        "/metrics",
        service.metrics,
        "Service",
        "Figures for Prometheus.",
        {200: "text/plain"},
        access="open",
    ),
)

ROUTES: tuple[Route, ...] = (*HOT, *MONITORS, *RUNS, *PROVIDERS, *BATCHES, *DEAD, *JOBS, *ACCOUNTS, *USERS, *SERVICE)
