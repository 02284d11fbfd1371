"""The search box that opens any page by an id, with the keyboard alone."""

from __future__ import annotations

import pytest

from tests.shells.api.conftest import HTTP, Client, World
from tests.shells.api.support.day import PROVIDER, TOMORROW
from tests.shells.api.support.job_stage import submitted


@pytest.fixture
def root(world: World) -> Client:
    root, alice = world.add("root", "admin"), world.add("alice")
    assert alice("PUT", "/v1/users/me/monitors/a%2Bb", {**HTTP, "every": "1h"}).status == 201
    assert root("PUT", "/v1/users/me/monitors/own", {**HTTP, "every": "1h"}).status == 201
    root("PUT", "/v1/providers/shop", PROVIDER)
    root("PUT", "/v1/batches/daily", {})
    root("PUT", "/v1/batches/daily/records", {"items": [{"id": "r1", "provider": "shop"}]})
    assert root("POST", "/v1/batches/daily/plan", {"date": TOMORROW}).status == 200
    return root


def led(client: Client, text: str) -> str:
    answer = client("GET", f"/ui/go?to={text}")
    assert answer.status == 303
    return answer.headers["location"]


def test_search_box_leads_to_the_page_of_an_id(world: World, root: Client) -> None:
    job = submitted(world.client(world.tokens["alice"]))
    for text, address in {
        "own": "/ui/monitors/" + "root/own",
        "alice/a%2Bb": "/ui/monitors/alice/a%2Bb",
        "a%2Bb": "/ui/monitors/alice/a%2Bb",
        "shop": "/ui/providers?id=shop",
        "daily": "/ui/batches",
        f"daily/r1%40{TOMORROW}": f"/ui/runs/daily%2Fr1%40{TOMORROW}/why",
        job: f"/ui/jobs/{job}",
        "nothing%20of%20this": "/ui/monitors?q=nothing+of+this",
        "": "/ui/monitors",
    }.items():
        assert led(root, text) == address, text
    for path in ("/ui/providers?id=shop", "/ui/monitors/alice/a%2Bb"):
        assert root("GET", path).status == 200


def test_search_box_finds_nothing_of_other_users(world: World, root: Client) -> None:
    del root
    bob = world.add("bob")
    for text in ("alice/a%2Bb", "a%2Bb", "shop", "daily", f"daily/r1%40{TOMORROW}"):
        assert led(bob, text).startswith("/ui/monitors?q="), text
