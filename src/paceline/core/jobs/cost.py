"""Maximum cost of a measurement on each meter, and its actual cost in the end.

RIPE charges for each result that was delivered. The reservation is therefore the maximum: every probe answers every
time. The part that was not delivered is refunded when the measurement ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import msgspec

from paceline.core.jobs import measurement as measurements
from paceline.core.jobs.atlas import MeterName

DAY_S = 86_400
ONEOFF_FACTOR = 2
PACKETS = 3
SIZE_BYTES = 48
MTU_BYTES = 1_500


class Cost(msgspec.Struct, frozen=True, gc=False):
    """Maximum that a measurement can take of each meter."""

    credits: int
    """Credits of the whole measurement: reserved against its user's day."""
    results: int
    """Results of the whole measurement."""
    concurrent: int
    """Number of measurements at RIPE: one for each definition."""
    daily_credits: int
    """Credits in any 24 hours: reserved on the account."""
    daily_results: int
    """Results in any 24 hours as RIPE counts them: a periodic measurement takes a whole day's flow at once."""


def price(measurement: measurements.Measurement, *, now_ms: int) -> Cost:
    """Return the maximum cost, as if it were sent now: waiting can only shorten a measurement."""
    probes = measurements.requested_probes(measurement)
    total = results = daily_credits = daily_results = 0
    for definition in measurement.definitions:
        each = credits_per_result(measurement, definition)
        if measurements.is_oneoff(measurement, definition):
            rounds = day_rounds = flow = 1
        else:
            rounds = firings(measurement, definition, now_ms=now_ms)
            flow = _ceil(DAY_S, _interval(definition))
            day_rounds = min(rounds, flow)
        total += each * rounds * probes
        results += rounds * probes
        daily_credits += each * day_rounds * probes
        daily_results += flow * probes
    return Cost(total, results, len(measurement.definitions), daily_credits, daily_results)


def add_costs(costs: Sequence[Cost]) -> Cost:
    """Return the cost of a job: the sum of its measurements."""
    return Cost(
        sum(cost.credits for cost in costs),
        sum(cost.results for cost in costs),
        sum(cost.concurrent for cost in costs),
        sum(cost.daily_credits for cost in costs),
        sum(cost.daily_results for cost in costs),
    )


def needs_of(cost: Cost) -> dict[MeterName, int]:
    """Return how much a send takes of each of its account's three meters."""
    return {"concurrent": cost.concurrent, "results": cost.daily_results, "credits": cost.daily_credits}


def need_of(cost: Cost, meter: MeterName) -> int:
    """Return how much a send takes of one meter; of the credit balance as much as of the day's credits."""
    return needs_of(cost)["credits" if meter == "balance" else meter]


def firings(measurement: measurements.Measurement, definition: measurements.AnyDefinition, *, now_ms: int) -> int:
    """Return how often each probe of a periodic definition measures at most."""
    start, stop = measurements.span_s(measurement, definition)
    assert stop is not None  # a periodic measurement without an end has no maximum and was refused
    now_s = now_ms // 1000
    return _ceil(max(stop - (now_s if start is None else max(start, now_s)), 0), _interval(definition))


def credits_per_result(measurement: measurements.Measurement, definition: measurements.AnyDefinition) -> int:
    return unit_cost(definition) * (ONEOFF_FACTOR if measurements.is_oneoff(measurement, definition) else 1)


def unit_cost(definition: measurements.AnyDefinition) -> int:
    """Return the credits for one result of a periodic measurement."""
    match definition:
        case measurements.Ping():
            return _packets_cost(definition.packets, definition.size)
        case measurements.Traceroute():
            return 10 * _packets_cost(definition.packets, definition.size)
        case measurements.Dns():
            # DNS over TLS runs over TCP, and is priced as that.
            return 20 if definition.protocol == "TCP" or definition.tls else 10
        case measurements.Sslcert() | measurements.Http() | measurements.Ntp():
            # RIPE publishes no price for ntp; ``unit_differs`` shows it when RIPE reports another price.
            return 10
        case _:
            assert_never(definition)


def settled(delivered: int, unit: int) -> int:
    """Return the cost of ``delivered`` results at ``unit`` credits each."""
    assert delivered >= 0
    assert unit >= 0
    return delivered * unit


def settle_cost(measurement: measurements.Measurement, delivered: Sequence[int]) -> int:
    """Return the actual cost. ``delivered``: results of each definition, in order.

    The ledger charges no more than was held.
    """
    pairs = zip(measurement.definitions, delivered, strict=True)
    return sum(settled(count, credits_per_result(measurement, definition)) for definition, count in pairs)


def daily_actual(cost: Cost, *, credits_spent: int, results: int) -> tuple[int, int]:
    """Return the credits and results that stay on the account's day when a measurement ends.

    A measurement that ran for days delivered more than a day holds; its last 24 hours took at most what was held for a
    day.
    """
    return min(credits_spent, cost.daily_credits), min(results, cost.daily_results)


def unit_differs(measurement: measurements.Measurement, definition: measurements.AnyDefinition, reported: int) -> bool:
    """Return whether RIPE's ``credits_per_result`` contradicts ours.

    Either form is accepted, because it is not known whether RIPE's figure includes the one-off factor.
    """
    return reported not in {unit_cost(definition), credits_per_result(measurement, definition)}


def _packets_cost(packets: int | None, size: int | None) -> int:
    size_bytes = SIZE_BYTES if size is None else size
    return (PACKETS if packets is None else packets) * (size_bytes // MTU_BYTES + 1)


def _interval(definition: measurements.AnyDefinition) -> int:
    assert definition.interval is not None  # written out when it was parsed
    return definition.interval


def _ceil(amount: int, step: int) -> int:
    return -(-amount // step)
