"""Nobody sees another's on a page: a walk over every route of the dashboard with a second user's token."""

from __future__ import annotations

import re

from paceline.shells.dashboard.pages import dashboard_routes
from tests.shells.api.conftest import World
from tests.shells.api.test_tenancy import Stage

OPEN = {"/ui/sign-in", "/ui/session", "/ui/static/{hash}/{name}"}


GO = "/ui/go"
"""It leads to other pages, and shows nothing itself: test_going.py tests where it leads each user."""


def test_every_page_hides_the_first_user_from_the_second(world: World) -> None:
    stage = Stage(world)
    pages = [route for route in dashboard_routes() if route.page and route.path != GO]
    assert {route.path for route in dashboard_routes() if not route.page} == OPEN
    for route in pages:
        path = stage.path(route.path)
        assert stage.admin("GET", path).status == 200, path
        mine, theirs = stage.alice("GET", path), stage.bob("GET", path)
        assert mine.status == (403 if route.access == "admin" else 200), path
        if "{" in route.path:
            assert theirs.status == (403 if route.access == "admin" else 404), path
        shown = re.sub(r'class="dim small gone"[^>]*>[^<]*<', "", theirs.body.decode())
        for secret in ("alice", stage.job, stage.token_id, "/web", "own"):
            assert secret == "own" or secret not in shown or secret in path, f"{secret} on {path}"


def test_plain_user_is_not_offered_admin_actions(world: World) -> None:
    alice = world.add("alice")
    text = alice("GET", "/").body.decode()
    for address in ("/ui/providers", "/ui/batches", "/ui/accounts", "/ui/dead"):
        assert f'href="{address}"' not in text
    refused = alice("GET", "/ui/accounts")
    assert (refused.status, b"needs an admin" in refused.body) == (403, True)
    asked = alice("GET", "/ui/users?user=root")
    assert asked.status == 404
