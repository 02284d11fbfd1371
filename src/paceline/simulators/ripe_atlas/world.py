"""The platform: accounts, all measurements, and the decision whether to accept an order. Callers hold its lock."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from paceline.simulators.ripe_atlas import quotas
from paceline.simulators.ripe_atlas.accounts import Registry, SimulatedAccount, SimulatedKey
from paceline.simulators.ripe_atlas.books import ChargeBook
from paceline.simulators.ripe_atlas.clock import SimulatorClock
from paceline.simulators.ripe_atlas.measurements import (
    FAILED,
    NO_PROBES,
    STATUS_NAMES,
    ProbeDelivery,
    SimulatedMeasurement,
    StatusSince,
)
from paceline.simulators.ripe_atlas.messages import ErrorAnswer, ErrorLine
from paceline.simulators.ripe_atlas.model import Model
from paceline.simulators.ripe_atlas.prices import result_price, unit_price
from paceline.simulators.ripe_atlas.probes import Choice, Chosen, population, take
from paceline.simulators.ripe_atlas.validation import DEFAULT_INTERVALS_S, MeasurementOrder

FATES_MAX = 1_000


class Fate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A scripted end: measurements of a target, or with a text in their description, get a status after a time."""

    status: int
    target: str = ""
    description: str = ""
    after_ms: int = 0

    def fits(self, definition: dict[str, Any]) -> bool:
        return (not self.target or definition.get("target") == self.target) and self.description in definition[
            "description"
        ]


