"""``check`` reports damaged items of batches in plain words."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from paceline.adapters.aws.batches.keys import lane_key, ledger_key, place_key, record_key
from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import Action, DynamoKey, delete, update
from paceline.adapters.aws.client.tables import ITEMS, RUNS
from paceline.adapters.aws.store import AwsStore
from paceline.core.batches.run_keys import run_key
from tests.contract.support.call_stage import claim, every, make_batch, plan, provide
from tests.contract.support.stage import T0_MS

pytestmark = pytest.mark.aws

PLACE = place_key(1, T0_MS)
LEDGER = ledger_key(run_key(1, 1))


def change(key: DynamoKey, expression: str, **values: object) -> Callable[[], Action]:
    return lambda: update(RUNS, key, expression, when="", **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda: delete(RUNS, PLACE), "neither waiting nor aside nor ended"),
        (lambda: delete(RUNS, LEDGER), "not the one that the ledger has there"),
        (change(LEDGER, "SET #due_ms = :other", other=T0_MS + 1), "neither waiting nor aside nor ended"),
        (change(PLACE, "SET #state = :aside", aside="aside"), "aside and is not listed"),
        (change(PLACE, "SET #state = :failed", failed="failed"), "has no reason"),
        (change(PLACE, "SET #dead = :yes", yes=True), "can be a dead letter"),
        (lambda: delete(RUNS, lane_key(1)), "has no lane"),
        (change(lane_key(1), "SET #revision = :other", other=9), "another revision of its provider"),
        (change(lane_key(1), "REMOVE #at, #shard"), "would never be looked at"),
        (change(lane_key(1), "SET #front_ms = :later", later=T0_MS + 5), "a waiting run would never be looked at"),
        (change(lane_key(1), "SET #aside = :one", one=1), "counts 1 runs aside, not 0"),
        (lambda: delete(ITEMS, record_key(1)), "has no day or no record"),
    ],
)
def test_a_broken_promise_is_found(
    aws_store: AwsStore, database: DynamoDatabase, damage: Callable[[], Action], words: str
) -> None:
    provide(aws_store, "a")
    plan(aws_store, make_batch(aws_store), every(10, 2))
    assert aws_store.verify_batches() == []
    database.write(damage())
    problems = aws_store.verify_batches()
    assert any(words in problem for problem in problems), problems


def test_check_finds_a_queue_that_names_missing_runs(aws_store: AwsStore, database: DynamoDatabase) -> None:
    provide(aws_store, "a")
    plan(aws_store, make_batch(aws_store), every(10, 2))
    assert len(claim(aws_store)) == 1
    assert aws_store.verify_batches() == []
    database.write(update(RUNS, PLACE, "SET #state = :done", when="", done="done"))
    assert any("holds a run that is not there" in problem for problem in aws_store.verify_batches())
