"""Text that somebody wrote is shown as text: every field that people can write, in a real browser."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from tests.shells.api.conftest import World
from tests.shells.api.support.day import PROVIDER, TOMORROW
from tests.shells.api.support.job_stage import job
from tests.shells.dashboard.support.looking import Looking

MINE = "/ui/monitors/root"
HOSTILE = "\"'><img src=x onerror=document.title='taken'><script>document.title='taken'</script>"
IN_URL = "%22%27%3E%3Cimg%20src=x%20onerror=document.title=1%3E"


def write_everywhere(world: World) -> dict[str, list[str]]:
    """Hostile text in every field that takes it; returns the pages that show it, and what must be seen there."""
    root = world.add("root", "admin")

    def done(method: str, path: str, body: Any) -> Any:
        reply = root(method, path, body)
        assert reply.status in (200, 201, 202, 204), (path, reply.body)
        return reply.json if reply.body else None

    check = {"kind": "outgoing", HOSTILE: HOSTILE, "text": HOSTILE}
    done("PUT", "/v1/users/me/monitors/own", {"check": check, "every": "1h", "tags": [HOSTILE[:60]]})
    web = {"kind": "http", "url": f"https://example.org/?{IN_URL}", "expect": {"body_contains": HOSTILE}}
    done("PUT", "/v1/users/me/monitors/web", {"check": web, "every": "1h", "paused": True})
    while not world.fire():
        pass
    (item,) = done("POST", "/v1/outgoing/claim", {})["items"]
    detail = {"reason": HOSTILE, HOSTILE: HOSTILE}
    run = quote(item["run"], safe="")
    done("POST", f"/v1/runs/{run}/outcome", {"lease": item["lease"], "status": "failed", "detail": detail})
    done("POST", "/v1/users/me/monitors/own/silence", {"for": "1h", "reason": HOSTILE[:60]})
    done("PUT", "/v1/providers/shop", PROVIDER | {"base_url": f"https://example.org/{IN_URL}"})
    done("PUT", "/v1/providers/mine", {"kind": "outgoing"})
    done("PUT", "/v1/batches/daily", {})
    record = {"id": "home", "provider": "mine", "endpoint": f"/{IN_URL}", "body": {HOSTILE: HOSTILE}}
    done("PUT", "/v1/batches/daily/records", {"items": [record]})
    done("POST", "/v1/batches/daily/plan", {"date": TOMORROW})
    done("POST", "/v1/users/me/tokens", {"label": HOSTILE[:100]})
    titled = done("POST", "/v1/jobs", job() | {"title": HOSTILE})["job"]
    done("PUT", "/v1/accounts/lab", {})
    key = {"key": "a-key-of-the-lab-0001", "label": HOSTILE[:90]}
    done("POST", "/v1/accounts/lab/keys?check=false", key)
    return {
        "/": [HOSTILE],
        "/ui/monitors": [HOSTILE, IN_URL],
        f"{MINE}/own": [HOSTILE, HOSTILE[:60]],
        f"{MINE}/web": [IN_URL],
        f"/ui/runs/{run}/why": [HOSTILE],
        "/ui/providers": [IN_URL],
        "/ui/providers?id=shop": [IN_URL],
        "/ui/channels": [HOSTILE[:60]],
        f"/ui/jobs/{titled}/results": [HOSTILE],
        f"/ui/batches/daily/{TOMORROW}": ["home"],
        "/ui/jobs": [HOSTILE],
        f"/ui/jobs/{titled}": [HOSTILE],
        "/ui/accounts": [HOSTILE[:90]],
        "/ui/users": [HOSTILE[:100]],
        f"/ui/users?user={quote(HOSTILE)}": [],
        f"{MINE}/{quote(HOSTILE, safe='')}": [],
        f"/ui/dead?provider={quote(HOSTILE)}": [],
        f"/ui/monitors?q={quote(HOSTILE[:60])}&tag={quote(HOSTILE[:60])}": [],
        f"/ui/batches/daily/{TOMORROW}?state=waiting&provider={quote(HOSTILE)}": [],
        f"/ui/batches/daily/{TOMORROW}?provider={quote(HOSTILE)}": [],
        f"/ui/sign-in?next={quote('/' + HOSTILE)}": [],
    }


def test_text_that_people_wrote_is_never_run_as_a_script(world: World, browser: Looking) -> None:
    pages = write_everywhere(world)
    browser.sign_in(f"http://127.0.0.1:{world.port}", world.tokens["root"])
    for path, words in pages.items():
        browser.open(path)
        shown = " ".join(browser.text("body").split())
        for text in words:
            # Reasons begin with a capital letter on pages; a quote has none.
            assert " ".join(text.split()) in shown, f"{path}: {shown}"
        assert "taken" not in browser.chrome.title.replace(HOSTILE, ""), path
        assert not browser.find("img"), path
        assert browser.run("return document.querySelectorAll('script:not([type=module])').length") == 0, path
    refused = [one for one in browser.complaints() if "Content Security Policy" in one]
    assert refused == []
