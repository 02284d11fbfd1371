"""The outgoing queue and single runs. ``Worker`` does all of this for you."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paceline_client.answers import Json
from paceline_client.calls import Call, Plan, Resource, Transport, given, operation
from paceline_client.durations import DurationLike, duration_text, seconds
from paceline_client.models import monitors
from paceline_client.models.batches import BatchRun, ClaimedRecord, RecordClaimAnswer
from paceline_client.models.states import OutcomeStatus
from paceline_client.models.why import Why

_RUN = "/v1/runs/{run}"
_CLAIM = "/v1/outgoing/claim"


class Outgoing(Resource[Transport]):
    """Runs for your own checkers: claim, work, report."""

    @operation
    def claim(
        self,
        *,
        max: int | None = None,
        lease: DurationLike | None = None,
        wait: DurationLike = "0s",
        user: str | None = None,
        queue: str | None = None,
    ) -> Plan[list[monitors.ClaimedRun]]:
        """Leases up to ``max`` runs of outgoing monitors; waits for the first, up to ``wait`` (20 s at most).

        ``user``: the owner, for admins. ``queue``: only monitors whose check names it. If the answer to a claim is
        lost, the claim is not repeated: its runs come back when their lease is over.
        """
        body = given(max=max, lease=lease, wait=duration_text(wait), user=user, queue=queue)
        answer = yield from Call("POST", _CLAIM, Json(monitors.ClaimAnswer), body=body, wait_s=seconds(wait))
        return answer.items

    @operation
    def claim_records(
        self,
        provider: str,
        *,
        max: int | None = None,
        lease: DurationLike | None = None,
        wait: DurationLike = "0s",
    ) -> Plan[list[ClaimedRecord]]:
        """Leases up to ``max`` runs of batches at an outgoing provider, in order; waits like ``claim``."""
        body = given(provider=provider, max=max, lease=lease, wait=duration_text(wait))
        answer = yield from Call("POST", _CLAIM, Json(RecordClaimAnswer), body=body, wait_s=seconds(wait))
        return answer.items

    @operation
    def report(self, outcomes: Sequence[monitors.OutcomeItem]) -> Plan[list[monitors.OutcomeResult]]:
        """Settles up to 1,000 leased runs in one commit; returns a disposition for each.

        It is safe to send a report again: one that already counted is ``stale`` the second time.
        """
        body = {"items": [dict(outcome) for outcome in outcomes]}
        call = Call("POST", "/v1/outgoing/outcomes", Json(monitors.OutcomesAnswer), body=body, repeatable=True)
        return (yield from call).items


class Runs(Resource[Transport]):
    """Runs, by their id."""

    @operation
    def get(self, run: str) -> Call[monitors.Run]:
        """Returns a run of a monitor."""
        return Call("GET", _RUN, Json(monitors.Run), {"run": run})

    @operation
    def get_of_batch(self, run: str) -> Call[BatchRun]:
        """Returns a run of a batch, ``batch/record@date``. For admins."""
        return Call("GET", _RUN, Json(BatchRun), {"run": run})

    @operation
    def why(self, run: str) -> Call[Why]:
        """Explains a run: of a monitor, of a batch (for admins), or a measurement ``job/index``.

        Also explains why a job was refused, ``user/refused#number``: the id is ``OverBudget.refusal``.
        """
        return Call("GET", f"{_RUN}/why", Json(Why), {"run": run})

    @operation
    def claim(
        self, run: str, *, attempt: int | None = None, lease: DurationLike | None = None
    ) -> Call[monitors.ClaimedRun]:
        """Leases one run, for a checker that was told of it by a message. ``attempt``: only this attempt."""
        body = given(attempt=attempt, lease=lease)
        return Call("POST", f"{_RUN}/claim", Json(monitors.ClaimedRun), {"run": run}, body=body)

    @operation
    def report(
        self,
        run: str,
        *,
        lease: str,
        status: OutcomeStatus,
        detail: Mapping[str, Any] | None = None,
        after: DurationLike | None = None,
    ) -> Call[monitors.Run]:
        """Settles a leased run of a monitor. ``after`` is for ``retry``: the run comes again no sooner.

        It is safe to send a report again: if it already counted, ``StaleLease`` is raised the second time.
        """
        body = given(lease=lease, status=status, detail=dict(detail or {}), after=after)
        return Call("POST", f"{_RUN}/outcome", Json(monitors.Run), {"run": run}, body=body, repeatable=True)

    @operation
    def report_of_batch(
        self,
        run: str,
        *,
        lease: str,
        status: OutcomeStatus,
        detail: Mapping[str, Any] | None = None,
        after: DurationLike | None = None,
    ) -> Call[BatchRun]:
        """Settles a leased run of a batch; otherwise like ``report``."""
        body = given(lease=lease, status=status, detail=dict(detail or {}), after=after)
        return Call("POST", f"{_RUN}/outcome", Json(BatchRun), {"run": run}, body=body, repeatable=True)

    @operation
    def claim_of_batch(
        self, run: str, *, attempt: int | None = None, lease: DurationLike | None = None
    ) -> Call[ClaimedRecord]:
        """Leases one run of a batch, if it is the next one of its provider."""
        body = given(attempt=attempt, lease=lease)
        return Call("POST", f"{_RUN}/claim", Json(ClaimedRecord), {"run": run}, body=body)

    @operation
    def extend(self, run: str, *, lease: str, by: DurationLike) -> Call[monitors.ExtendAnswer]:
        """Moves the end of the lease, counted from now."""
        body = {"lease": lease, "by": by}
        return Call("POST", f"{_RUN}/extend", Json(monitors.ExtendAnswer), {"run": run}, body=body, repeatable=True)
