"""How many requests a measurement takes of DynamoDB: one to read and one to write, wherever that can be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing

import pytest

from paceline.adapters.aws.store import AwsStore
from paceline.ports import Ending, NotSent, Sent, Unsure
from tests.aws.jobs_bench import AwsBench
from tests.contract.job_stage import add_account, begin, limit, submission, submit
from tests.contract.stage import T0_MS, user

pytestmark = pytest.mark.aws


def test_what_a_measurement_takes_of_dynamodb_is_bounded() -> None:
    with closing(AwsBench()) as bench:
        bench.store.add_user(user("ann"))
        limit(bench.store, 10**6)
        key = add_account(bench.store)

        def taken(work: Callable[[AwsStore], object]) -> Counter[str]:
            return Counter(bench.requests(work))

        # The user, the day with the line, a number, and all of the job.
        assert taken(lambda store: submit(store, submission(10))) == {
            "GetItem": 1,
            "BatchGetItem": 1,
            "UpdateItem": 1,
            "TransactWriteItems": 1,
        }
        # The same, with a note before and ten batches of 25 rows.
        assert taken(lambda store: submit(store, submission(250))) == {
            "GetItem": 1,
            "BatchGetItem": 1,
            "UpdateItem": 1,
            "PutItem": 1,
            "BatchWriteItem": 10,
            "TransactWriteItems": 1,
        }
        [item] = bench.store.next_to_send(now_ms=T0_MS, users_max=1, each_max=1)
        intent = taken(lambda store: store.begin_send(item, account="lab", key=key, sending_max=9, now_ms=T0_MS))
        assert intent == {"BatchGetItem": 1, "TransactWriteItems": 1}
        unsure = taken(lambda store: store.answer(item.handle, 1, Unsure("", T0_MS + 1), now_ms=T0_MS))
        assert unsure == {"BatchGetItem": 2, "TransactWriteItems": 1}
        answer = taken(lambda store: store.answer(item.handle, 1, Sent((1,)), now_ms=T0_MS))
        assert answer == {"BatchGetItem": 2, "TransactWriteItems": 1}
        ending = Ending(item.handle, 1, "done", "", 42, 7, frees_slot=True)
        assert taken(lambda store: store.end([ending], now_ms=T0_MS)) == {
            "BatchGetItem": 1,
            "GetItem": 1,
            "TransactWriteItems": 1,
        }
        begun = begin(bench.store, key)
        back = taken(lambda store: store.answer(begun.handle, begun.attempt, NotSent("no"), now_ms=T0_MS))
        assert back == {"BatchGetItem": 2, "TransactWriteItems": 1}
        # What is due, the line, its users, the first of each with its job, and their names.
        look = taken(lambda store: store.next_to_send(now_ms=T0_MS, users_max=10, each_max=10))
        assert look == {"Query": 4, "BatchGetItem": 4}
