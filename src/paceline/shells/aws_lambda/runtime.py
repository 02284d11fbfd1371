"""Parts that every function uses: made at the first event of a process and kept for later events."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple, cast

import boto3
import structlog
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.utilities.batch import BasePartialBatchProcessor

from paceline.config import aws_prefix, load_settings
from paceline.errors import WrongSetting
from paceline.ports.queued import QueuedStore
from paceline.shells.aws_lambda.outbox import Outbox
from paceline.shells.logs import redact
from paceline.wiring import System, open_system

SECRET_NAME = "SECRET_KEY_ARN"  # noqa: S105  the name of a variable that names a secret
Event = dict[str, Any]

logger = Logger(service="paceline")
metrics = Metrics(namespace="Paceline")
"""Metrics, written to the log, where CloudWatch finds them. POWERTOOLS_SERVICE_NAME, the prefix, is their dimension."""
chance: Callable[[], float] = random.SystemRandom().random


@dataclass(frozen=True)
class FunctionEngine:
    system: System
    store: QueuedStore
    outbox: Outbox

    def now_ms(self) -> int:
        return self.system.clock.now_ms()


class Time(NamedTuple):
    """Time that this call of the function has left."""

    end_s: float

    @property
    def left_s(self) -> float:
        return self.end_s - time.monotonic()


@cache
def engine() -> FunctionEngine:
    """Returns the parts. Raises WrongSetting if the environment is not that of a deployment."""
    _speak_as_powertools()
    settings = load_settings(secret_key=_secret_key())
    if aws_prefix(settings.store) is None:
        raise WrongSetting(f"PACELINE_STORE {settings.store}: a function needs aws://?prefix=….")
    system = replace(open_system(settings), takes_key=False)
    if settings.secret_key is not None:
        assert system.secret_key, "a wrong one stops every function that has one"
    store = cast("QueuedStore", system.store)
    # The stream of the entries sets the alarm of every entry that moves; the writer must not send another.
    store.alarms.sends = False
    return FunctionEngine(system, store, Outbox(store.queues))


def time_of(context: Any, *, spare_s: float = 2.0) -> Time:
    """Returns the time until shortly before AWS ends the function, so that results can still be written."""
    return Time(time.monotonic() + context.get_remaining_time_in_millis() / 1_000 - spare_s)


def answer(processor: BasePartialBatchProcessor) -> dict[str, Any]:
    """Returns AWS's report of a batch, which names the records that failed, and logs their errors."""
    for _, error, _ in processor.exceptions:
        logger.warning("record_failed", extra={"error": str(error)})
    return dict(processor.response())


def _secret_key() -> str | None:
    """Reads the key from Secrets Manager, so that no configuration contains it.

    None: PACELINE_SECRET_KEY has the key, or none is needed.
    """
    arn = os.environ.get(SECRET_NAME)
    if arn is None:
        return None
    return str(boto3.session.Session().client("secretsmanager").get_secret_value(SecretId=arn)["SecretString"])


def _speak_as_powertools() -> None:
    """Makes the loops' own code log as this function does, with its request id and without secrets."""
    structlog.configure(
        processors=[structlog.processors.format_exc_info, redact, structlog.stdlib.render_to_log_kwargs],
        logger_factory=lambda *_names: logger,
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
