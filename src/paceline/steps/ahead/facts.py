"""Load and limits of the next hours, read in bounded pages: monitors, days of batches, measurements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import NamedTuple

from paceline.core.ahead.cadences import MINUTE_MS, CadenceLoad, Counted, counted, counted_entry, load_of_key
from paceline.core.ahead.minutes import Room, Span, even_starts, expected_sends, firings, firings_cost
from paceline.core.ahead.picture import Limit, LoadPart
from paceline.core.batches.batch import Batch, Day, day_at, window_of
from paceline.core.batches.provider import ProviderDefinition, policy_of
from paceline.core.batches.reruns import is_round
from paceline.core.jobs.meters import room
from paceline.core.jobs.pool import Account, make_pool
from paceline.core.monitors.definition import Monitor, cadence_of
from paceline.core.monitors.uptime.latency import mean_ms
from paceline.core.monitors.uptime.rollup import days_until
from paceline.ports import Store
from paceline.steps.ahead.counts import CADENCES, is_counted
from paceline.steps.ahead.day_providers import DayProviders, newest_day_providers
from paceline.steps.monitors.phases import CIRCLES

CADENCES_MAX = 1_000
"""Maximum number of circles, and of counts of cron expressions and intervals with a delay, that are read."""
COST_MAX = 1_000_000
NAMED_MAX = 50
"""Maximum number of cadences that are told apart, those that fire most; the others are one part."""
OWN_MAX = 20_000
OWN_PAGE = 1_000
BATCHES_MAX = 100
DAYS_LOOKED_AT = 10
SAMPLE = 50
"""Number of monitors over which the usual length of a check is averaged."""
USUAL_MS = 1_000.0
"""Assumed length of a check or a call while none has ended."""
LATENCY_RUNS = 100
SENDS_A_MINUTE = 60
"""Sends a minute, if a send to RIPE lasts a second."""
OTHERS = "others"
UNNAMED = "other providers"


class PlaceSettings(NamedTuple):
    """Settings that say how much can be out at once: checks of a process, checks of one user, sends to RIPE."""

    checks: int
    checks_of_one: int
    sends: int


class LoadAndLimits(NamedTuple):
    """Load and limits of a kind.

    ``left_out``: monitors that could not be counted in time. ``complete`` False: not everything was read.
    """

    parts: list[LoadPart]
    limits: list[Limit]
    left_out: int = 0
    complete: bool = True


def all_monitors(store: Store, span: Span, places: PlaceSettings, *, processes: int, now_ms: int) -> LoadAndLimits:
    """Return the firings of everybody's monitors, from the counts alone."""
    circles = CIRCLES.page(store, limit=CADENCES_MAX)
    counts = CADENCES.page(store, limit=CADENCES_MAX)
    loads = [
        CadenceLoad(int(one.key), "", "UTC", {at: count for at, count in enumerate(one.value.counts) if count})
        for one in circles
        if one.value is not None
    ]
    loads += [load_of_key(one.key, one.value.counts) for one in counts if one.value is not None]
    complete = len(circles) < CADENCES_MAX and len(counts) < CADENCES_MAX and is_counted(store)
    some = store.schedulers(after_generation=0, limit=SAMPLE, now_ms=now_ms)
    monitors = store.monitors_by_generation([row.entry.generation for row in some])
    capacity = places.checks * max(1, processes) * _a_minute(_usual_ms(store, list(monitors.values()), now_ms=now_ms))
    parts, left_out = _firings(_merged(loads), span)
    return LoadAndLimits(parts, [Limit("monitors", "", [rounded(capacity)] * span.minutes)], left_out, complete)


def own_monitors(store: Store, owner: str, span: Span, places: PlaceSettings, *, now_ms: int) -> LoadAndLimits:
    """Return the firings of one user's monitors, from their definitions."""
    found: Counter[Counted] = Counter()
    sample: list[Monitor] = []
    after, read = "", 0
    while page := store.monitors(owner, after=after, limit=OWN_PAGE):
        found.update(_places_of(store, [one for one in page if not one.spec.paused], now_ms=now_ms))
        sample, after, read = sample or page[:SAMPLE], page[-1].id, read + len(page)
        if read >= OWN_MAX:
            break
    by_key: dict[str, dict[int, int]] = {}
    for (key, bucket), count in found.items():
        by_key.setdefault(key, {})[bucket] = count
    parts, left_out = _firings([load_of_key(key, counts) for key, counts in by_key.items()], span)
    capacity = places.checks_of_one * _a_minute(_usual_ms(store, sample, now_ms=now_ms))
    return LoadAndLimits(parts, [Limit("monitors", "", [rounded(capacity)] * span.minutes)], left_out, read < OWN_MAX)


