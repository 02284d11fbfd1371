"""The page of one monitor: what is wrong is one click from why, and incidents say how long they lasted."""

from __future__ import annotations

import re
from urllib.parse import quote

from tests.shells.api.conftest import OUTGOING, Client, World
from tests.shells.dashboard.support.reading import text_of, view_of

PAGE = "/ui/monitors/alice/own"


def checked(world: World, alice: Client, status: str, **detail: str) -> str:
    """One check of the monitor ends so; returns its run."""
    alice("POST", "/v1/users/me/monitors/own/run")
    world.fire()
    claimed = alice("POST", "/v1/outgoing/claim", {"max": 10}).json["items"]
    for one in claimed:
        path = f"/v1/runs/{quote(one['run'], safe='')}/outcome"
        assert alice("POST", path, {"lease": one["lease"], "status": status, "detail": detail}).status == 200
    return str(claimed[-1]["run"])


def test_failing_monitor_is_one_click_from_why(world: World) -> None:
    alice = world.add("alice")
    alice("PUT", "/v1/users/me/monitors/own", OUTGOING)
    run = checked(world, alice, "failed", reason="the door is locked")
    body = view_of(alice, PAGE)
    banner = body[body.index('<div class="banner">') :].partition("</div></div>")[0]
    assert "The door is locked." in banner
    assert f'href="/ui/runs/{quote(run, safe="")}/why">Why<' in banner


def test_incident_that_is_over_says_how_long_it_lasted(world: World) -> None:
    alice = world.add("alice")
    alice("PUT", "/v1/users/me/monitors/own", OUTGOING)
    checked(world, alice, "failed", reason="the door is locked")
    assert "goes on The door is locked" in text_of(alice, PAGE)
    checked(world, alice, "ok")
    assert re.search(r"\d\.\d s The door is locked", text_of(alice, PAGE))
