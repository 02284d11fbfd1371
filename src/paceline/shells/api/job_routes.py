"""The routes of jobs and accounts. Users have jobs and a budget; accounts are for admins."""

from __future__ import annotations

import sys

from paceline.errors import AlreadyExists, AtlasUnavailable, JobFinished, NotFound, OverDailyCredits, RevisionMismatch
from paceline.shells.api import accounts, documents, jobs, results
from paceline.shells.api.pages import Page
from paceline.shells.api.route import Route
from paceline.steps import account_report, job_report

_JOB = "/v1/jobs/{job}"
_ACCOUNT = "/v1/accounts/{account}"
_KEY = f"{_ACCOUNT}/keys/{{key_id}}"

JOBS = (
    Route(
        "POST",
        "/v1/jobs",
        jobs.submit_job,
        "Jobs",
        "Prices the job, reserves its highest cost and submits it, whole or not at all.",
        {200: documents.JobQuote, 202: documents.JobAccepted},
        document="JobBody",
        body_bytes_max=sys.maxsize,
        query=("dry_run", "user"),
        headers=("Idempotency-Key",),
        problems=(OverDailyCredits, AlreadyExists, NotFound),
    ),
    Route(
        "GET",
        "/v1/jobs",
        jobs.list_jobs,
        "Jobs",
        "Jobs, newest first.",
        {200: Page[job_report.JobSummary]},
        paged=True,
        query=("user",),
        problems=(NotFound,),
    ),
    Route(
        "GET",
        _JOB,
        jobs.show_job,
        "Jobs",
        "The job, its counts, its cost, why it waits, and its measurements.",
        {200: job_report.JobView},
        query=("measurements",),
    ),
    Route(
        "DELETE",
        _JOB,
        jobs.cancel_job,
        "Jobs",
        "Cancels what has not ended: what was not sent is refunded, what runs is stopped.",
        {202: job_report.JobView},
        problems=(JobFinished,),
    ),
    Route(
        "GET",
        f"{_JOB}/results",
        results.stream_results,
        "Jobs",
        "Results as RIPE has them now, one to a line, streamed.",
        {200: results.MEDIA},
        query=("merged",),
        waits=True,
    ),
    Route(
        "GET",
        "/v1/users/{user}/budget",
        jobs.show_budget,
        "Users",
        "The user's credits of the day.",
        {200: job_report.BudgetView},
    ),
    Route(
        "GET",
        "/v1/users/{user}/webhook-secret",
        jobs.show_webhook_secret,
        "Users",
        "What the user's webhooks are signed with.",
        {200: documents.WebhookSecret},
    ),
)

ACCOUNTS = (
    Route(
        "PUT",
        _ACCOUNT,
        accounts.put_account,
        "Accounts",
        "Creates the account (201) or replaces its limits (200).",
        {200: account_report.AccountView, 201: account_report.AccountView},
        access="admin",
        document="AccountSpec",
        problems=(RevisionMismatch,),
    ),
    Route(
        "GET",
        "/v1/accounts",
        accounts.list_accounts,
        "Accounts",
        "All accounts in order of id, with usage, state and reason.",
        {200: Page[account_report.AccountView]},
        access="admin",
        paged=True,
    ),
    Route(
        "GET",
        _ACCOUNT,
        accounts.show_account,
        "Accounts",
        "The account with usage, state, reason and keys.",
        {200: account_report.AccountView},
        access="admin",
    ),
    Route(
        "POST",
        f"{_ACCOUNT}/keys",
        accounts.add_key,
        "Accounts",
        "Tries the key at RIPE and adds it; its secret is shown to nobody.",
        {201: account_report.AddedKeyView},
        access="admin",
        body=documents.NewKeyBody,
        query=("check",),
        waits=True,
        problems=(AlreadyExists, AtlasUnavailable),
    ),
    Route(
        "GET",
        _KEY,
        accounts.show_key,
        "Accounts",
        "The key without its secret.",
        {200: account_report.KeyView},
        access="admin",
    ),
    Route(
        "PATCH",
        _KEY,
        accounts.edit_key,
        "Accounts",
        "Disables the key, or enables it; enabled, it is tried again.",
        {200: account_report.KeyView},
        access="admin",
        body=documents.KeyPatchBody,
    ),
    Route(
        "DELETE",
        _KEY,
        accounts.remove_key,
        "Accounts",
        "Removes the key with its sealed secret.",
        {204: None},
        access="admin",
    ),
)
