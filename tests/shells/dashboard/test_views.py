"""Every view of the demo in a real browser: at two widths, light and dark, judged by axe-core."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

import pytest

from tests.shells.api.conftest import Client
from tests.shells.cli.support.program import Program, Running, eventually
from tests.shells.dashboard.support.looking import Looking

MEDIA = {
    "wide, light": (1280, False),
    "wide, dark": (1280, True),
    "narrow, light": (390, False),
    "narrow, dark": (390, True),
}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Program(tmp_path_factory.mktemp("demo")).running("up", "--demo", "--port", "0") as up:
        yield up


def newest_run(demo: Running, monitor: str) -> str:
    """The id of the monitor's newest run that has ended."""
    client = Client(urlsplit(demo.said["url"]).port or 0, demo.said["token"])
    runs = client("GET", f"/v1/users/me/monitors/{monitor}/runs?limit=5").json["items"]
    return next(str(run["run"]) for run in runs if run["outcome"])


def next_firing(demo: Running, monitor: str) -> str:
    """The id of the run that the monitor makes next."""
    client = Client(urlsplit(demo.said["url"]).port or 0, demo.said["token"])
    schedule = client("GET", f"/v1/users/me/monitors/{monitor}").json["schedule"]
    return f"{schedule['key']}#{schedule['generation']}@{schedule['counter']}"


def last_record(demo: Running) -> str:
    """The id of one of today's runs of the demo's batch."""
    client = Client(urlsplit(demo.said["url"]).port or 0, demo.said["token"])
    runs = client("GET", f"/v1/batches/demo/days/{datetime.now(UTC):%Y-%m-%d}/runs?limit=100").json["items"]
    return str(max(runs, key=lambda run: run["due"])["run"])


def views(demo: Running) -> dict[str, tuple[str, ...]]:
    """Addresses, and words that must be seen there."""
    return {
        "/": (
            "Next 24 hours",
            "can start in a minute",
            "Needs attention",
            "broken",
            "Status 503, expected 2xx",
            "Credits left",
            "Balance at RIPE",
            "Dead letters",
        ),
        "/ui/monitors": ("web", "flapping", "by-hand", "Waiting for a checker", "Failing", "30 days", "Why"),
        "/ui/monitors/demo/broken": (
            "Failing",
            "Status 503, expected 2xx",
            "in a row",
            "90 days",
            "Incidents",
            "Next runs",
            "Definition",
            "Runs",
        ),
        "/ui/providers": ("steady", "moody", "Open", "Latency"),
        "/ui/providers?id=steady": ("Latency, ms", "Next in order", "Limits", "bad calls in a row", "Running days"),
        "/ui/batches": ("demo", "Running day", "of 300 done", "Plan today"),
        "/ui/monitors/demo/web?range=30d": ("Latency, ms", "Median of the day", "30 days"),
        f"/ui/batches/demo/{datetime.now(UTC):%Y-%m-%d}": (
            "The plan of the day",
            "steady",
            "record-0",
            "Largest gap",
            "Why",
        ),
        "/ui/dead": ("gave up", "Redrive…", "Status 422"),
        "/ui/jobs": ("a demo of every type", "credits left today"),
        f"/ui/jobs/{demo.said['job']}": ("Progress", "Cost", "Measurements", "demo-1", "half of them within"),
        f"/ui/jobs/{demo.said['job']}/results": ("latency in ms", "ping 192.0.2.1", "p50"),
        "/ui/accounts": ("demo-1", "demo key 1", "left of 100", "Balance, all accounts", "Free slots"),
        "/ui/channels": ("Channels", "nobody is told", "Alerts"),
        "/ui/users": ("Tokens of demo", "made by up --demo"),
        f"/ui/runs/{quote(newest_run(demo, 'broken'), safe='')}/why": (
            "broken ended: status 503",
            "From due to end",
            "It ended as failed",
            "Attempt",
        ),
        f"/ui/runs/{quote(next_firing(demo, 'each-minute'), safe='')}/why": ("each-minute", "Its time"),
        f"/ui/runs/{quote(demo.said['job'] + '/0', safe='')}/why": ("Measurement 0", "Budget", "credits were reserved"),
        f"/ui/runs/{quote(last_record(demo), safe='')}/why": ("The plan of demo", "Record", "Change"),
    }


def test_every_view_shows_its_things_and_axe_finds_nothing(demo: Running, browser: Looking) -> None:
    browser.sign_in(demo.said["url"], demo.said["token"])
    assert demo.said["token"] not in browser.chrome.current_url
    browser.shows("#view", "Dead letters")
    for name, (width, dark) in MEDIA.items():
        browser.media(width=width, dark=dark)
        for path, words in views(demo).items():
            browser.open(path)
            browser.shows("#view", *words)
            assert browser.violations() == [], f"{path}, {name}"
            assert not browser.scrolls_sideways(), f"{path}, {name}"
    assert browser.complaints() == []