class World:
    def __init__(self, model: Model, clock: SimulatorClock) -> None:
        self.model = model
        self.clock = clock
        self.lock = threading.RLock()
        self.registry = Registry(model)
        self.books = ChargeBook(model.charge_every_ms, clock.now_ms(), self.registry.accounts)
        self.population = population(model.seed, model.probes)
        self.measurements: dict[int, SimulatedMeasurement] = {}
        self.others: Counter[str] = Counter()
        self.fates: list[Fate] = []
        self.refusals: dict[str, Counter[str]] = {}
        self.peaks: dict[str, dict[str, int]] = {}
        self.posts = 0
        self._running: dict[str, dict[int, SimulatedMeasurement]] = {}
        self._days: dict[str, quotas.DailyUsage] = {}
        self._at_target: dict[str, dict[int, SimulatedMeasurement]] = {}

    def now_ms(self) -> int:
        """Return the time, after charging everything that was due by then."""
        now_ms = self.clock.now_ms()
        self.books.charge_until(now_ms)
        return now_ms

    def create(self, order: MeasurementOrder, key: SimulatedKey, now_ms: int) -> list[SimulatedMeasurement]:
        """Create all measurements of the order, or refuse it as a whole."""
        account = self.registry.accounts[key.account]
        try:
            payer = self._payer(order, account)
            new = self._made(order, key, payer, now_ms)
            self._check_types(new, account)
            self._check_room(new, account, payer, now_ms)
        except ErrorAnswer as refused:
            self.refusals.setdefault(account.name, Counter())[refused.reason] += 1
            raise
        self.posts += 1
        for one in new:
            self._keep(one)
        self._note_peak(account.name, "concurrent", len(self.running_of(account.name, now_ms)))
        return new

    def running_of(self, account: str, now_ms: int) -> dict[int, SimulatedMeasurement]:
        return _pruned(self._running.setdefault(account, {}), now_ms)

    def force(self, measurement: SimulatedMeasurement, status: int, now_ms: int) -> None:
        """Give the measurement this status from now on, as a script asks."""
        if status not in STATUS_NAMES:
            raise ValueError(f"There is no status {status}.")
        measurement.ended = StatusSince(status, now_ms)

    def add_fate(self, fate: Fate) -> None:
        if fate.status not in STATUS_NAMES or len(self.fates) >= FATES_MAX:
            raise ValueError(f"There is no status {fate.status}, or there are {FATES_MAX} fates already.")
        self.fates.append(fate)

    def shown_price(self, measurement: SimulatedMeasurement) -> int:
        return measurement.price if self.model.one_off_factor_shown else measurement.unit

    def _payer(self, order: MeasurementOrder, account: SimulatedAccount) -> SimulatedAccount:
        if not order.bill_to or order.bill_to == account.email:
            return account
        payers = [one for one in self.registry.accounts.values() if one.email == order.bill_to]
        if not payers or account.name not in payers[0].pays_for:
            raise ErrorAnswer(400, problems=[ErrorLine("/bill_to", "You are not permitted to bill this user.")])
        return payers[0]

    def _check_types(self, new: Sequence[SimulatedMeasurement], account: SimulatedAccount) -> None:
        if any(one.type == "http" for one in new) and not account.http_allowed:
            raise ErrorAnswer(403, "You are not permitted to create HTTP measurements.", reason="http")
        for one in new:
            if one.type in account.forbidden_types:
                raise ErrorAnswer(403, f"You are not permitted to create {one.type} measurements.", reason="type")

    def _check_room(
        self, new: Sequence[SimulatedMeasurement], account: SimulatedAccount, payer: SimulatedAccount, now_ms: int
    ) -> None:
        quotas.check_probes(account, new)
        for target, more in Counter(one.target for one in new if one.target).items():
            there = len(_pruned(self._at_target.setdefault(target, {}), now_ms)) + self.others[target]
            quotas.check_target(target, running=there + more, cap=self.model.target_cap)
        running = len(self.running_of(account.name, now_ms))
        quotas.check_concurrent(account, running=running + len(new))
        results, credits_ = self._days.setdefault(account.name, quotas.DailyUsage()).totals(now_ms)
        more_results = sum(one.results_per_day for one in new)
        more_credits = sum(one.results_per_day * one.price for one in new)
        quotas.check_results(account, current=results, more=more_results)
        quotas.check_credits(account, current=credits_, more=more_credits)
        quotas.check_balance(payer, owed=self.books.owed(payer.name, now_ms), more=more_credits)
        self._note_peak(account.name, "daily_results", results + more_results)
        self._note_peak(account.name, "daily_credits", credits_ + more_credits)

    def _made(
        self, order: MeasurementOrder, key: SimulatedKey, payer: SimulatedAccount, now_ms: int
    ) -> list[SimulatedMeasurement]:
        first_id = self.model.first_id + len(self.measurements)
        chosen = self._chosen(order, first_id)
        group_id = first_id if len(order.definitions) > 1 else None
        made = []
        for index, definition in enumerate(order.definitions):
            timed = _Timed(order, definition, self.model, now_ms)
            one = SimulatedMeasurement(
                id=first_id + index,
                post=self.posts + 1,
                account=key.account,
                payer=payer.name,
                key=key.uuid,
                definition=definition,
                specs=order.probes,
                is_oneoff=order.is_oneoff,
                interval_s=timed.interval_s,
                created_ms=now_ms,
                scheduled_ms=min(now_ms + self.model.schedule_after_ms, timed.start_ms),
                start_ms=timed.start_ms,
                stop_ms=timed.stop_ms,
                requested=chosen.requested,
                probes=chosen.scheduled,
                deliveries=self._deliveries(first_id + index, definition, chosen, timed),
                unit=unit_price(definition),
                price=result_price(definition, is_oneoff=order.is_oneoff),
                group_id=self._group(definition, key) or group_id,
                tags=list(definition.get("tags", [])),
            )
            self._apply_fate(one)
            made.append(one)
        return made

    def _chosen(self, order: MeasurementOrder, first_id: int) -> Chosen:
        """Choose the probes. All definitions of one order run on the same probes."""
        chance = random.Random(f"{self.model.seed}/choice/{first_id}")  # noqa: S311 - a model, not a secret
        choice = Choice(self.population, af=order.definitions[0]["af"], of_measurement=self._probes_of)
        for index, spec in enumerate(order.probes):
            choice.add(spec, index=index, chance=chance)
        model = self.model
        return take(choice, scheduled_share=model.scheduled_share, answering_share=model.answering_share, chance=chance)

    def _probes_of(self, measurement_id: int) -> Sequence[int]:
        one = self.measurements.get(measurement_id)
        return one.probes if one else ()

    def _group(self, definition: dict[str, Any], key: SimulatedKey) -> int | None:
        wanted: int | None = definition.get("group_id")
        if wanted is None:
            return None
        members = [one for one in self.measurements.values() if wanted in (one.group_id, one.id)]
        if not members or members[0].account != key.account:
            raise ErrorAnswer(400, problems=[ErrorLine("/definitions/0/group_id", "This group does not exist.")])
        return wanted

    def _deliveries(
        self, measurement_id: int, definition: dict[str, Any], chosen: Chosen, timed: _Timed
    ) -> tuple[ProbeDelivery, ...]:
        chance = random.Random(f"{self.model.seed}/deliveries/{measurement_id}")  # noqa: S311 - a model, not a secret
        slow = 0.03 if definition["type"] == "traceroute" else 0.0
        made = [ProbeDelivery(timed.after_ms(chance, slow), probe) for probe in chosen.answering]
        return tuple(sorted(made))

    def _apply_fate(self, measurement: SimulatedMeasurement) -> None:
        fate = next((one for one in self.fates if one.fits(measurement.definition)), None)
        if fate is None:
            return
        if fate.status == NO_PROBES:
            measurement.probes = ()
        if fate.status in (NO_PROBES, FAILED):
            measurement.take_deliveries(())
        else:
            measurement.ended = StatusSince(fate.status, measurement.start_ms + fate.after_ms)

    def _keep(self, one: SimulatedMeasurement) -> None:
        self.measurements[one.id] = one
        self._running.setdefault(one.account, {})[one.id] = one
        self._days.setdefault(one.account, quotas.DailyUsage()).add(one)
        if one.target:
            self._at_target.setdefault(one.target, {})[one.id] = one
        self.books.add(one)

    def _note_peak(self, account: str, name: str, value: int) -> None:
        peaks = self.peaks.setdefault(account, {})
        peaks[name] = max(value, peaks.get(name, 0))


class _Timed:
    """Start, end and interval of a measurement."""

    def __init__(self, order: MeasurementOrder, definition: dict[str, Any], model: Model, now_ms: int) -> None:
        self.interval_s: int = definition.get("interval") or DEFAULT_INTERVALS_S[definition["type"]]
        self.start_ms = max(order.start_ms or 0, now_ms + model.start_after_ms)
        self.is_oneoff = order.is_oneoff
        self.stop_ms = self.start_ms + model.one_off_ms if order.is_oneoff else order.stop_ms
        self._results_ms = (model.result_after_ms, model.result_before_ms)
        self._spread_ms = int(definition.get("spread", min(self.interval_s // 2, 400))) * 1_000

    def after_ms(self, chance: random.Random, slow: float) -> int:
        """Return the delay of a probe's first result; long for a traceroute with silent hops."""
        if slow and chance.random() < slow:
            return chance.randrange(140_000, 360_000)
        run_ms = chance.randrange(*self._results_ms)
        return run_ms if self.is_oneoff else run_ms + chance.randrange(self._spread_ms + 1)


def _pruned(those: dict[int, SimulatedMeasurement], now_ms: int) -> dict[int, SimulatedMeasurement]:
    for one in list(those.values()):
        if not one.is_running(now_ms):
            del those[one.id]
    return those
