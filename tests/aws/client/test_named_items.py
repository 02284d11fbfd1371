"""How many requests named items take of DynamoDB, and that a process which dies at one leaves nothing half written."""

from __future__ import annotations

import pytest

from paceline.adapters.aws.client.connect import Clients
from paceline.adapters.aws.store import AwsStore
from paceline.core.daemons import Daemon
from paceline.ports.items import ItemKey, ItemWrite
from paceline.steps.upkeep.clock import note_time
from paceline.steps.upkeep.daemons import beat, forget_daemon, list_daemons
from tests.aws.support.monitor_stage import Cut, counted, cut_before

pytestmark = pytest.mark.aws
KEYS = [ItemKey("thing", name) for name in "abc"]
DAEMON = Daemon("d1", "up", "host-a", 11, "", 1, 2, 5_000)


def test_items_take_one_request_for_each_read_and_each_write(aws_store: AwsStore, clients: Clients) -> None:
    with counted(clients) as asked:
        beat(aws_store, DAEMON)
        assert asked == {"PutItem": 1}
        asked.clear()
        assert list_daemons(aws_store, limit=9) == [DAEMON]
        assert asked == {"Query": 1}
        asked.clear()
        forget_daemon(aws_store, "d1")
        assert asked == {"DeleteItem": 1}
        asked.clear()
        note_time(aws_store, lambda: 1)
        assert asked == {"GetItem": 1, "PutItem": 1}
        asked.clear()
        assert aws_store.write_items([ItemWrite(at, b"1", None) for at in KEYS]) == {}
        assert asked == {"TransactWriteItems": 1}
        asked.clear()
        assert len(aws_store.get_items(KEYS)) == len(KEYS)
        assert asked == {"BatchGetItem": 1}


def test_writer_that_dies_at_its_request_has_written_nothing(aws_store: AwsStore, clients: Clients) -> None:
    with cut_before(clients, 0), pytest.raises(Cut):
        aws_store.write_items([ItemWrite(at, b"1", None) for at in KEYS])
    assert aws_store.get_items(KEYS) == {}
