"""Statements that decide about many jobs or measurements at once decide as ``core.jobs`` does, on random facts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from paceline.adapters.sqlite.jobs import accounts, ledger, upkeep
from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.jobs.accounts import slots_back
from paceline.core.jobs.measurement import MeasurementState
from paceline.core.jobs.meters import Balance, Hold, Meter, Posting, add_up, refund
from paceline.core.jobs.names import OWNERS_HOLD, hold_of
from paceline.core.jobs.transitions import cancel, is_given_up
from paceline.core.jobs.upkeep import may_be_removed, pulled_back_ms
from tests.contract.support.job_stage import COST, add_account, admitted, job_of, limit, money, submission, submit
from tests.contract.support.stage import DAY_MS, HOUR_MS, T0_MS, user

STATES: tuple[MeasurementState, ...] = ("queued", "parked", "sending", "unknown", "ongoing")
SEEDS = range(8)


@pytest.fixture
def store() -> Iterator[SqliteStore]:
    with closing(SqliteStore(":memory:")) as store:
        store.add_user(user("ann"))
        add_account(store)
        yield store


def rows(store: SqliteStore, query: str, *values: Any) -> list[tuple[Any, ...]]:
    with store._db.read() as db:
        return list(db.execute(query, values))


def change(store: SqliteStore, query: str, values: list[tuple[Any, ...]]) -> None:
    with store._db.write() as db:
        db.executemany(query, values)


def postings(store: SqliteStore) -> list[Posting]:
    found = rows(store, "SELECT meter, hold, kind, amount, at_ms FROM posting")
    return [Posting(str(meter), str(hold), kind, amount, at_ms) for meter, hold, kind, amount, at_ms in found]


@pytest.mark.parametrize("seed", SEEDS)
def test_cancelled_job_ends_refunds_and_stops_as_core_says(store: SqliteStore, seed: int) -> None:
    chance = random.Random(seed)
    job = admitted(store, 30)
    states = {item.handle: chance.choice(STATES) for item in store.measurements(job.number, after=-1, limit=30)}
    change(
        store,
        """UPDATE measurement SET state = ?, slot = ?1 NOT IN ('queued', 'parked'),
                  next_ms = iif(?1 IN ('parked', 'unknown'), 1, NULL) WHERE id = ?""",
        [(state, handle) for handle, state in states.items()],
    )
    _, held = money(store)

    assert store.cancel_job(job.number, now_ms=T0_MS + 1)

    after = {item.handle: item for item in store.measurements(job.number, after=-1, limit=30)}
    ended = [handle for handle, state in states.items() if cancel(state) == "end"]
    assert [handle for handle, item in after.items() if item.state == "cancelled"] == ended
    assert all(item.stopping for item in after.values())
    meter = rows(store, "SELECT meter FROM job WHERE id = ?", job.number)[0][0]
    expected = {
        posting._replace(at_ms=T0_MS + 1)
        for handle in ended
        for posting in refund(
            Hold(str(hold_of(handle, OWNERS_HOLD)), {str(meter): COST.credits}, 0),
            {str(meter): Meter(str(meter), 10**9, "day", held=held)},
            now_ms=T0_MS + 1,
        ).postings
    }
    assert {one for one in postings(store) if one.kind != "hold"} == expected
    assert money(store) == (0, held - len(ended) * COST.credits)
    assert job_of(store, job).refunded == len(ended) * COST.credits


@pytest.mark.parametrize("seed", SEEDS)
def test_lost_sends_are_exactly_those_that_core_gives_up(store: SqliteStore, seed: int) -> None:
    chance = random.Random(seed)
    job = admitted(store, 40)
    facts = {
        item.handle: (chance.choice(STATES), T0_MS + chance.randint(-3, 3))
        for item in store.measurements(job.number, after=-1, limit=40)
    }
    change(
        store,
        """UPDATE measurement SET state = ?, intent_ms = ?, slot = ?1 NOT IN ('queued', 'parked'),
                  next_ms = iif(?1 IN ('parked', 'unknown'), 1, NULL) WHERE id = ?""",
        [(*fact, handle) for handle, fact in facts.items()],
    )

    lost = store.lose_sends(intent_before_ms=T0_MS, look_ms=T0_MS + HOUR_MS)

    expected = {handle for handle, fact in facts.items() if is_given_up(*fact, intent_before_ms=T0_MS)}
    found = rows(store, "SELECT id FROM measurement WHERE state = 'unknown' AND next_ms = ?", T0_MS + HOUR_MS)
    assert {row[0] for row in found} == expected
    assert lost == len(expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_slots_are_expected_back_at_the_times_that_core_computes(store: SqliteStore, seed: int) -> None:
    chance = random.Random(seed)
    job = admitted(store, 30)
    slots = [(T0_MS + chance.randint(-5, 20), chance.randint(1, 3)) for _ in range(30)]
    handles = [item.handle for item in store.measurements(job.number, after=-1, limit=30)]
    number = rows(store, "SELECT id FROM account")[0][0]
    change(
        store,
        "UPDATE measurement SET state = 'ongoing', slot = 1, expected_ms = ?, concurrent = ?, account = ? WHERE id = ?",
        [(*slot, number, handle) for slot, handle in zip(slots, handles, strict=True)],
    )
    with store._db.read() as db:
        meter = Meter("", 1, "until_released")
        found = accounts._with_releases(db, meter, number, now_ms=T0_MS, until_ms=T0_MS + 10)
    assert found.releases == slots_back(slots, now_ms=T0_MS, until_ms=T0_MS + 10)


@pytest.mark.parametrize("seed", SEEDS)
def test_removed_jobs_are_exactly_those_that_core_removes(store: SqliteStore, seed: int) -> None:
    chance = random.Random(seed)
    facts = {
        admitted(store).number: (
            chance.choice([None, T0_MS - 1, T0_MS, T0_MS + 1]),
            chance.choice([None, T0_MS]),
            chance.randint(0, 1),
        )
        for _ in range(30)
    }
    change(
        store,
        "UPDATE job SET open = 0, done = measurements, finished_ms = ?, hook_ms = ? WHERE id = ?",
        [(finished, hook, number) for number, (finished, hook, _) in facts.items()],
    )
    change(
        store,
        "UPDATE measurement SET state = 'done', ended_ms = 1, settled = 0, slot = ? WHERE id >> 14 = ?",
        [(slot, number) for number, (_, _, slot) in facts.items()],
    )

    store.purge_jobs(finished_before_ms=T0_MS, limit=100)

    kept = {
        number
        for number, (finished_ms, hook_ms, slots) in facts.items()
        if not may_be_removed(finished_ms=finished_ms, hook_ms=hook_ms, slots=slots, before_ms=T0_MS)
    }
    assert {row[0] for row in rows(store, "SELECT id FROM job")} == kept


@pytest.mark.parametrize("seed", SEEDS)
def test_compacted_postings_add_up_to_the_same_balances_in_core(store: SqliteStore, seed: int) -> None:
    chance = random.Random(seed)
    limit(store, 10**9)
    for _ in range(10):
        submit(store, submission(chance.randint(1, 5)), now_ms=T0_MS + chance.choice([0, DAY_MS]))
    with store._db.write() as db:
        for (hold,) in db.execute("SELECT DISTINCT hold FROM posting").fetchall():
            if chance.random() < 0.5:
                meter = db.execute("SELECT meter FROM posting WHERE hold = ?", (hold,)).get
                ledger.close_lines(db, hold, {meter: chance.randint(0, 2 * COST.credits)}, now_ms=T0_MS)
    before = add_up(postings(store)).balances
    holds = sorted({int(one.hold) for one in postings(store)})
    cut = chance.choice(holds)
    gone = add_up([one for one in postings(store) if int(one.hold) < cut]).balances

    with store._db.write() as db:
        upkeep._compact(db, 0, cut)

    left = add_up(postings(store)).balances
    opened = rows(store, "SELECT id, opened_held, opened_spent, held, spent FROM meter WHERE \"window\" = 'day'")
    for number, opened_held, opened_spent, held, spent in opened:
        assert Balance(opened_held, opened_spent) == gone.get(str(number), Balance())
        rest = left.get(str(number), Balance())
        assert Balance(opened_held + rest.held, opened_spent + rest.spent) == before[str(number)] == (held, spent)


@pytest.mark.parametrize("seed", SEEDS)
def test_waits_move_back_as_core_says_after_the_clock_was_set_back(store: SqliteStore, seed: int) -> None:
    chance = random.Random(seed)
    job = admitted(store, 30)
    times = {
        item.handle: T0_MS + chance.randint(0, 2 * HOUR_MS)
        for item in store.measurements(job.number, after=-1, limit=30)
    }
    change(
        store, "UPDATE measurement SET state = 'parked', next_ms = ? WHERE id = ?", [(t, h) for h, t in times.items()]
    )

    moved = store.pull_back_sends(lambda: T0_MS, wait_ms_max=HOUR_MS)

    expected = {handle: pulled_back_ms(time, latest_ms=T0_MS + HOUR_MS) for handle, time in times.items()}
    found = dict(rows(store, "SELECT id, next_ms FROM measurement"))
    assert found == {handle: times[handle] if to_ms is None else to_ms for handle, to_ms in expected.items()}
    assert moved == sum(to_ms is not None for to_ms in expected.values())
