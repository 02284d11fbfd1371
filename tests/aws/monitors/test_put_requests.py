"""What a put costs on AWS: a monitor is judged once, and one that is refused takes no number."""

from __future__ import annotations

import pytest

from paceline.adapters.aws.client.connect import Clients
from paceline.adapters.aws.client.numbers import last_generation
from paceline.adapters.aws.store import AwsStore
from paceline.core.monitors.checks import HttpCheck
from paceline.core.monitors.definition import MonitorSpec
from paceline.core.monitors.values import PutMonitor
from paceline.steps.monitors import define
from tests.aws.support.monitor_stage import counted
from tests.contract.support.stage import T0_MS

pytestmark = [pytest.mark.aws, pytest.mark.usefixtures("silent_bell")]


def a_put(name: str, *, every: str = "60s") -> PutMonitor:
    return PutMonitor("ann", name, MonitorSpec(check=HttpCheck(url="http://example.org/"), every=every))


def put(store: AwsStore, *puts: PutMonitor, monitors_max: int = 1_000) -> list[str]:
    results = define.put_monitors(store, puts, monitors_max=monitors_max, now_ms=T0_MS)
    return [result.disposition for result in results]


def test_requests_to_aws_for_a_put_of_one_monitor_are_bounded(store: AwsStore, clients: Clients) -> None:
    put(store, a_put("first"))  # takes a block of numbers for changes
    with counted(clients) as created:
        assert put(store, a_put("second")) == ["created"]
    with counted(clients) as unchanged:
        assert put(store, a_put("second")) == ["unchanged"]
    assert created.total() <= 10, created
    assert created["TransactWriteItems"] <= 3, created
    assert unchanged.total() <= 3, unchanged


def test_put_on_aws_that_is_refused_takes_no_generation(store: AwsStore, clients: Clients) -> None:
    put(store, a_put("first"))
    last = last_generation(store.db)
    with counted(clients) as refused:
        assert put(store, a_put("second"), monitors_max=1) == ["limit_reached"]
    assert refused["UpdateItem"] == 0
    assert last_generation(store.db) == last


def test_requests_to_aws_for_a_bulk_put_are_less_than_one_for_each_monitor(store: AwsStore, clients: Clients) -> None:
    put(store, a_put("first"))
    with counted(clients) as requests:
        assert set(put(store, *(a_put(f"m{number:03}") for number in range(100)))) == {"created"}
    assert requests.total() <= 40, requests