def all_batches(store: Store, span: Span, *, now_ms: int) -> LoadAndLimits:
    """Return the calls of the planned days, and of those to come, which are assumed to be as large as the newest."""
    batches = store.batches(after="", limit=BATCHES_MAX)
    wanted = [batch for batch in batches if not batch.spec.paused and batch.deleting is None]
    starts: dict[int | None, list[int]] = {}
    for batch, shares in zip(wanted, newest_day_providers(store, wanted), strict=True):
        for number, mine in _calls(store, batch, shares, span, now_ms=now_ms):
            starts[number] = _added(starts[number], mine) if number in starts else mine
    numbers = [number for number in starts if number is not None]
    latencies = store.latencies_ms(numbers, runs_max=LATENCY_RUNS)
    parts, limits = [], []
    for number, mine in starts.items():
        provider = None if number is None else store.provider(number)
        name = UNNAMED if provider is None else provider.id
        parts.append(LoadPart("batches", name, name, mine))
        if provider is not None:
            capacity = provider_capacity(provider, latencies.get(provider.number, USUAL_MS))
            limits.append(Limit("batches", name, [capacity] * span.minutes))
    return LoadAndLimits(parts, limits, complete=len(batches) < BATCHES_MAX)


def measurements(store: Store, span: Span, places: PlaceSettings, *, owner: str | None, now_ms: int) -> LoadAndLimits:
    """Return the sends of waiting measurements, by the expected room of the accounts; one owner's, or everybody's."""
    if owner is None:
        counts = store.send_counts()
        waiting = counts.queued + counts.parked
    else:
        waiting = store.count_of(owner, states=("queued", "parked"))
    accounts = store.accounts(now_ms=now_ms, releases_until_ms=span.end_ms)
    rooms = [_room(account) for account in _usable(accounts, now_ms=now_ms)]
    from_minute = now_ms // MINUTE_MS - span.first
    sends = expected_sends(
        waiting, rooms, per_minute_max=SENDS_A_MINUTE * places.sends, from_minute=from_minute, span=span
    )
    if owner is not None:  # users do not see accounts
        total = [sum(values) for values in zip(*(one.starts for one in sends), strict=True)] if sends else []
        room_for = [sum(values) for values in zip(*(one.capacity for one in sends), strict=True)] if sends else []
        return (
            LoadAndLimits([LoadPart("jobs", "RIPE Atlas", "", total)], [Limit("jobs", "", room_for)])
            if sends
            else LoadAndLimits([], [])
        )
    parts = [LoadPart("jobs", one.account, one.account, one.starts) for one in sends]
    return LoadAndLimits(parts, [Limit("jobs", one.account, one.capacity) for one in sends])


