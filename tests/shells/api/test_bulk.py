"""Many monitors in one request, each judged by itself."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from paceline.adapters.sqlite.store import SqliteStore
from paceline.shells.api.http.group_commit import ROOM
from paceline.shells.api.monitors import BULK_CHUNK
from tests.shells.api.conftest import HTTP, Client, World

PATH = "/v1/users/me/monitors"


def dispositions(items: list[dict[str, Any]]) -> list[tuple[Any, str]]:
    return [(item["id"], item["disposition"]) for item in items]


def test_each_item_gets_its_disposition_in_the_order_of_the_request(alice: Client) -> None:
    alice("PUT", f"{PATH}/same", HTTP)
    alice("PUT", f"{PATH}/other", HTTP)
    reply = alice(
        "PUT",
        PATH,
        {
            "items": [
                {"id": "new", **HTTP},
                {"id": "same", **HTTP},
                {"id": "other", **HTTP, "every": "30s"},
                {"id": "bad/id", **HTTP},
                {"id": "wrong", **HTTP, "every": "0s"},
                {**HTTP},
                {"id": 7, **HTTP},
                {"id": "extra", **HTTP, "owner": "bob"},
                {"id": "new", **HTTP, "every": "5s"},
                "text",
            ]
        },
    )
    assert reply.status == 200
    items = reply.json["items"]
    assert dispositions(items) == [
        ("new", "created"),
        ("same", "unchanged"),
        ("other", "replaced"),
        ("bad/id", "refused"),
        ("wrong", "refused"),
        (None, "refused"),
        (None, "refused"),
        ("extra", "refused"),
        ("new", "refused"),
        (None, "refused"),
    ]
    pointers = [item["error"]["errors"][0]["pointer"] for item in items if "error" in item]
    assert pointers == [
        "/items/3/id",
        "/items/4/every",
        "/items/5/id",
        "/items/6/id",
        "/items/7/owner",
        "/items/8/id",
        "/items/9",
    ]
    assert {item["error"]["code"] for item in items if "error" in item} == {"invalid_input"}
    assert alice("GET", f"{PATH}/new").json["every"] == "60s"
    assert [item["id"] for item in alice("GET", PATH).json["items"]] == ["new", "other", "same"]


def test_bulk_put_of_several_chunks_is_written_completely(world: World, alice: Client) -> None:
    names = [f"m{number:05d}" for number in range(2_345)]
    reply = alice("PUT", PATH, {"items": [{"id": name, **HTTP} for name in names]})
    assert dispositions(reply.json["items"]) == [(name, "created") for name in names]
    assert alice("GET", "/v1/users/me").json["monitors"] == len(names)
    assert world.system.store.status().entries == len(names)


def test_bulk_body_with_a_wrong_envelope_writes_nothing(alice: Client) -> None:
    assert alice("PUT", PATH, {"items": []}).json == {"items": []}
    assert alice("PUT", PATH, {}).pointers == ["/items"]
    assert alice("PUT", PATH, {"items": [], "mode": "x"}).pointers == ["/mode"]
    assert alice("PUT", PATH, {"items": {"id": "x"}}).pointers == ["/items"]
    assert alice("PUT", PATH, raw=b'{"items": [{"id": "x"}').code == "malformed_body"
    too_many = alice("PUT", PATH, {"items": [{"id": f"m{number}", **HTTP} for number in range(10_001)]})
    assert (too_many.code, too_many.pointers) == ("invalid_input", ["/items"])
    assert alice("GET", PATH).json["items"] == []


def test_a_bulk_put_for_a_user_that_does_not_exist_is_not_found(admin: Client) -> None:
    assert admin("PUT", "/v1/users/nobody/monitors", {"items": [{"id": "x", **HTTP}]}).code == "not_found"


def test_promise_13_put_of_one_user_does_not_wait_for_the_bulk_puts_of_another(
    world: World, alice: Client, bob: Client
) -> None:
    """Generations are given in the order of writing: they tell how much was written before bob's monitor."""
    writers, items = 4, 1_000
    assert isinstance(world.system.store, SqliteStore)
    with ThreadPoolExecutor(writers + 1) as pool:
        with world.system.store._db.write():  # no commit happens until all requests have arrived
            bulks = [pool.submit(alice, "PUT", PATH, _many(writer, items)) for writer in range(writers)]
            # However long this is, the test holds; it is so long that hers have come before his.
            time.sleep(0.5)
            single = pool.submit(bob, "PUT", f"{PATH}/one", HTTP)
            time.sleep(0.2)
        one = single.result(60)
        assert one.status == 201
        assert all(bulk.result(60).status == 200 for bulk in bulks)
    assert one.json["schedule"]["generation"] <= ROOM + BULK_CHUNK, "the commit in progress, and no more"
    assert world.system.store.status().monitors == writers * items + 1


def _many(writer: int, items: int) -> dict[str, Any]:
    return {"items": [{"id": f"m{writer}-{number}", **HTTP} for number in range(items)]}
