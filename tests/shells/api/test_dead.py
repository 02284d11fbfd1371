"""Dead letters over REST: listed, redriven once, or discarded."""

from __future__ import annotations

from typing import Any

import pytest

from tests.shells.api.conftest import Client, World
from tests.shells.api.support.day import PROVIDER, TOMORROW, end_all, names


@pytest.fixture
def mourner(admin: Client, world: World) -> Client:
    """An admin with six dead letters: three of provider a in each of two batches; provider b has none."""
    for name in ("a", "b"):
        admin("PUT", f"/v1/providers/{name}", PROVIDER)
    for batch in ("one", "two"):
        admin("PUT", f"/v1/batches/{batch}", {})
        items = [{"id": f"{provider}{i}", "provider": provider} for provider in "ab" for i in range(3)]
        admin("PUT", f"/v1/batches/{batch}/records", {"items": items})
        assert admin("POST", f"/v1/batches/{batch}/plan", {"date": TOMORROW}).json["enqueued"] == 6
    assert end_all(world, "failed", provider="a", reason="HTTP 404") == 6
    return admin


def dead(client: Client, query: str = "") -> list[str]:
    return names(client("GET", f"/v1/dead{query}").json["items"])


def totals(client: Client, batch: str) -> Any:
    return client("GET", f"/v1/batches/{batch}/days/{TOMORROW}").json["totals"]


def test_dead_letters_are_listed_with_their_reason(mourner: Client) -> None:
    items = mourner("GET", "/v1/dead").json["items"]
    assert {(run["state"], run["dead"], run["reason"], run["status_code"]) for run in items} == {
        ("failed", True, "HTTP 404", 400)
    }
    assert len(items) == 6
    assert dead(mourner, "?batch=one") == [f"one/a{i}@{TOMORROW}" for i in range(3)]
    assert dead(mourner, "?provider=b") == []
    assert dead(mourner, "?provider=a&batch=two") == [f"two/a{i}@{TOMORROW}" for i in range(3)]
    assert dead(mourner, "?batch=none") == []


def test_dead_letters_come_in_pages(mourner: Client) -> None:
    first = mourner("GET", "/v1/dead?limit=4").json
    second = mourner("GET", f"/v1/dead?limit=4&cursor={first['next_cursor']}").json
    assert len(first["items"]) == 4
    assert names(first["items"] + second["items"]) == dead(mourner)
    assert second["next_cursor"] is None


def test_repeated_redrive_puts_a_dead_letter_back_once(mourner: Client) -> None:
    body = {"batch": "one", "date": TOMORROW}
    assert mourner("POST", "/v1/dead/redrive", body).json == {"redriven": 3}
    assert mourner("POST", "/v1/dead/redrive", body).json == {"redriven": 0}
    assert dead(mourner) == [f"two/a{i}@{TOMORROW}" for i in range(3)]
    assert totals(mourner, "one")["waiting"] == 6


def test_runs_are_redriven_by_name(mourner: Client) -> None:
    runs = [f"one/a0@{TOMORROW}", f"two/a1@{TOMORROW}"]
    assert mourner("POST", "/v1/dead/redrive", {"runs": runs}).json == {"redriven": 2}
    assert mourner("POST", "/v1/dead/redrive", {"provider": "a"}).json == {"redriven": 4}
    assert dead(mourner) == []


def test_discarded_runs_stay_in_their_day(mourner: Client) -> None:
    assert mourner("POST", "/v1/dead/discard", {"batch": "one"}).json == {"discarded": 3}
    assert mourner("POST", "/v1/dead/discard", {"batch": "one"}).json == {"discarded": 0}
    assert dead(mourner, "?batch=one") == []
    assert totals(mourner, "one")["failed"] == 3
    assert mourner("POST", "/v1/dead/redrive", {"batch": "one"}).json == {"redriven": 0}


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, ""),
        ({"date": "2026-11-20"}, ""),
        ({"runs": ["nonsense"]}, "/runs/0"),
        ({"runs": "one"}, "/runs"),
        ({"all": True}, "/all"),
    ],
)
def test_redrive_without_a_choice_is_refused(chief: Client, body: Any, pointer: str) -> None:
    for path in ("/v1/dead/redrive", "/v1/dead/discard"):
        reply = chief("POST", path, body)
        assert (reply.code, reply.pointers) == ("invalid_input", [pointer])


def test_messages_of_dead_queues_are_redriven_by_themselves(mourner: Client) -> None:
    """Without AWS there are no dead queues."""
    told = mourner("POST", "/v1/dead/redrive", {"queues": True})
    assert (told.status, told.json) == (200, {"redriven": 0, "dropped": 0, "left": 0, "queues": {}})
    beside = mourner("POST", "/v1/dead/redrive", {"queues": True, "batch": "one", "date": TOMORROW})
    assert (beside.code, beside.pointers) == ("invalid_input", ["/batch", "/date"])
    assert mourner("POST", "/v1/dead/redrive", {"queues": False}).pointers == [""]
    assert mourner("POST", "/v1/dead/discard", {"queues": True}).pointers == ["/queues"]
    assert len(dead(mourner)) == 6
