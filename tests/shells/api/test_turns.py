"""Users take turns for the threads of the API: nobody waits because somebody else asks much, or asks what hangs."""

from __future__ import annotations

import socket
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

from tests.shells.api.conftest import HTTP, Client, serving
from tests.shells.api.support.job_stage import job

MONITORS = "/v1/users/me/monitors"
CHANNEL = "/v1/users/me/channels/ops"


def test_promise_13_list_of_one_user_does_not_wait_for_the_lists_of_another(alice: Client, bob: Client) -> None:
    alice("PUT", MONITORS, {"items": [{"id": f"m{number}", **HTTP} for number in range(1_000)]})
    bob("PUT", f"{MONITORS}/one", HTTP)
    lists = 40
    with ThreadPoolExecutor(lists) as pool:
        hers = [pool.submit(alice, "GET", f"{MONITORS}?limit=1000&figures=true") for _ in range(lists)]
        wait(hers, return_when=FIRST_COMPLETED)
        his = bob("GET", f"{MONITORS}?limit=1000&figures=true")
        left = sum(not one.done() for one in hers)
        assert [len(one.result(60).json["items"]) for one in hers] == [1_000] * lists
    assert [one["id"] for one in his.json["items"]] == ["one"]
    assert left > lists / 2, "he had his turn before most of hers"


def test_promise_13_test_messages_that_hang_do_not_keep_another_user_waiting(tmp_path: Path) -> None:
    with (
        serving(tmp_path, outbound_allow="127.0.0.0/8") as world,
        socket.create_server(("127.0.0.1", 0)) as silent,
        ThreadPoolExecutor() as pool,
    ):
        ann, bob = world.add("ann"), world.add("bob")
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        ann("PUT", CHANNEL, {"kind": "webhook", "url": url})
        hanging = [pool.submit(ann, "POST", f"{CHANNEL}/test") for _ in range(3)]
        connection, _ = silent.accept()
        # However long this is, the test holds; it is so long that all three have come.
        time.sleep(0.5)
        assert bob("POST", "/v1/jobs?dry_run=true", job()).status == 200
        assert bob("GET", MONITORS).status == 200
        assert not any(one.done() for one in hanging)
        connection.close()
        silent.close()
        assert [one.result(60).json["ok"] for one in hanging] == [False] * 3