def test_tab_reaches_everything_of_every_view_in_order_and_with_a_ring(demo: Running, browser: Looking) -> None:
    browser.media(width=1280, dark=False)
    browser.sign_in(demo.said["url"], demo.said["token"])
    for path, words in views(demo).items():
        browser.open(path)
        browser.shows("#view", *words)
        assert browser.walk_with_tab() == [], path


def test_newcomer_sees_all_of_the_demo_move(demo: Running, browser: Looking) -> None:
    browser.sign_in(demo.said["url"], demo.said["token"], "/ui/monitors/demo/web")
    browser.shows("#view", "Good", "Latency, ms")
    before = browser.text("tbody")
    browser.until(lambda: browser.text("tbody") != before)
    browser.open(f"/ui/jobs/{demo.said['job']}")
    eventually(lambda: "Success" in browser.text("h1"), within_s=60)
    assert browser.complaints() == []


def test_pause_changes_the_row_offers_undo_and_keeps_the_rest(demo: Running, browser: Looking) -> None:
    browser.sign_in(demo.said["url"], demo.said["token"], "/ui/monitors")
    browser.shows("tbody", "each-minute")
    row = "tr[data-key='demo/each-minute']"
    browser.run("window.kept = document.querySelector(arguments[0])", row)
    browser.run("document.querySelector(arguments[0] + ' [data-do$=pause]').click()", row)
    browser.shows(row, "Paused", "Resume")
    browser.shows("#toast", "Paused each-minute")
    assert browser.run("return window.kept === document.querySelector(arguments[0])", row)
    browser.press("Undo", "#toast")
    browser.shows(row, "Pause")
    browser.until(lambda: "Resume" not in browser.text(row))


def test_check_now_and_silence_of_one_monitor(demo: Running, browser: Looking) -> None:
    browser.sign_in(demo.said["url"], demo.said["token"], "/ui/monitors/demo/each-minute")
    browser.press("Run now")
    browser.shows("#toast", "Checks each-minute now")
    browser.press("Silence…")
    browser.find("dialog[open] [name=reason]")[0].send_keys("moves to the new host")
    assert browser.violations() == []
    browser.press("Silence", "dialog[open]")
    browser.shows("#view", "Silenced", "moves to the new host")
    browser.press("End silence")
    browser.until(lambda: "Silenced" not in browser.text("#view"))
    browser.press("Edit…")
    browser.run("document.querySelector('dialog[open] [name=cron]').value = 'every now and then'")
    browser.press("Save", "dialog[open]")
    browser.shows("dialog[open] [role=alert]", "/cron")
    browser.run("document.querySelector('dialog[open] [name=cron]').value = '*/2 * * * *'")
    browser.press("Save", "dialog[open]")
    browser.shows("#view", "*/2 * * * *", "revision")


def test_dead_letter_is_redriven_after_a_dialog_that_the_keyboard_alone_can_use(
    demo: Running, browser: Looking
) -> None:
    browser.sign_in(demo.said["url"], demo.said["token"], "/ui/dead")
    browser.shows("tbody", "record-")  # which of the demo's dead letters is first hangs on when the page is asked for
    ask = "[data-ask='ask-redrive-1']"
    browser.run("document.querySelector(arguments[0]).focus()", ask)
    browser.run("document.activeElement.click()")
    assert browser.text("dialog[open] h2").startswith("Redrive record-")
    assert browser.run("return document.activeElement.innerText") == "Cancel"
    assert browser.violations() == []
    browser.find("dialog[open]")[0].send_keys("\ue00c")  # Escape
    browser.until(lambda: not browser.find("dialog[open]"))
    assert browser.run("return document.activeElement === document.querySelector(arguments[0])", ask)
    browser.run("document.activeElement.click()")
    browser.press("Redrive 1 call", "dialog[open]")
    browser.shows("#toast", "Done")


def test_theme_and_exact_times_are_chosen_and_kept(demo: Running, browser: Looking) -> None:
    browser.media(width=1280, dark=False)
    browser.sign_in(demo.said["url"], demo.said["token"], "/ui/monitors")
    browser.run("document.getElementById('theme').click(); document.getElementById('exact').click()")
    browser.open("/ui/jobs")
    assert browser.run("return document.documentElement.dataset.theme") == "dark"
    assert browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(13, 16, 21)"
    browser.shows("tbody time", f"{datetime.now(UTC):%b}", ":")
    assert browser.violations() == []


def test_price_of_a_job_is_shown_before_it_is_submitted(demo: Running, browser: Looking) -> None:
    browser.sign_in(demo.said["url"], demo.said["token"], "/ui/jobs")
    browser.press("New job…")
    for name, text in (("title", "from the form"), ("measurements.0.definitions.0.target", "192.0.2.9")):
        browser.find(f"dialog [name='{name}']")[0].send_keys(text)
    browser.find("dialog [name='measurements.0.definitions.0.description']")[0].send_keys("a try")
    browser.press("Price", "dialog[open]")
    browser.shows("dialog [data-answers]", "It costs at most", "Fits: true")
    assert browser.violations() == []
    browser.press("Submit", "dialog[open]")
    browser.shows("#view", "from the form", "192.0.2.9")
    browser.chrome.back()
    browser.shows("#view", "You have")
