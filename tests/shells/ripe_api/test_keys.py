"""Keys of users: where a request may carry them, and that each user sees only their own measurements."""

from __future__ import annotations

import pytest

from paceline.shells.ripe_api.routes import ROUTES
from tests.shells.api.conftest import Client
from tests.shells.ripe_api.conftest import House, basic, request_of


def uuid_key(house: House) -> str:
    (key,) = house.ann("GET", "/keys/").json["results"]
    return str(key["uuid"])


def test_a_key_is_taken_wherever_a_client_puts_it(house: House) -> None:
    (number,) = house.ann.create()
    token, client = house.ann.token, Client(house.world.port)
    path = f"/api/v2/measurements/{number}/"
    for value in (f"Key {token}", f"key  {token}", f"Bearer {token}", basic(token), f"Key {uuid_key(house)}"):
        assert client("GET", path, headers={"Authorization": value}).status == 200, value
    assert client("GET", f"{path}?key={token}").status == 200
    assert client("GET", f"{path}?key={uuid_key(house)}").status == 200


def test_the_uuid_of_a_token_ends_with_the_token(house: House) -> None:
    key = uuid_key(house)
    assert house.ann("GET", "/measurements/my/", key=key.upper().replace("-", "")).status == 200
    wrong = key[:-1] + ("0" if key[-1] != "0" else "1")
    assert house.ann("GET", "/measurements/my/", key=wrong).status == 401
    store = house.world.system.store
    (token,) = store.tokens("ann")
    store.remove_token("ann", token.id)
    assert house.ann("GET", "/measurements/my/", key=key).status == 401


def test_a_link_to_the_next_page_serves_for_this_list_and_this_user_alone(house: House) -> None:
    for _ in range(3):
        house.ann.create()
    house.bob.create()
    client = Client(house.world.port)
    link = client("GET", f"/api/v2/measurements/?page_size=2&key={house.ann.token}").json["next"]
    path = "/api/v2/" + link.partition("/api/v2/")[2]
    assert [client("GET", path).json[name] for name in ("count", "next")] == [3, None]
    for wrong in (
        path.replace("continue=ann", "continue=bob"),
        path.replace("/measurements/", "/measurements/my/"),
        path[:-1] + ("0" if path[-1] != "0" else "1"),
        path.partition("continue=")[0] + "continue=ann.1.00",
        path.partition("continue=")[0] + "continue=",
    ):
        assert client("GET", wrong).status == 401, wrong
    assert "continue=" not in house.ann("GET", "/measurements/?page_size=2").json["next"]
    assert client("DELETE", path.replace("/measurements/?", f"/measurements/{1 << 21}/?")).status == 401
    assert client("POST", path, request_of()).status == 401


def test_wrong_keys_are_refused_in_the_envelope_and_then_throttled(house: House) -> None:
    answers = [house.ann("GET", "/measurements/", key=f"pl_000000000000_{n}") for n in range(7)]
    assert [one.status for one in answers] == [401] * 5 + [429] * 2
    assert answers[0].json["error"]["code"] == 104
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert house.ann("GET", "/measurements/").status == 200


def test_requests_without_a_key_see_no_measurement_and_change_nothing(house: House) -> None:
    (number,) = house.ann.create()
    client = Client(house.world.port)
    listed = client("GET", "/api/v2/measurements/").json
    assert (listed["count"], listed["results"]) == (0, [])
    assert listed["warnings"][0]["source"] == {"parameter": "key"}
    for path in (f"measurements/{number}/", f"measurements/{number}/results/", f"measurements/{number}/latest/"):
        assert client("GET", f"/api/v2/{path}").status == 404
    for method, path in (
        ("GET", "measurements/my/"),
        ("POST", "measurements/"),
        ("DELETE", f"measurements/{number}/"),
        ("GET", "credits/"),
        ("GET", "keys/"),
    ):
        answer = client(method, f"/api/v2/{path}")
        assert (answer.status, answer.json["error"]["status"]) == (401, 401), path


def test_promise_12_every_route_hides_the_first_user_from_the_second(house: House) -> None:
    first, _ = house.ann.create({"type": "ping", "af": 4, "target": "192.0.2.1", "description": "ann's"}, _other())
    walked = 0
    for route in ROUTES:
        path = route.name.removeprefix("/api/v2").replace("{type}", "ping").replace("{id}", str(first))
        answer = house.bob(route.method, path)
        assert b"ann's" not in answer.body
        assert str(first).encode() not in answer.body
        if "{id}" in route.name and "probes" not in route.name:
            assert answer.status == 404, route.name
            walked += 1
    assert walked == 7
    assert house.ann.status(first) == "Specified"


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "nothing/", 404), ("PATCH", "measurements/", 405)])
def test_unsupported_path_is_an_error_in_ripes_envelope(house: House, method: str, path: str, status: int) -> None:
    answer = house.ann(method, f"/{path}")
    assert (answer.status, answer.json["error"]["status"]) == (status, status)


def test_requests_are_counted_by_route_and_the_log_has_no_key(house: House) -> None:
    house.ann.create()
    client = Client(house.world.port)
    assert client("GET", f"/api/v2/measurements/my/?key={house.ann.token}").status == 200
    figures = client("GET", "/metrics").body.decode()
    assert 'paceline_http_requests_total{method="GET",route="/api/v2/measurements/my/",status="200"} 1.0' in figures
    log = house.world.log.getvalue()
    assert '"route": "/api/v2/measurements/my/"' in log
    assert house.ann.token not in log + figures


def _other() -> dict[str, object]:
    return {"type": "ping", "af": 4, "target": "192.0.2.9", "description": "ann's too"}
