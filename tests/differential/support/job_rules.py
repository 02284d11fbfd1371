"""Acts on accounts, keys, jobs and their measurements."""

from __future__ import annotations

from typing import Any

from paceline.core.jobs.accounts import quarantine_key
from paceline.core.jobs.job import Job
from paceline.core.jobs.measurement import Measurement, Ping, Probes
from paceline.core.jobs.meters import Reading
from paceline.core.jobs.values import (
    AccountClosed,
    AccountSpec,
    EndState,
    KeyRefused,
    MeasurementEnd,
    MeasurementProgress,
    MeterFull,
    NotSent,
    Paused,
    RefusalEffect,
    Rejected,
    SendOutcome,
    Sent,
    StoredJob,
    StoredMeasurement,
    TargetFull,
    TypeBarred,
    Unsure,
)
from paceline.core.users import UserEdit
from paceline.steps.jobs import accounts, follow, lookup, submit, webhook
from paceline.steps.upkeep.purge import purge_jobs
from tests.contract.support.stage import DAY_MS, HOUR_MS, MINUTE_MS
from tests.differential.support.history import act
from tests.differential.support.machine import SECRET_KEY, Machine, a_pick, a_user
from tests.differential.support.pair import Both, Side
from tests.differential.support.views import VAULT

TARGET = "192.0.2.1"
ITEMS_MAX = 8
REASON = "RIPE's words"

an_account = ("a1", "a2")
a_limit = (0, 1, 2, 100)
an_answer = ("sent", "sent", "sent", "unsure", "not sent", "parked", "rejected")
an_effect = (None, None, "meter", "key", "account", "type", "target", "everybody")


def job_of(*, measurements: int, definitions: int, title: str, hook: bool) -> Job:
    one = Ping(description="a ping", af=4, target=TARGET)
    each = Measurement((one,) * definitions, (Probes(10, "area", "WW"),), is_oneoff=True)
    return Job((each,) * measurements, title, "http://example.org/hook" if hook else None)


def in_order(items: list[StoredMeasurement]) -> list[StoredMeasurement]:
    return sorted(items, key=lambda one: one.handle)


