"""The queue ``runs.fifo``: what may start is claimed, carried out and settled, as the daemon does it.

A message is no order to send: the claim says which runs may start, in which order, and how many. So one that comes
twice, or late, or for a run that another function took, finds nothing to do. It says where to look, so that nobody
looks everywhere for each: that is what the Look of every minute does, for all whose own message was lost.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from aws_lambda_powertools.utilities.batch import SqsFifoPartialProcessor
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from paceline.core.batches.provider import SAFE_METHODS, TIMEOUT_MS_MAX
from paceline.core.monitors.checks import repeatable
from paceline.core.monitors.definition import duration_ms
from paceline.core.monitors.places import ceiling_of
from paceline.core.monitors.values import CHECKS, Order
from paceline.ports.queue_messages import DELAY_MS_MAX, CallWake, CheckWake, Look, Release, read_wake
from paceline.shells.aws_lambda.runtime import Engine, Event, Time, answer, chance, engine, logger, time_of
from paceline.shells.aws_lambda.ticks import release
from paceline.shells.daemon.store_threads import StoreActs
from paceline.steps.batches.call import Fence, ProviderBook, Sent, calls_in_time, make_calls, settle_calls
from paceline.steps.monitors.check_secrets import CheckOpener
from paceline.steps.monitors.send import make_orders, orders_in_time, places_of, settle
from paceline.wiring import open_caller, open_provider

T = TypeVar("T")

CLAIM_S = TIMEOUT_MS_MAX / 1_000 + 30
"""With less time left nothing more is claimed: that long a call may take, if its provider allows it."""
IN_FLIGHT_MAX = 100
WAIT_MS = 50
SOON_MS = 1_000
"""A provider that is ready so soon is waited for: a message would take longer. Clocks differ by less."""


class Found(NamedTuple, Generic[T]):
    """What was claimed. ``wait_ms``: so soon something else is ready, if nothing is."""

    claimed: list[T]
    wait_ms: int = 0


class Work(Protocol):
    """Runs of one kind that are out with this function."""

    name: str
    done: int

    @property
    def out(self) -> int: ...
    def look(self) -> Found[Any]:
        """Claims what may start. On a thread of its own: while a reply hangs, answers are settled."""

    def start(self, found: Found[Any]) -> int:
        """What can still end within its lease; how many there are, or are in a moment."""

    def take(self) -> None: ...
    def give_back(self) -> None: ...


@logger.inject_lambda_context
def handler(event: Event, context: LambdaContext) -> dict[str, Any]:
    """A message that cannot be read fails its own group alone: one provider's trouble is not another's."""
    processor = SqsFifoPartialProcessor(skip_group_on_error=True)
    with processor(event["Records"], _wake):
        done = processor.process()
    wakes = [wake for status, wake, _ in done if status == "success"]
    generations = {wake.generation for wake in wakes if isinstance(wake, CheckWake)}
    providers = {wake.provider for wake in wakes if isinstance(wake, CallWake)}
    everywhere = any(isinstance(wake, Look) for wake in wakes)
    works: list[Work] = []
    if generations or everywhere:
        works.append(_checks().among(None if everywhere else generations))
    if providers or everywhere:
        works.append(_calls().among(None if everywhere else providers))
    carry_out(works, time_of(context))
    follow_up(engine(), providers)
    logger.info("sent", extra={work.name: work.done for work in works})
    return answer(processor)


def _wake(record: SQSRecord) -> CheckWake | CallWake | Look:
    return read_wake(record.body)


def carry_out(works: Sequence[Work], time: Time) -> None:
    """Until nothing may start and nothing is out; what is still out at the end is given back if it can be repeated."""
    for work in works:
        work.done = 0
    looks: StoreActs[Work, Found[Any]] = StoreActs("claims", apart=True, done=lambda: None, most=max(len(works), 1))
    claimed, found = True, 0
    while time.left_s > 0 and (claimed or looks.busy or any(work.out for work in works)):
        if not looks.busy and time.left_s > CLAIM_S:
            found = 0
            for work in works:
                looks.begin(work, lambda work: work.look())
        found += _start_found(looks, wait_s=0 if any(work.out for work in works) else WAIT_MS / 1_000)
        claimed = found > 0 and time.left_s > CLAIM_S
        for work in works:
            work.take()
    if looks.busy:
        _start_found(looks, wait_s=max(time.left_s, 0.0))
    for work in works:
        work.give_back()


def _start_found(looks: StoreActs[Work, Found[Any]], *, wait_s: float) -> int:
    started = 0
    for work, found, error in looks.fetch(wait_s=wait_s):
        if found is None:
            assert error is not None
            raise error
        started += work.start(found)
    return started


def follow_up(now: Engine, providers: set[int]) -> None:
    """The next run of these providers gets its message: at once, or when it is due."""
    horizon_ms = now.now_ms() + DELAY_MS_MAX
    ready = now.store.ready_of(providers) if providers else {}
    release(now, [Release(one, at) for one, at in sorted(ready.items()) if at <= horizon_ms])


class Checks:
    """Of monitors."""

    name = "checks"

    def __init__(self, now: Engine) -> None:
        self.done = 0
        self._now = now
        self._provider = open_provider(now.system.settings, now.system.clock)
        self._opener = CheckOpener(now.system.vault)
        self._lease_ms = duration_ms(now.system.settings.check_lease)
        self._owner_max = min(now.system.settings.checks_per_owner_max or IN_FLIGHT_MAX, ceiling_of(IN_FLIGHT_MAX))
        self._target_max = min(now.system.settings.checks_per_target_max or IN_FLIGHT_MAX, ceiling_of(IN_FLIGHT_MAX))
        self._out: dict[Fence, Order] = {}
        self._generations: Collection[int] | None = None

    def among(self, generations: Collection[int] | None) -> Self:
        """To be looked for in these monitors alone; None: in all."""
        self._generations = generations
        return self

    @property
    def out(self) -> int:
        return len(self._out)

    def look(self) -> Found[Order]:
        out = list(self._out.values())
        room = IN_FLIGHT_MAX - len(out)
        if room <= 0:
            return Found([])
        store, now_ms = self._now.store, self._now.now_ms()
        places = places_of(out, owner_max=self._owner_max, target_max=self._target_max)
        given: dict[str, Any] = {"runs_max": room, "lease_ms": self._lease_ms, "places": places}
        if self._generations is None:
            claimed = store.claim(CHECKS, now_ms=now_ms, **given)
        else:
            claimed = store.claim_checks_of(self._generations, now_ms=now_ms, **given)
        policy, opener = self._now.system.retry_policy, self._opener
        return Found(make_orders(store, claimed, now_ms=now_ms, policy=policy, opener=opener))

    def start(self, found: Found[Order]) -> int:
        now_ms = self._now.now_ms()
        orders, late = orders_in_time(found.claimed, lease_ms=self._lease_ms, now_ms=now_ms)
        if late:
            logger.warning("claimed_too_late", extra={"checks": len(late)})
            self._now.store.release([(order.handle, order.attempt) for order in late], now_ms=now_ms)
        self._out.update(((order.handle, order.attempt), order) for order in orders)
        self._provider.start(orders)
        return len(orders)

    def take(self) -> None:
        ended = self._provider.finished(wait_ms=WAIT_MS) if self._out else []
        self.done += len(settle(self._now.store, ended).settled)
        for item in ended:
            self._out.pop((item.handle, item.attempt), None)

    def give_back(self) -> None:
        left = [fence for fence, order in self._out.items() if repeatable(order.check)]
        if left:
            self._now.store.release(left, now_ms=self._now.now_ms())
        if self._out:
            self._provider.close()
            _checks.cache_clear()  # what is cut short must not end in a later event
        self._out.clear()


class Calls:
    """To providers."""

    name = "calls"

    def __init__(self, now: Engine) -> None:
        self.done = 0
        self._now = now
        self._caller = open_caller(now.system.settings, now.system.clock)
        self._book = ProviderBook(now.store, now.system.vault)
        self._lease_ms = duration_ms(now.system.settings.call_lease)
        self._out: dict[Fence, Sent] = {}
        self._wait_ms = 0
        self._providers: Collection[int] | None = None

    def among(self, providers: Collection[int] | None) -> Self:
        """To be looked for at these providers alone; None: at all."""
        self._providers = providers
        return self

    @property
    def out(self) -> int:
        return len(self._out)

    def look(self) -> Found[Sent]:
        """One that is ready in a moment counts: then the pass goes on until it is."""
        store, room, now_ms = self._now.store, IN_FLIGHT_MAX - len(self._out), self._now.now_ms()
        next_ms = self._next_ms() if room > 0 else None
        if next_ms is None or next_ms > now_ms + SOON_MS:
            return Found([])
        if next_ms > now_ms:
            return Found([], next_ms - now_ms)
        if self._providers is None:
            claimed = store.claim_calls(now_ms=now_ms, runs_max=room, lease_ms=self._lease_ms)
        else:
            claimed = store.claim_calls_of(self._providers, now_ms=now_ms, runs_max=room, lease_ms=self._lease_ms)
        return Found(make_calls(store, self._book, claimed, now_ms=now_ms))

    def start(self, found: Found[Sent]) -> int:
        now_ms = self._now.now_ms()
        sent, late = calls_in_time(found.claimed, now_ms=now_ms)
        if late:
            logger.warning("claimed_too_late", extra={"calls": len(late)})
            self._now.store.release_calls([one.fence for one in late], now_ms=now_ms)
        self._out.update((one.fence, one) for one in sent)
        self._caller.start([one.call for one in sent])
        self._wait_ms = found.wait_ms
        return len(sent) or int(found.wait_ms > 0)

    def _next_ms(self) -> int | None:
        if self._providers is None:
            return self._now.store.next_call_ms()
        return min(self._now.store.ready_of(self._providers).values(), default=None)

    def take(self) -> None:
        """Waits also while nothing is out: then something is ready in a moment."""
        ended = self._caller.finished(wait_ms=max(self._wait_ms, WAIT_MS if self._out else 0))
        self._wait_ms = 0
        if ended:
            self.done += len(settle_calls(self._now.store, self._out, ended, chance=chance).settled)
        for item in ended:
            self._out.pop((item.handle, item.attempt), None)

    def give_back(self) -> None:
        left = [fence for fence, one in self._out.items() if one.call.method in SAFE_METHODS]
        if left:
            self._now.store.release_calls(left, now_ms=self._now.now_ms())
        if self._out:
            self._caller.close()
            _calls.cache_clear()
        self._out.clear()


@cache
def _checks() -> Checks:
    return Checks(engine())


@cache
def _calls() -> Calls:
    return Calls(engine())
