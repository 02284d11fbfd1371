"""The dashboard in a real browser against a real daemon."""

from __future__ import annotations

from typing import Any

from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from tests.shells.cli.support.program import Program, eventually

HOSTILE = "<img src=x onerror=document.title='taken'>"


def text_of(browser: Chrome, selector: str) -> str:
    return browser.find_element(By.CSS_SELECTOR, selector).text


def shows(browser: Chrome, selector: str, *words: str) -> Any:
    """Waits until the part of the page has all these words; returns its text."""

    def asked() -> str | None:
        text = text_of(browser, selector)
        return text if all(word in text for word in words) else None

    return eventually(asked, within_s=20)


def press(browser: Chrome, selector: str, name: str) -> None:
    """Finds and presses the button in one script: the page draws its lists again every two seconds."""
    script = """for (const one of document.querySelectorAll(arguments[0] + " button"))
                    if (one.textContent === arguments[1]) one.click()"""
    browser.execute_script(script, selector, name)


def complaints(browser: Chrome) -> list[str]:
    """What the browser has against the page: errors of the script, breaches of its policy."""
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]  # type: ignore[no-untyped-call]  # selenium types it so


def test_a_newcomer_sees_all_of_the_demo_move(program: Program, browser: Chrome) -> None:
    with program.running("up", "--demo", "--port", "0") as up:
        browser.get(f"{up.said['url']}/#token={up.said['token']}")
        shows(browser, "#monitors", "web", "flapping", "ok", "failing")
        shows(browser, "#batches", "demo", "done", "largest gap")
        shows(browser, "#jobs", "Your credits today", "credits")
        shows(browser, "#accounts", "ready", "of 100")
        shows(browser, "#pulse", "ready")
        assert up.said["token"] not in browser.current_url
        before = text_of(browser, "#monitors")
        eventually(lambda: text_of(browser, "#monitors") != before)
        eventually(lambda: "success" in text_of(browser, "#jobs"), within_s=45)
        press(browser, "#monitors", "web")
        eventually(lambda: browser.find_elements(By.CSS_SELECTOR, "#monitors td[colspan] svg rect.good"))
        assert complaints(browser) == []


def test_text_that_users_wrote_is_never_run_as_a_script(program: Program, browser: Chrome) -> None:
    token = program.json("user", "add", "eve", "--daily-credits", "1000")["token"]
    job = f"""{{"title": "{HOSTILE}", "measurements": [{{"definitions": [{{"type": "ping", "af": 4,
        "target": "192.0.2.1", "description": "x"}}], "probes": [{{"requested": 1, "type": "area", "value": "WW"}}],
        "is_oneoff": true}}]}}"""
    program.ok("job", "submit", "-", "--user", "eve", stdin=job)
    with program.running("up", "--port", "0") as up:
        browser.get(f"{up.said['url']}/#token={token}")
        shows(browser, "#jobs", HOSTILE)
        assert browser.title == "Paceline"
        assert complaints(browser) == []


def test_dashboard_shows_a_user_only_their_own_resources(program: Program, browser: Chrome) -> None:
    program.ok("user", "add", "ann")
    token = program.json("user", "add", "ben")["token"]
    program.ok("monitor", "set", "secret-of-ann", "--user", "ann", "--url", "http://192.0.2.1/", "--every", "1h")
    program.ok("monitor", "set", "own", "--user", "ben", "--url", "http://192.0.2.1/", "--every", "1h")
    with program.running("up", "--port", "0") as up:
        browser.get(f"{up.said['url']}/#token={token}")
        assert "secret-of-ann" not in shows(browser, "#monitors", "own")
        for part in ("#figures", "#batches", "#accounts"):
            assert not browser.find_element(By.CSS_SELECTOR, part).is_displayed()


def test_a_picked_monitor_shows_what_it_does_when_runs_overlap_and_what_it_skipped(
    program: Program, browser: Chrome
) -> None:
    token = program.json("user", "add", "ann")["token"]
    for name, overlap in (("patient", "queue"), ("hasty", "skip")):
        body = f'{{"check": {{"kind": "outgoing"}}, "every": "1s", "overlap": "{overlap}"}}'
        program.ok("monitor", "set", name, "--user", "ann", "--file", "-", stdin=body)
    with program.running("up", "--port", "0") as up:
        browser.get(f"{up.said['url']}/#token={token}")
        shows(browser, "#monitors", "patient", "hasty")
        press(browser, "#monitors", "patient")
        assert "has not ended" not in shows(browser, "#monitors", "overlap: queue", "missed: ")
        press(browser, "#monitors", "hasty")
        shows(browser, "#monitors", "overlap: skip", "made no run", "has not ended")
        assert complaints(browser) == []


def test_wrong_token_is_reported_and_a_valid_token_is_forgotten_on_request(program: Program, browser: Chrome) -> None:
    token = program.json("user", "add", "ann")["token"]
    with program.running("up", "--port", "0") as up:
        browser.get(up.said["url"])
        for entered, answer in (("pl_no_such", "#trouble"), (token, "#monitors")):
            browser.find_element(By.ID, "token").send_keys(entered)
            browser.find_element(By.CSS_SELECTOR, "#enter button").click()
            eventually(lambda part=answer: browser.find_element(By.CSS_SELECTOR, part).is_displayed())
        browser.find_element(By.ID, "leave").click()
        assert not browser.find_element(By.ID, "monitors").is_displayed()
        kept = "return JSON.stringify([sessionStorage, localStorage, document.cookie])"
        assert token not in browser.execute_script(kept)


def test_the_seventh_tab_is_as_alive_as_the_first(program: Program, browser: Chrome) -> None:
    """A browser opens six connections to a host: a page that held one open would starve the seventh."""
    token = program.json("user", "add", "ann")["token"]
    with program.running("up", "--port", "0") as up:
        for tab in range(8):
            if tab:
                browser.switch_to.new_window("tab")
            browser.get(f"{up.said['url']}/#token={token}")
            shows(browser, "#monitors", "No monitor yet")
