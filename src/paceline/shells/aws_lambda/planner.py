"""A batch's day under Step Functions: ``start`` begins it, ``plan`` plans pages, ``release`` releases due runs."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from datetime import date
from functools import cache
from typing import Any, NamedTuple

import boto3
import msgspec
from aws_lambda_powertools.utilities.typing import LambdaContext
from botocore.exceptions import ClientError

from paceline.core.batches.batch import Batch, day_at
from paceline.shells.aws_lambda.runtime import Event, FunctionEngine, engine, logger, time_of
from paceline.shells.aws_lambda.sweeper import release_ready
from paceline.steps.batches.late_records import plan_late_records
from paceline.steps.batches.plan import all_batches, due_dates, plan_day

MACHINE_NAME = "PLANNER_ARN"
PAGE_S = 60.0
"""With less time left no further page is begun; the next call goes on at the cursor."""
NAME_MAX = 80
TRIES_MAX = 5


class Planning(msgspec.Struct, frozen=True):
    """Input and output of the machine's states. ``before``: how many runs the day had when its execution began."""

    batch: str
    date: str
    before: int
    enqueued: int = 0
    finished: bool = False


class DueDay(NamedTuple):
    batch: Batch
    date: date


@logger.inject_lambda_context
def start(event: Event, context: LambdaContext) -> dict[str, Any]:
    """Called every minute: starts executions for days that have begun, and plans late records."""
    del event
    now, time = engine(), time_of(context)
    started = [name for day in _due_days(now) if (name := _begin(now, day)) is not None]
    newcomers = 0
    for batch in all_batches(now.store):
        if time.left_s <= 0:
            break
        if not batch.spec.paused:
            newcomers += sum(plan_late_records(now.store, batch, now_ms=now.now_ms()).values())
    report = {"started": started, "newcomers": newcomers}
    logger.info("plans_begun", extra=report)
    return report


@logger.inject_lambda_context
def plan(event: Event, context: LambdaContext) -> dict[str, Any]:
    """Plans as many pages as there is time for. Called again after a crash, it goes on where the day stands."""
    now, time = engine(), time_of(context)
    state = msgspec.convert(event, Planning)
    batch = now.store.batch(state.batch)
    if batch is None:
        return _progress(state, enqueued=0, finished=True)
    day = date.fromisoformat(state.date)
    report = plan_day(now.store, batch, day, now_ms=now.now_ms(), keep_on=lambda: time.left_s > PAGE_S)
    there = now.store.day(batch, state.date)
    assert there is not None
    # Counted from the ledger, because a call whose answer was lost has enqueued runs, too.
    return _progress(state, enqueued=there.enqueued - state.before, finished=report.finished)


@logger.inject_lambda_context
def release(event: Event, context: LambdaContext) -> dict[str, Any]:
    """Sends messages for providers that may start a run now or soon. Returns the output of the machine."""
    del context
    released = release_ready(engine())
    state = msgspec.convert(event, Planning)
    logger.info("planned", extra={"batch": state.batch, "date": state.date, "released": released})
    return {"enqueued": state.enqueued}


def execution_name(day: DueDay, again: int = 0) -> str:
    """Returns the name of an execution: batch and date, unique for 90 days.

    If Step Functions does not accept the batch's id as it is, a digest of it is added.
    """
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", day.batch.id)
    if plain != day.batch.id or len(plain) > NAME_MAX - 20:
        plain = f"{plain[:40]}-{hashlib.sha256(day.batch.id.encode()).hexdigest()[:12]}"
    return f"{plain}-{day.date.isoformat()}" + (f"-r{again}" if again else "")


def _due_days(now: FunctionEngine) -> Iterator[DueDay]:
    for batch in all_batches(now.store):
        if not batch.spec.paused:
            for day in due_dates(now.store, batch, day_at(batch.spec, now.now_ms())):
                yield DueDay(batch, day)


def _begin(now: FunctionEngine, day: DueDay) -> str | None:
    """Starts the day's execution. Returns its name, or None if it was started before.

    A failed execution keeps its name for 90 days; then the next number is used.
    """
    there = now.store.day(day.batch, day.date.isoformat())
    given = Planning(day.batch.id, day.date.isoformat(), there.enqueued if there else 0)
    for again in range(TRIES_MAX):
        name = execution_name(day, again)
        try:
            _machines().start_execution(
                stateMachineArn=os.environ[MACHINE_NAME], name=name, input=msgspec.json.encode(given).decode()
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != "ExecutionAlreadyExists":
                raise
            if not _has_failed(name):
                return None
        else:
            return name
    return None


def _has_failed(name: str) -> bool:
    machine = os.environ[MACHINE_NAME]
    arn = f"{machine.replace(':stateMachine:', ':execution:')}:{name}"
    return _machines().describe_execution(executionArn=arn)["status"] in {"FAILED", "TIMED_OUT", "ABORTED"}


def _progress(state: Planning, *, enqueued: int, finished: bool) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(state, enqueued=enqueued, finished=finished))
    logger.info("pages", extra=document)
    return document


@cache
def _machines() -> Any:
    return boto3.session.Session().client("stepfunctions")
