"""Finds the batch and the day of a command over REST."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

from paceline.core.batches.batch import BatchSpec, day_at
from paceline.errors import InvalidInput
from paceline.shells.cli.options import PageOptions
from paceline.steps.views.report import BatchView

if TYPE_CHECKING:
    from paceline.shells.cli.remote import Remote

BATCH_PATH = "/v1/batches/{batch}"
DAYS_PATH = f"{BATCH_PATH}/days"
DAY_PATH = f"{DAYS_PATH}/{{date}}"


def no_single_batch(count: int) -> InvalidInput:
    """Returns the error for a command that names no batch although there is not exactly one."""
    if not count:
        return InvalidInput("There is no batch yet. Make one: paceline batch set ID")
    return InvalidInput("There are several batches. Name one with --batch.")


def batch_over_rest(remote: Remote, name: str | None) -> BatchView:
    """Returns the batch of a command: the one that is named, else the only one."""
    if name is not None:
        return remote.get(BATCH_PATH, BatchView, batch=name)
    found = remote.page("/v1/batches", BatchView, PageOptions(2)).items
    if len(found) != 1:
        raise no_single_batch(len(found))
    return found[0]


def day_over_rest(remote: Remote, name: str | None, date: str | None) -> dict[str, Any]:
    """Returns the names in a day's path: the batch, and the date that is given, else the current one."""
    batch = batch_over_rest(remote, name)
    return {"batch": batch.id, "date": date or running_date(batch)}


def running_date(batch: BatchView) -> str:
    """Returns the date of the batch's current day, by the clock of this machine."""
    return str(day_at(msgspec.convert(document_of(batch), BatchSpec), time.time_ns() // 1_000_000))


def document_of(batch: BatchView) -> dict[str, object]:
    """Returns the batch's definition, from its view."""
    shown = msgspec.to_builtins(batch)
    return {name: shown[name] for name in BatchSpec.__struct_fields__}
