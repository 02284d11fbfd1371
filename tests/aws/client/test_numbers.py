"""Numbers are given once in the whole store."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from paceline.adapters.aws.client.connect import Clients
from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.numbers import Numbers
from paceline.adapters.aws.store import AwsStore
from tests.aws.support.fault_proxy import Faults, fault_proxy
from tests.aws.support.ministack import Emulator, guarded_clients


def test_numbers_begin_at_one_and_rise_within_one_process(database: DynamoDatabase) -> None:
    numbers = Numbers(database)
    assert numbers.take("generation", 3) == [1, 2, 3]
    assert numbers.take("generation", 2) == [4, 5]
    assert numbers.take("job", 1) == [1]
    assert numbers.take("generation", 0) == []


def test_numbers_are_reserved_in_blocks_that_grow_with_the_request(database: DynamoDatabase) -> None:
    one, other = Numbers(database), Numbers(database)
    assert one.take("n", 1, block=10) == [1]
    assert other.take("n", 25, block=10) == list(range(11, 36))
    assert one.take("n", 12, block=10) == [*range(2, 11), 36, 37, 38]


def test_no_number_is_given_to_two_concurrent_takers(database: DynamoDatabase) -> None:
    pair = [Numbers(database), Numbers(database)]
    with ThreadPoolExecutor(8) as pool:
        taken = pool.map(lambda number: pair[number % 2].take("n", 7, block=20), range(60))
        given = [number for some in taken for number in some]
    assert len(set(given)) == len(given) == 420


def test_numbers_with_lost_and_doubled_requests_have_gaps_but_no_duplicates(
    aws: Emulator, clients: Clients, prefix: str
) -> None:
    with closing(AwsStore(prefix, clients=clients)) as made:
        made.create()
    weather = Faults(drop_after=0.2, duplicate=0.2, drop_before=0.1)
    with (
        fault_proxy(aws.url, seed=3, faults=weather) as proxy,
        guarded_clients(proxy.url) as shaky,
        closing(AwsStore(prefix, clients=shaky)) as store,
    ):
        given = [number for _ in range(20) for number in store._numbers.take("n", 3, block=3)]
        assert sorted(set(given)) == given
        assert min(proxy.hits[fault] for fault in ("drop_after", "duplicate", "drop_before")) > 0
        assert given[-1] > 60
