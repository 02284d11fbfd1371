"""JSON bodies of the routes for users' own checkers and workers: claims, outcomes and leases."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from paceline.core.monitors.checks import DEFAULT_QUEUE
from paceline.core.monitors.outcome import TerminalState
from paceline.core.schema import Id, Instant, shown
from paceline.shells.api.documents import Duration, schema_ref
from paceline.shells.api.http.problems import Problem
from paceline.steps.batches.outgoing import CallItem
from paceline.steps.monitors.outgoing import OutgoingItem

CLAIM_MAX = 1_000
ATTEMPT_MAX = 10**9
OUTCOMES_MAX = 1_000
WAIT_MS_MAX = 20_000

Lease = Annotated[str, Meta(max_length=40, description="As the claim returned it.")]


class ClaimBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A claim of runs. ``user`` is for admins: the owner of the runs; without it, an admin claims those of all users.

    With ``provider``: runs of batches at this provider of kind `outgoing`, in order, instead of runs of monitors.
    """

    max: Annotated[int, Meta(ge=1, le=CLAIM_MAX)] = 10
    lease: Duration = "60s"
    wait: Duration = "0s"
    user: Id | msgspec.UnsetType = msgspec.UNSET
    queue: Annotated[Id, shown("Runs of monitors whose check names this queue, and no others.")] = DEFAULT_QUEUE
    provider: Id | msgspec.UnsetType = msgspec.UNSET


class ClaimAnswer(msgspec.Struct, frozen=True):
    items: list[OutgoingItem]


class WorkerClaimAnswer(msgspec.Struct, frozen=True):
    """Answer to a claim with ``provider``, in the order in which the runs must start."""

    items: list[CallItem]


class RunClaimBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A claim of one run. ``attempt``: only this attempt, as the message says; without it, whichever is next."""

    attempt: Annotated[int, Meta(ge=1, le=ATTEMPT_MAX)] | msgspec.UnsetType = msgspec.UNSET
    lease: Duration = "60s"


class OutcomeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Outcome of a run. Lists show ``reason`` (text) and ``latency_ms`` (a number) of ``detail``.

    ``after`` is for `retry`: the run comes again no sooner than that, and no sooner than its own back-off.
    """

    lease: Lease
    status: Literal["ok", "failed", "retry"]
    detail: dict[str, Any] = {}
    after: Duration | msgspec.UnsetType = msgspec.UNSET


class OutcomesBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Outcomes of runs. Each item is judged by itself. If a run is repeated, only its first item counts."""

    items: Annotated[list[Annotated[msgspec.Raw, schema_ref("OutcomeItem")]], shown(maxItems=OUTCOMES_MAX)]


class OutcomeItem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Outcome of one of many runs."""

    run: Annotated[
        str, Meta(max_length=800, description="Id of a run of a monitor or of a batch, as the claim returned it.")
    ]
    lease: Lease
    status: Literal["ok", "failed", "retry"]
    detail: dict[str, Any] = {}
    after: Duration | msgspec.UnsetType = msgspec.UNSET


class OutcomeResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of one item.

    ``state`` says how a settled run ended; ``error`` says why an item is stale or was refused.
    """

    run: str | None
    disposition: Literal["settled", "retried", "stale", "refused"]
    state: TerminalState | Literal["done"] | None = None
    error: Problem | None = None


class OutcomesAnswer(msgspec.Struct, frozen=True):
    """Results in the order of the request."""

    items: list[OutcomeResult]


class ExtendBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Extends a lease. ``by`` counts from now."""

    lease: Lease
    by: Duration


class ExtendAnswer(msgspec.Struct, frozen=True):
    lease_until: Instant
