"""``paceline batch import dynamodb://TABLE``, killed in the middle: the next import continues where it stopped."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.adapters.aws.record_table import PAGE_ITEMS
from tests.aws.support.fault_proxy import FaultProxy, Faults, fault_proxy
from tests.aws.support.ministack import Emulator, plain_client
from tests.shells.cli.support.program import Program, end_all_that_was_begun
from tests.shells.support.job_daemons import wait_for

pytestmark = pytest.mark.aws
ITEMS = 3 * PAGE_ITEMS + PAGE_ITEMS // 2
WRITTEN_TOGETHER = 25
SLOW = Faults(hold=1.0, hold_s=60.0, only=frozenset({"Scan"}), meant="ExclusiveStartKey")
"""Every page but the first is answered after the process is gone."""


@pytest.fixture
def table(aws: Emulator, prefix: str) -> Iterator[str]:
    """As somebody else made it: its key is the id."""
    name, dynamodb = f"{prefix}-records", plain_client("dynamodb", aws.url)
    dynamodb.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    for first in range(0, ITEMS, WRITTEN_TOGETHER):
        items = [{"id": {"S": f"r{n:05}"}, "provider": {"S": "shop"}} for n in range(first, first + WRITTEN_TOGETHER)]
        dynamodb.batch_write_item(RequestItems={name: [{"PutRequest": {"Item": item}} for item in items]})
    yield name
    dynamodb.delete_table(TableName=name)


@pytest.fixture
def proxy(aws: Emulator) -> Iterator[FaultProxy]:
    with fault_proxy(aws.url, seed=1) as made:
        yield made


def test_promise_10_import_of_a_table_killed_with_kill_minus_nine_goes_on_and_puts_every_record(
    aws: Emulator, proxy: FaultProxy, table: str, tmp_path: Path
) -> None:
    program = Program(tmp_path, secret_key="a secret for every process")
    program.env |= aws.environment | {"AWS_ENDPOINT_URL": proxy.url}
    program.ok("provider", "set", "shop", "--base-url", "http://127.0.0.1:1")
    program.ok("batch", "set", "nightly")
    for pages_before, pages_put in ((0, 1), (1, 1)):
        # The second process is slowed down from its second page on: it has to put one of its own first.
        proxy.begin(seed=1, faults=SLOW if pages_before == 0 else Faults())
        importing = program.begin("batch", "import", f"dynamodb://{table}", "--json")
        if pages_before:
            wait_for(lambda: proxy.requests["Scan"], lambda: proxy.requests)
            proxy.faults = SLOW
        wait_for(lambda pages=pages_put: proxy.requests["Scan"] > pages, lambda: proxy.requests)  # type: ignore[misc]
        importing.send_signal(signal.SIGKILL)
        assert importing.wait(60) == -signal.SIGKILL
        end_all_that_was_begun()
        assert len(records(program)) == (pages_before + pages_put) * PAGE_ITEMS
    proxy.begin(seed=1, faults=Faults())
    ended = program.run("batch", "import", f"dynamodb://{table}", "--json")
    assert (ended.code, ended.document["created"]) == (0, ITEMS - 2 * PAGE_ITEMS)
    assert proxy.requests["Scan"] == 2, "no page that was put is read again"
    assert records(program) == [f"r{number:05}" for number in range(ITEMS)]
    assert program.json("batch", "import", f"dynamodb://{table}")["unchanged"] == ITEMS, (
        "the stored position is deleted"
    )


def records(program: Program) -> list[str]:
    found: list[str] = []
    cursor: list[str] = []
    while True:
        page = program.json("batch", "records", "nightly", "--limit", "1000", *cursor)
        found += [item["id"] for item in page["items"]]
        if page["next_cursor"] is None:
            return found
        cursor = ["--cursor", page["next_cursor"]]
