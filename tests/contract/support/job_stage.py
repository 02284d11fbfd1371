"""The few moves that scenes of jobs are made of, in the words of the port."""

from __future__ import annotations

from paceline.core.jobs.cost import Cost
from paceline.core.jobs.job import Job, job_digest
from paceline.core.jobs.measurement import Measurement, Ping, Probes
from paceline.core.jobs.meters import Short
from paceline.core.jobs.values import (
    AccountSpec,
    AddKey,
    Admitted,
    Already,
    Busy,
    EndResult,
    MeasurementEnd,
    OverCredits,
    Sent,
    StoredJob,
    StoredMeasurement,
    Submission,
)
from paceline.core.users import UserEdit
from paceline.ports import Store
from tests.contract.support.stage import T0_MS

CREDITS = 60
"""What each measurement here costs at most, if nothing else is said: ten probes, six credits each."""
COST = Cost(credits=CREDITS, results=10, concurrent=1, daily_credits=CREDITS, daily_results=10)
SENDING_MAX = 1_000
"""Where it is not what a scene is about."""
ROOMY = AccountSpec(concurrent=100, daily_results=100_000, daily_credits=1_000_000)


def ping(target: str = "192.0.2.1", definitions: int = 1) -> Measurement:
    one = Ping(description="a ping", af=4, target=target)
    return Measurement((one,) * definitions, (Probes(10, "area", "WW"),), is_oneoff=True)


def submission(
    count: int = 1,
    *,
    owner: str = "ann",
    key: str | None = None,
    title: str = "",
    webhook: str | None = None,
    cost: Cost = COST,
) -> Submission:
    job = Job((ping(definitions=cost.concurrent),) * count, title, webhook)
    return Submission(owner, job, (cost,) * count, job_digest(job) if key else "", key)


def limit(store: Store, credits_a_day: int, *, owner: str = "ann") -> None:
    assert store.edit_user(owner, UserEdit(daily_credits=credits_a_day)) is not None


def submit(store: Store, item: Submission, *, now_ms: int = T0_MS) -> Admitted | Already | OverCredits:
    found = store.submit(item, now_ms=now_ms)
    assert found is not None
    return found


def admitted(
    store: Store, count: int = 1, *, owner: str = "ann", cost: Cost = COST, webhook: str | None = None
) -> StoredJob:
    """A job that fits: the user's limit is raised for it."""
    limit(store, 10**12, owner=owner)
    found = submit(store, submission(count, owner=owner, cost=cost, webhook=webhook))
    assert isinstance(found, Admitted)
    return found.job


def add_account(store: Store, name: str = "lab", spec: AccountSpec = ROOMY) -> str:
    """An account with one key; the key's id."""
    store.put_account(name, spec)
    added = store.add_key(AddKey(name, f"sealed {name}", "1234", "a label"), now_ms=T0_MS)
    assert added.key is not None
    return added.key.id


def heads(store: Store, *, now_ms: int = T0_MS, users_max: int = 100, each_max: int = 1) -> list[StoredMeasurement]:
    return store.next_to_send(now_ms=now_ms, users_max=users_max, each_max=each_max)


def try_begin(
    store: Store, key: str, *, account: str = "lab", sending_max: int = SENDING_MAX, now_ms: int = T0_MS
) -> StoredMeasurement | Short | Busy | None:
    head = heads(store, now_ms=now_ms)[0]
    return store.begin_send(head, account=account, key=key, sending_max=sending_max, now_ms=now_ms)


def begin(store: Store, key: str, *, account: str = "lab", now_ms: int = T0_MS) -> StoredMeasurement:
    """Writes the intent of the next measurement to send."""
    begun = try_begin(store, key, account=account, now_ms=now_ms)
    assert isinstance(begun, StoredMeasurement)
    return begun


def begin_short(store: Store, key: str, *, account: str = "lab", now_ms: int = T0_MS) -> Short:
    begun = try_begin(store, key, account=account, now_ms=now_ms)
    assert isinstance(begun, Short)
    return begun


def send(store: Store, key: str, *, account: str = "lab", now_ms: int = T0_MS) -> StoredMeasurement:
    """Sends the next measurement, up to RIPE's ids."""
    begun = begin(store, key, account=account, now_ms=now_ms)
    ids = tuple(begun.handle * 100 + number for number in range(begun.cost.concurrent))
    assert store.answer(begun.handle, begun.attempt, Sent(ids), now_ms=now_ms)
    return again(store, begun)


def again(store: Store, item: StoredMeasurement) -> StoredMeasurement:
    """Reads the measurement again."""
    found = store.measurement(item.handle)
    assert found is not None
    return found


def done(
    store: Store, item: StoredMeasurement, *, spent: int = CREDITS, frees_slot: bool = True, now_ms: int = T0_MS
) -> EndResult:
    ending = MeasurementEnd(item.handle, item.attempt, "done", "", spent, 10, frees_slot)
    return store.end([ending], now_ms=now_ms)[0]


def job_of(store: Store, job: StoredJob) -> StoredJob:
    found = store.job(job.id)
    assert found is not None
    return found


def money(store: Store, *, owner: str = "ann", now_ms: int = T0_MS) -> tuple[int, int]:
    """Returns the spent and held credits of the user's day."""
    budget = store.budget(owner, now_ms=now_ms)
    assert budget is not None
    return budget.spent, budget.held


def quotas(store: Store, account: str = "lab", *, now_ms: int = T0_MS) -> dict[str, tuple[int, int]]:
    """Returns the spent and held amounts of each of the account's meters."""
    found = store.account(account, now_ms=now_ms)
    assert found is not None
    meters = {"concurrent": found.concurrent, "results": found.results, "credits": found.credits}
    return {name: (meter.spent, meter.held) for name, meter in meters.items()}