class JobRules(Machine):
    """``items``: measurements that were begun last, as they were then. ``jobs``: all that were admitted."""

    def __init__(self) -> None:
        self.items: list[Both] = []
        self.jobs: list[Both] = []
        self.atlas_id = 1_000
        super().__init__()

    def furnish(self) -> None:
        super().furnish()
        for user in ("ann", "bob"):
            self.edit_user(user=user, role=None, daily_credits=10_000, disabled=None)
        self.put_account(account="a1", concurrent=2, results=100, credits=100, enabled=True)
        self.add_key(account="a1", secret="secret-1")
        self.submit(owner="ann", key=None, measurements=3, definitions=1, title="x", hook=True)
        self.submit(owner="bob", key="once", measurements=2, definitions=2, title="y", hook=False)

    def can(self, act: str) -> bool:
        needs_item = {"answer", "note_progress", "end", "free_slot", "cancel_measurement"}
        return (
            super().can(act)
            and not (act in needs_item and not self.items)
            and not (act == "cancel_job" and not self.jobs)
        )

    # -- accounts and keys

    @act(2, account=an_account, concurrent=a_limit, results=a_limit, credits=a_limit, enabled=(False, True))
    def put_account(self, account: str, concurrent: int, results: int, credits: int, *, enabled: bool) -> None:  # noqa: A002  the meter's name
        spec = AccountSpec(concurrent, 10 * results, 60 * credits, enabled)
        self.ask("put_account", lambda side: accounts.put_account_spec(side.store, account, spec))

    @act(2, account=an_account, secret=("secret-1", "secret-2"))
    def add_key(self, account: str, secret: str) -> None:
        def add(side: Side) -> object:
            return accounts.add_key(side.store, VAULT, account, secret, now_ms=self.now_ms)

        self.ask("add_key", add)

    @act(2, account=an_account, pick=a_pick, to=("enabled", "disabled", "quarantined", "removed"))
    def change_key(self, account: str, pick: int, to: str) -> None:
        def change(side: Side) -> object:
            keys = side.store.keys(account)
            key = keys[pick % len(keys)].id if keys else "k999"
            match to:
                case "removed":
                    return side.store.remove_key(account, key)
                case "quarantined":
                    return side.store.change_key(account, key, quarantine_key(REASON))
            return accounts.set_key_enabled(side.store, account, key, enabled=to == "enabled")

        self.ask("change_key", change)

    @act(
        2,
        account=an_account,
        meter=("concurrent", "results", "credits", "balance"),
        figure=(0, 1, 60, 600),
        visible=(0, 1, 60),
        ago_ms=(0, MINUTE_MS),
    )
    def sync_account(self, account: str, meter: Any, figure: int, visible: int, ago_ms: int) -> None:
        reading = Reading(self.now_ms - ago_ms, figure, visible)
        self.ask("sync_account", lambda side: side.store.sync_account(account, [(meter, reading)], now_ms=self.now_ms))

    # -- submission

    @act(
        5,
        owner=a_user,
        key=(None, None, "once", "twice"),
        measurements=range(1, 4),
        definitions=range(1, 3),
        title=("x", "y"),
        hook=(False, True),
    )
    def submit(
        self, owner: str, key: str | None, *, measurements: int, definitions: int, title: str, hook: bool
    ) -> None:
        job = job_of(measurements=measurements, definitions=definitions, title=title, hook=hook)

        def hand_in(side: Side) -> object:
            return submit.submit_parsed(side.store, owner, job, idempotency_key=key, now_ms=self.now_ms)

        both = self.ask("submit", hand_in)
        if not both.raised and not both.sqlite.again:
            self.jobs = [Both(both.sqlite.job, both.aws.job), *self.jobs][:ITEMS_MAX]

    @act(1, user=a_user, daily_credits=(0, 120, 10_000))
    def limit_credits(self, user: str, daily_credits: int) -> None:
        self.ask("limit_credits", lambda side: side.store.edit_user(user, UserEdit(daily_credits=daily_credits)))

    # -- sending

    @act(2, each_max=(1, 5))
    def next_to_send(self, each_max: int) -> None:
        self.ask(
            "next_to_send",
            lambda side: side.store.next_to_send(now_ms=self.now_ms, users_max=10, each_max=each_max),
        )

    @act(12, pick=a_pick, account=an_account, key_pick=a_pick, sending_max=(1, 2, 1_000))
    def begin_send(self, pick: int, account: str, key_pick: int, sending_max: int) -> None:
        def begin(side: Side) -> object:
            heads = self._heads(side)
            keys = side.store.keys(account)
            if not heads or not keys:
                return None
            key = keys[key_pick % len(keys)].id
            item = heads[pick % len(heads)]
            return side.store.begin_send(item, account=account, key=key, sending_max=sending_max, now_ms=self.now_ms)

        both = self.ask("begin_send", begin)
        if isinstance(both.sqlite, StoredMeasurement):
            self.items = [both, *self.items][:ITEMS_MAX]

    def _heads(self, side: Side) -> list[StoredMeasurement]:
        return side.store.next_to_send(now_ms=self.now_ms, users_max=10, each_max=5)

    @act(3, pick=a_pick, how=("park", "refuse", "pass"))
    def set_aside(self, pick: int, how: str) -> None:
        def aside(side: Side) -> object:
            heads = self._heads(side)
            if not heads:
                return None
            item = heads[pick % len(heads)]
            fences = [(item.handle, item.attempt)]
            match how:
                case "park":
                    return side.store.park(fences, next_ms=self.now_ms + MINUTE_MS, reason="no room")
                case "refuse":
                    return side.store.refuse(fences, reason="never", now_ms=self.now_ms)
            side.store.note_passed(fences, now_ms=self.now_ms)
            return None

        self.ask("set_aside", aside)

    @act(12, pick=a_pick, answer=an_answer, effect=an_effect)
    def answer(self, pick: int, answer: str, effect: str | None) -> None:
        item = self.items[pick % len(self.items)]
        outcome = self._send_outcome(answer, item.sqlite)

        def tell(side: Side) -> object:
            one: StoredMeasurement = item.of(side)
            what = None if answer in {"sent", "unsure"} else self._effect(effect)
            return side.store.answer(one.handle, one.attempt, outcome, effect=what, now_ms=self.now_ms)

        self.ask("answer", tell)

    def _send_outcome(self, answer: str, item: StoredMeasurement) -> SendOutcome:
        match answer:
            case "sent":
                self.atlas_id += 10
                return Sent(tuple(self.atlas_id + one for one in range(item.cost.concurrent)))
            case "unsure":
                return Unsure("no answer", self.now_ms + MINUTE_MS, lookups=1)
            case "not sent":
                return NotSent("try again")
            case "parked":
                return NotSent("try again later", self.now_ms + MINUTE_MS)
        return Rejected("never")

    def _effect(self, effect: str | None) -> RefusalEffect | None:
        until_ms = self.now_ms + MINUTE_MS
        match effect:
            case "meter":
                return MeterFull("credits", 60, 300)
            case "key":
                return KeyRefused(REASON)
            case "account":
                return AccountClosed(until_ms, REASON)
            case "type":
                return TypeBarred(("ping",), until_ms, REASON)
            case "target":
                return TargetFull(TARGET, until_ms, 1, REASON)
            case "everybody":
                return Paused(until_ms, 1, REASON)
        return None

    @act(2)
    def lose_sends(self) -> None:
        self.ask("lose_sends", lambda side: lookup.lose_stale_sends(side.store, settle_ms=0, now_ms=self.now_ms))

    @act(1)
    def to_look_up(self) -> None:
        self.ask("to_look_up", lambda side: side.store.to_look_up(now_ms=self.now_ms, limit=100), arrange=in_order)

    # -- following

    @act(3, pick=a_pick, status=(1, 2, 4), delivered=(0, 5, 10))
    def note_progress(self, pick: int, status: int, delivered: int) -> None:
        item = self.items[pick % len(self.items)]
        told = ((status, delivered),) * item.sqlite.cost.concurrent

        def note(side: Side) -> object:
            one: StoredMeasurement = item.of(side)
            return side.store.note_progress([MeasurementProgress(one.handle, one.attempt, told, reason="slow")])

        self.ask("note_progress", note)

    @act(
        6,
        pick=a_pick,
        state=("done", "failed", "cancelled"),
        credits=(0, 30, 60, 500),
        frees=(False, True),
    )
    def end(self, pick: int, state: EndState, credits: int, *, frees: bool) -> None:  # noqa: A002  the meter's name
        item = self.items[pick % len(self.items)]

        def end(side: Side) -> object:
            one: StoredMeasurement = item.of(side)
            ending = MeasurementEnd(one.handle, one.attempt, state, "", credits, credits // 6, frees)
            return side.store.end([ending], now_ms=self.now_ms)

        self.ask("end", end)

    @act(3, pick=a_pick)
    def free_slot(self, pick: int) -> None:
        item = self.items[pick % len(self.items)]

        def free(side: Side) -> object:
            one: StoredMeasurement = item.of(side)
            return side.store.free_slots([(one.handle, one.attempt)], now_ms=self.now_ms)

        self.ask("free_slot", free)

    @act(2, pick=a_pick)
    def cancel_job(self, pick: int) -> None:
        job = self.jobs[pick % len(self.jobs)]

        def cancel(side: Side) -> object:
            one: StoredJob = job.of(side)
            return side.store.cancel_job(one.number, now_ms=self.now_ms)

        self.ask("cancel_job", cancel)

    @act(2, pick=a_pick)
    def cancel_measurement(self, pick: int) -> None:
        item = self.items[pick % len(self.items)]
        self.ask(
            "cancel_measurement",
            lambda side: side.store.cancel_measurement(item.of(side).handle, now_ms=self.now_ms),
        )

    # -- the end of jobs, and upkeep

    @act(4)
    def finish(self) -> None:
        def end(side: Side) -> object:
            found = follow.finish(side.store, now_ms=self.now_ms)
            return sorted(found, key=lambda job: job.number)

        self.ask("finish", end)

    @act(3, code=(200, 500))
    def call_webhooks(self, code: int) -> None:
        def tell(side: Side) -> object:
            hooks = webhook.begin_webhooks(side.store, secret=SECRET_KEY, now_ms=self.now_ms, chance=lambda: 0.5).tries
            for hook in hooks:
                if code == 200:
                    side.store.note_webhook(hook.job.number, tries=hook.tries, next_ms=None)
            return [(hook.job, hook.tries, hook.next_ms) for hook in sorted(hooks, key=lambda one: one.job.number)]

        self.ask("call_webhooks", tell)

    @act(1, every_ms=(MINUTE_MS, HOUR_MS))
    def take_duty(self, every_ms: int) -> None:
        self.ask("take_duty", lambda side: side.store.take_duty("sync", every_ms=every_ms, now_ms=self.now_ms))

    @act(2, keep_ms=(0, DAY_MS))
    def purge_jobs(self, keep_ms: int) -> None:
        def purge_all(side: Side) -> object:
            return sum(purge_jobs(side.store, keep_ms=keep_ms, now_ms=self.now_ms) for _ in range(5))

        self.ask("purge_jobs", purge_all)
