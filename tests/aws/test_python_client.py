"""The Python client and its worker over ``paceline up`` on DynamoDB and SQS."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest

from paceline_client import (
    ClaimedRecord,
    ClaimedRun,
    Client,
    PreconditionFailed,
    Retry,
    Unauthenticated,
    Worker,
)
from tests.aws.support.ministack import fresh_prefix, make_tables, shared_clients, shared_emulator
from tests.client.support.both import Connect, connecting
from tests.shells.cli.support.program import Program
from tests.shells.support.daemons import SECRET
from tests.shells.support.job_daemons import wait_for

pytestmark = pytest.mark.aws
OUTGOING: Any = {"kind": "outgoing", "page": "/cart"}
YESTERDAY = (datetime.now(UTC) - timedelta(days=1)).date()


class Service(NamedTuple):
    url: str
    token: str
    """An admin's."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    prefix = fresh_prefix()
    make_tables(shared_clients(), prefix)
    folder = tmp_path_factory.mktemp("service")
    program = Program(folder, store=f"aws://?prefix={prefix}", secret_key=SECRET, port="0", log_level="warning")
    program.env |= shared_emulator().environment
    token = program.json("user", "add", "root", "--role", "admin")["token"]
    with program.running("up") as running:
        yield Service(running.said["url"], token)


@contextmanager
def running(worker: Worker) -> Iterator[None]:
    """Works on a thread until the end of the block."""
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join()


@pytest.fixture(params=["Client", "AsyncClient"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    yield from connecting(request.param)


def test_both_clients_define_page_edit_and_remove_on_aws(service: Service, connect: Connect) -> None:
    root = connect(*service)
    ann = connect(service.url, root.users.add("ann").token)
    items = [{"id": f"m{number:03}", "check": OUTGOING, "every": "1h"} for number in range(120)]
    assert {one.disposition for one in ann.monitors.put_many(items)} == {"created"}
    assert [one.id for one in ann.monitors.list()] == [one["id"] for one in items], "over two pages"
    seen = ann.monitors.get("m000")
    assert ann.monitors.edit("m000", lambda one: {"tags": [*one.tags, "web"]}).tags == ["web"]
    with pytest.raises(PreconditionFailed):
        ann.monitors.put("m000", check=OUTGOING, every="2h", if_match=seen.etag)
    root.providers.put("shop", kind="outgoing")
    batch = f"nightly-{type(root).__name__}"
    root.batches.put(batch, window="1h")
    loaded = root.records.load(batch, [{"id": f"r{number:03}", "provider": "shop"} for number in range(150)])
    assert (loaded.created, loaded.refused) == (150, 0)
    assert len(root.records.list(batch).to_list()) == 150
    assert root.days.plan(batch, YESTERDAY).enqueued == 150
    assert (root.days.plan(batch, YESTERDAY).enqueued, root.days.plan(batch, YESTERDAY).already) == (0, 150)
    left = root.batches.remove(batch)
    assert left.deleting.runs == 150, "the rest goes when all processes know of it"
    late = root.records.put(batch, [{"id": "late", "provider": "shop"}]).items[0]
    assert (late.disposition, late.error.code) == ("refused", "not_found")
    root.users.remove("ann")
    with pytest.raises(Unauthenticated):
        ann.monitors.list().to_list()


def test_worker_carries_out_checks_and_records_on_aws_each_once_and_in_order(service: Service) -> None:
    with Client(*service) as root:
        root.users.add("bob")
        root.monitors.put("cart", user="bob", check=OUTGOING, every="1h")
        root.providers.put("mill", kind="outgoing", max_in_flight=1, retry={"base": "1ms", "cap": "1ms"})
        root.batches.put("grain", window="2s", missed="all")
        root.records.put("grain", [{"id": f"r{number}", "provider": "mill", "body": number} for number in range(6)])
        assert root.days.plan("grain", YESTERDAY).enqueued == 6
        token = root.tokens.add("root", scope="worker:mill").token
        begun: list[str] = []
        looked: list[ClaimedRun] = []

        def check(run: ClaimedRun) -> dict[str, int]:
            looked.append(run)
            return {"items": 3}

        def grind(record: ClaimedRecord) -> None:
            begun.append(record.run)
            if record.body == 2 and record.attempt == 1:
                raise Retry("the stone is hot")
            if record.body == 4:
                raise ValueError("no grain")

        with Client(service.url, token) as scoped:
            checker, miller = Worker(root), Worker(scoped)
            checker.checker(user="bob")(check)
            miller.batch("mill")(grind)
            with running(checker), running(miller):
                wait_for(lambda: root.days.get("grain", YESTERDAY).totals.get("waiting", 0) == 0, lambda: begun)
                wait_for(
                    lambda: [one.state for one in root.monitors.runs("cart", user="bob")] == ["ok"], lambda: looked
                )
                wait_for(lambda: len(begun) == 7, lambda: begun)
        runs = root.days.runs("grain", YESTERDAY).to_list()
        ended = {one.record: (one.state, one.attempt) for one in runs}
        assert ended == {f"r{number}": ("failed" if number == 4 else "done", 1 + (number == 2)) for number in range(6)}
        due = [one.run for one in sorted(runs, key=lambda one: one.due)]
        assert list(dict.fromkeys(begun)) == due, "in order, the repeated one in its place"
        assert [(one.check["page"], one.attempt) for one in looked] == [("/cart", 1)]
