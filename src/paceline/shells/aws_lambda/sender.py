"""The queue ``runs.fifo``: claims, carries out and settles runs, as the daemon does.

A message does not order a send: the claim decides which runs may start, in which order, and how many. So a message that
comes twice, or late, or for a run that another function took, finds nothing to do. It says where to look, so that not
every message makes a search through everything. Once a minute a MinuteWake searches everywhere, for runs whose own
message was lost.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from aws_lambda_powertools.utilities.batch import SqsFifoPartialProcessor
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from paceline.core.batches.calls import CallResult
from paceline.core.batches.provider import TIMEOUT_MS_MAX
from paceline.core.monitors.outcome import Retry
from paceline.core.monitors.places import ceiling_of
from paceline.core.monitors.values import CheckOrder, Finished, Settlement
from paceline.ports.queue_messages import (
    DELAY_MS_MAX,
    CallWake,
    CheckWake,
    MinuteWake,
    ProviderRelease,
    Start,
    read_wake,
)
from paceline.shells.aws_lambda.carry_out import carry_out, loop_metrics
from paceline.shells.aws_lambda.runtime import Event, FunctionEngine, answer, chance, engine, logger, time_of
from paceline.shells.aws_lambda.ticks import release_or_tell
from paceline.shells.daemon.batches import Calls
from paceline.shells.daemon.in_flight import ClaimedOrders, InFlight
from paceline.shells.daemon.monitors import Checks
from paceline.steps.batches.call import SentCall, make_calls
from paceline.steps.monitors.send import make_orders
from paceline.wiring import System, open_caller, open_provider

CLAIM_S = TIMEOUT_MS_MAX / 1_000 + 30
"""With less time left nothing more is claimed, because a call may take this long if its provider allows it."""
IN_FLIGHT_MAX = 100


@logger.inject_lambda_context
def handler(event: Event, context: LambdaContext) -> dict[str, Any]:
    """Carries out the runs that the messages announce. An unreadable message fails only its own group."""
    processor = SqsFifoPartialProcessor(skip_group_on_error=True)
    with processor(event["Records"], _wake):
        done = processor.process()
    wakes = [wake for status, wake, _ in done if status == "success"]
    generations = {wake.generation for wake in wakes if isinstance(wake, CheckWake)}
    providers = {wake.provider for wake in wakes if isinstance(wake, CallWake)}
    everywhere = any(isinstance(wake, MinuteWake) for wake in wakes)
    loops: list[InFlight[Any, Any]] = []
    if generations or everywhere:
        loops.append(_checks().among(None if everywhere else generations))
    if providers or everywhere:
        loops.append(_calls().among(None if everywhere else providers))
    for loop in carry_out(loops, time_of(context), claim_s=CLAIM_S):
        (_checks if loop.work.name == "checks" else _calls).cache_clear()
    follow_up(engine(), providers)
    logger.info("sent", extra={loop.work.name: loop.settled for loop in loops})
    return answer(processor)


def _wake(record: SQSRecord) -> CheckWake | CallWake | MinuteWake:
    return read_wake(record.body)


def follow_up(now: FunctionEngine, providers: set[int]) -> None:
    """Sends a message for the next run of these providers, at once or when it is due."""
    horizon_ms = now.now_ms() + DELAY_MS_MAX
    ready = now.store.ready_of(providers) if providers else {}
    release_or_tell(now, [ProviderRelease(one, at) for one, at in sorted(ready.items()) if at <= horizon_ms])


class SomeChecks(Checks):
    """Checks of some monitors, or of all."""

    def __init__(self, now: FunctionEngine) -> None:
        system = _in_function(now.system)
        super().__init__(system, open_provider(system.settings, system.clock), loop_metrics())
        self._store = now.store
        self._generations: Collection[int] | None = None
        self._loop = InFlight(self, clock=system.clock, remote=system.traits.remote)

    def among(self, generations: Collection[int] | None) -> InFlight[CheckOrder, Finished]:
        """Returns the loop that looks for checks of these monitors alone; None: of all."""
        self._generations = generations
        return self._loop

    def try_again(self, failed: Sequence[tuple[CheckOrder, Settlement]]) -> None:
        """Sends a message for each retry, delayed until its pause is over."""
        starts = [
            Start(order.generation, order.counter, one.outcome.not_before_ms, order.attempt + 1)
            for order, one in failed
            if isinstance(one.outcome, Retry)
        ]
        release_or_tell(engine(), starts)

    def claim(
        self, room: int, ended: Sequence[tuple[CheckOrder, Finished]], *, expected: bool
    ) -> ClaimedOrders[CheckOrder]:
        """Claims at once, without asking when the next check is due: the message says that there is one."""
        del expected
        return super().claim(room, ended, expected=True)

    def _claimed(self, **terms: Any) -> list[CheckOrder]:
        if self._generations is None:
            return super()._claimed(**terms)
        claimed = self._store.claim_checks_of(self._generations, **terms)
        policy, opener = self._system.retry_policy, self._opener
        return make_orders(self._store, claimed, now_ms=terms["now_ms"], policy=policy, opener=opener)


class SomeCalls(Calls):
    """Calls to some providers, or to all."""

    def __init__(self, now: FunctionEngine) -> None:
        system = _in_function(now.system)
        super().__init__(system, open_caller(system.settings, system.clock), loop_metrics(), chance=chance)
        self._store = now.store
        self._providers: Collection[int] | None = None
        self._loop = InFlight(self, clock=system.clock, remote=system.traits.remote)

    def among(self, providers: Collection[int] | None) -> InFlight[SentCall, CallResult]:
        """Returns the loop that looks for calls to these providers alone; None: to all."""
        self._providers = providers
        return self._loop

    def _next_ms(self) -> int | None:
        if self._providers is None:
            return super()._next_ms()
        return min(self._store.ready_of(self._providers).values(), default=None)

    def _claimed(self, **terms: int) -> list[SentCall]:
        if self._providers is None:
            return super()._claimed(**terms)
        claimed = self._store.claim_calls_of(self._providers, **terms)
        return make_calls(self._store, self._book, claimed, now_ms=terms["now_ms"])


def _in_function(system: System) -> System:
    """Returns the system with the places of one call of a function."""
    settings, ceiling = system.settings, ceiling_of(IN_FLIGHT_MAX)
    places = {
        "checks_in_flight_max": IN_FLIGHT_MAX,
        "calls_in_flight_max": IN_FLIGHT_MAX,
        "checks_per_owner_max": min(settings.checks_per_owner_max or ceiling, ceiling),
        "checks_per_target_max": min(settings.checks_per_target_max or ceiling, ceiling),
    }
    return replace(system, settings=settings.model_copy(update=places))


@cache
def _checks() -> SomeChecks:
    return SomeChecks(engine())


@cache
def _calls() -> SomeCalls:
    return SomeCalls(engine())
