"""Phases of interval monitors over REST: even in bulk, at once for one, kept through edits, and never shown."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from tests.shells.api.conftest import HTTP, Client

PATH = "/v1/users/me/monitors"
MINUTE_S = 60


def due_of(view: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(view["schedule"]["next_due"])


def test_promise_7_bulk_request_spreads_monitors_and_those_of_each_host(alice: Client) -> None:
    """More items than one commit takes: they are spread as one."""
    items = [
        {"id": f"m{number}", "check": {"kind": "http", "url": f"http://h{number % 7}.example/"}, "every": "60s"}
        for number in range(610)
    ]
    answer = alice("PUT", PATH, {"items": items})
    assert {item["disposition"] for item in answer.json["items"]} == {"created"}
    views = alice("GET", f"{PATH}?limit=1000").json["items"]
    seconds = Counter(due_of(view).replace(microsecond=0) for view in views)
    assert max(seconds.values()) <= 610 / MINUTE_S + 1
    for host in range(7):
        mine = sorted(due_of(view) for view in views if f"//h{host}." in view["check"]["url"])
        gaps = [later - sooner for sooner, later in pairwise([*mine, mine[0] + timedelta(minutes=1)])]
        assert max(gaps) < timedelta(seconds=2 * MINUTE_S / len(mine), milliseconds=50)
    again = alice("PUT", PATH, {"items": items})
    assert {item["disposition"] for item in again.json["items"]} == {"unchanged"}


def test_single_put_is_due_within_a_second_and_moves_no_other_monitor(alice: Client) -> None:
    first = alice("PUT", f"{PATH}/first", HTTP).json
    second = alice("PUT", f"{PATH}/second", HTTP).json
    for view in (first, second):
        assert abs(due_of(view) - datetime.fromisoformat(view["created_at"])) <= timedelta(seconds=1)
    assert alice("GET", f"{PATH}/first").json["schedule"] == first["schedule"]


def test_initial_delay_is_shown_only_if_it_was_given_and_the_phase_never(alice: Client) -> None:
    assert "initial_delay" not in alice("PUT", f"{PATH}/web", HTTP).json
    given = alice("PATCH", f"{PATH}/web", {"initial_delay": "0s"}).json
    assert given["initial_delay"] == "0s"
    taken = alice("PATCH", f"{PATH}/web", {"initial_delay": None}).json
    assert "initial_delay" not in taken
    assert "phase" not in taken
    assert alice("PUT", f"{PATH}/web", HTTP | {"phase": {"ms": 0}}).pointers == ["/phase"]
    assert alice("PUT", f"{PATH}/web", HTTP | {"initial_delay": None}).pointers == ["/initial_delay"]


def test_cron_monitor_that_gets_an_interval_gets_a_phase(alice: Client) -> None:
    cron = {name: value for name, value in HTTP.items() if name != "every"} | {"cron": "0 0 1 1 *"}
    assert alice("PUT", f"{PATH}/web", cron).status == 201
    patched = alice("PATCH", f"{PATH}/web", {"every": "60s"}).json
    assert "initial_delay" not in patched
    assert due_of(patched) - datetime.fromisoformat(patched["updated_at"]) <= timedelta(seconds=61)
