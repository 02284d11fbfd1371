"""Lists of monitors over REST: filters, orders, cursors, and everybody's for admins."""

from __future__ import annotations

import pytest

from tests.shells.api.conftest import HTTP, OUTGOING, Client, Reply

MONITORS = "/v1/users/me/monitors"


def put_some(client: Client) -> None:
    dns = {"check": {"kind": "dns", "name": "Shop.example.net"}, "every": "1h", "tags": ["net"]}
    items = [
        {"id": "home", **HTTP, "tags": ["web", "net"]},
        {"id": "shop", **HTTP, "paused": True, "tags": ["web"]},
        {"id": "own", **OUTGOING},
        {"id": "names", **dns},
    ]
    assert client("PUT", MONITORS, {"items": items}).status == 200


def ids(reply: Reply) -> list[str]:
    assert reply.status == 200, reply.body
    return [item["id"] for item in reply.json["items"]]


def test_filters_of_a_monitor_list_combine(alice: Client) -> None:
    put_some(alice)
    expected = {
        "": ["home", "names", "own", "shop"],
        "tag=web": ["home", "shop"],
        "tag=we": [],
        "kind=dns": ["names"],
        "q=SHOP": ["names", "shop"],
        "q=.net&tag=net": ["names"],
        "q=%25": [],
        "health=paused": ["shop"],
        "health=new&tag=net&kind=http": ["home"],
        "tag=&q=": ["home", "names", "own", "shop"],
        "sort=health": ["home", "names", "own", "shop"],
    }
    for query, wanted in expected.items():
        assert ids(alice("GET", f"{MONITORS}?{query}")) == wanted, query
    by_due = ids(alice("GET", f"{MONITORS}?sort=next_due"))
    assert by_due[-1] == "shop"
    assert sorted(by_due) == expected[""]


@pytest.mark.parametrize("sort", ["id", "health", "next_due"])
def test_pages_follow_one_another_without_gap_or_repetition(alice: Client, sort: str) -> None:
    put_some(alice)
    found: list[str] = []
    cursor = ""
    for _ in range(10):
        reply = alice("GET", f"{MONITORS}?sort={sort}&limit=1{cursor}")
        found += ids(reply)
        if reply.json["next_cursor"] is None:
            break
        cursor = f"&cursor={reply.json['next_cursor']}"
    assert found == ids(alice("GET", f"{MONITORS}?sort={sort}"))


def test_cursor_of_another_query_is_refused(alice: Client, bob: Client) -> None:
    put_some(alice)
    put_some(bob)
    cursor = alice("GET", f"{MONITORS}?tag=web&limit=1").json["next_cursor"]
    assert ids(alice("GET", f"{MONITORS}?tag=web&limit=1&cursor={cursor}")) == ["shop"]
    for other in ("", "tag=net", "tag=web&kind=http", "tag=web&sort=health"):
        assert alice("GET", f"{MONITORS}?{other}&cursor={cursor}").pointers == ["/query/cursor"], other
    assert bob("GET", f"{MONITORS}?tag=web&cursor={cursor}").pointers == ["/query/cursor"]


def test_wrong_filters_are_all_named(alice: Client) -> None:
    reply = alice("GET", f"{MONITORS}?health=bad&kind=ping&sort=name&tag={'x' * 65}&q={'y' * 101}")
    assert (reply.status, reply.code) == (422, "invalid_input")
    assert sorted(reply.pointers) == [f"/query/{name}" for name in ("health", "kind", "q", "sort", "tag")]
    assert alice("GET", f"{MONITORS}?user=alice").pointers == ["/query/user"]


def test_admin_lists_the_monitors_of_all_users(admin: Client, alice: Client, bob: Client) -> None:
    put_some(alice)
    put_some(bob)
    found = admin("GET", "/v1/monitors?tag=web").json["items"]
    assert [(one["user"], one["id"]) for one in found] == [
        ("alice", "home"),
        ("alice", "shop"),
        ("bob", "home"),
        ("bob", "shop"),
    ]
    assert ids(admin("GET", "/v1/monitors?user=bob&kind=outgoing")) == ["own"]
    assert ids(admin("GET", "/v1/monitors?user=me")) == []
    assert admin("GET", "/v1/monitors?user=nobody").code == "not_found"
    assert alice("GET", "/v1/monitors").code == "forbidden"
    page = admin("GET", "/v1/monitors?limit=5").json
    rest = admin("GET", f"/v1/monitors?cursor={page['next_cursor']}").json
    assert [one["user"] for one in [*page["items"], *rest["items"]]] == ["alice"] * 4 + ["bob"] * 4