def provider_capacity(provider: ProviderDefinition, latency_ms: float) -> int:
    """Return how many calls a minute a provider takes, by its rate, and by its places and the length of a call."""
    policy = policy_of(provider.spec)
    if policy.paused:
        return 0
    by_places = rounded(policy.max_in_flight * _a_minute(latency_ms))
    return min(by_places, MINUTE_MS * 1_000 // policy.rate_gap_us) if policy.rate_gap_us else by_places


def rounded(estimate: float) -> int:
    """Return an estimate with two figures: latencies change from moment to moment, and what is shown should not."""
    size = int("1".ljust(max(1, len(str(int(estimate))) - 1), "0"))
    return int(estimate) // size * size


def _firings(loads: Sequence[CadenceLoad], span: Span) -> tuple[list[LoadPart], int]:
    """Return the parts, and how many monitors were left out because counting them would take too long."""
    parts: list[LoadPart] = []
    others = [0] * span.minutes
    cost = left_out = 0
    for load in sorted(loads, key=lambda one: (-one.monitors, one.name)):
        cost += firings_cost(load, span)
        if cost > COST_MAX and parts:
            left_out += load.monitors
        elif len(parts) < NAMED_MAX:
            parts.append(LoadPart("monitors", load.name, "", firings(load, span)))
        else:
            others = _added(others, firings(load, span))
    return [*parts, LoadPart("monitors", OTHERS, "", others)] if any(others) else parts, left_out


def _merged(loads: Iterable[CadenceLoad]) -> list[CadenceLoad]:
    """Return one load for each cadence: an interval may be counted on its circle and beside it."""
    found: dict[tuple[int, str, str], Counter[int]] = {}
    for load in loads:
        found.setdefault(load[:3], Counter()).update(load.counts)
    return [CadenceLoad(*key, counts) for key, counts in found.items()]


def _places_of(store: Store, monitors: Sequence[Monitor], *, now_ms: int) -> Iterable[Counted]:
    """Yield where the monitors would be counted. Only a grid that was not allotted has to be read from its entry."""
    unknown = []
    for monitor in monitors:
        cadence, phase = cadence_of(monitor.spec), monitor.spec.phase
        if phase is None and cadence.every_ms:
            unknown.append(monitor.generation)
        else:
            yield counted(cadence, generation=monitor.generation, due_ms=phase.ms if phase else 0)
    if unknown:
        for entry in store.entries(unknown, now_ms=now_ms).values():
            if (place := counted_entry(entry)) is not None:
                yield place


def _calls(
    store: Store, batch: Batch, shares: DayProviders, span: Span, *, now_ms: int
) -> Iterable[tuple[int | None, list[int]]]:
    """Yield the starts of each provider, None for the unnamed ones, in the days that lie in the span."""
    windows = _day_windows(store, batch, span, now_ms=now_ms)
    total = shares.others + sum(count for _, count in shares.named)
    each: list[tuple[int | None, int]] = [*shares.named, (None, shares.others)]
    for number, count in each:
        if not count:
            continue
        mine = [0] * span.minutes
        for runs, start_ms, end_ms in windows:
            found = even_starts(runs * count // total, start_ms=start_ms, end_ms=end_ms, span=span)
            mine = _added(mine, found)
        if any(mine):
            yield number, mine


def _day_windows(store: Store, batch: Batch, span: Span, *, now_ms: int) -> list[tuple[int, int, int]]:
    """Return (runs, start, end) of the days in the span: those that are planned, and those to come."""
    days = store.days(batch, before=None, limit=DAYS_LOOKED_AT)
    found = [(day.enqueued, day.start_ms, day.end_ms) for day in days if day.end_ms > span.start_ms]
    planned = {day.date for day in days}
    runs = _usual_runs(store, batch, days)
    date = day_at(batch.spec, now_ms)
    while (window := window_of(batch.spec, date)).start_ms < span.end_ms:
        # A window that began before the batch was made is not planned by itself.
        if date.isoformat() not in planned and window.start_ms >= batch.created_ms and window.end_ms > now_ms:
            found.append((runs, window.start_ms, window.end_ms))
        date += timedelta(days=1)
    return found


def _usual_runs(store: Store, batch: Batch, days: Sequence[Day]) -> int:
    """Return how many runs a day has: as many as the newest planned one, else one for each record."""
    whole = [day for day in days if not is_round(day.date) and day.state == "planned"]
    return whole[0].enqueued + whole[0].skipped if whole else len(store.record_numbers(batch))


def _usable(accounts: Sequence[Account], *, now_ms: int) -> list[Account]:
    ready = [one.account for one in make_pool(accounts).ready]
    return [one for one in ready if one.closed_until_ms <= now_ms and room(one.credits) and room(one.results)]


def _room(account: Account) -> Room:
    slots = account.concurrent
    return Room(account.id, room(slots), [(one.at_ms, one.amount) for one in slots.releases])


def _usual_ms(store: Store, monitors: Sequence[Monitor], *, now_ms: int) -> float:
    """Return how long a check usually lasts: the mean over the newest day of a few monitors."""
    latencies: Counter[int] = Counter()
    for rollup in store.uptimes(monitors, now_ms=now_ms) if monitors else []:
        if days := days_until(rollup, now_ms):
            latencies.update(days[max(days)].latencies)
    return mean_ms(latencies) or USUAL_MS


def _a_minute(each_ms: float) -> float:
    return MINUTE_MS / max(1.0, each_ms)


def _added(some: Sequence[int], more: Sequence[int]) -> list[int]:
    return [one + other for one, other in zip(some, more, strict=True)]
