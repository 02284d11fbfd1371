"""How a test looks at a page and what it presses."""

from __future__ import annotations

from importlib import resources
from typing import Any

from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from tests.shells.cli.support.program import eventually

AXE = (resources.files("axe_core_python") / "axe.min.js").read_text()
WAIT_S = 20
WALK_MAX = 400
BEGIN_WALK = """
    const pressable = "a[href], button, input, select, textarea, [tabindex='0']";
    window.wanted = [...document.querySelectorAll(pressable)].filter((one) => !one.disabled && one.type !== "hidden"
        && one.checkVisibility({visibilityProperty: true}) && one.tabIndex >= 0);
    window.walked = []; window.wrong = [];
    document.activeElement.blur(); getSelection().removeAllRanges(); scrollTo(0, 0)"""
STEP_OF_WALK = """
    const one = document.activeElement, before = window.walked.at(-1);
    if (one === document.body || window.walked.includes(one)) return true;
    const name = one.outerHTML.slice(0, 120), style = getComputedStyle(one);
    if (before?.isConnected && before.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_PRECEDING)
        window.wrong.push("out of order: " + name);
    if (style.outlineStyle === "none" || style.outlineWidth === "0px") window.wrong.push("without a ring: " + name);
    window.walked.push(one);
    return false"""
END_OF_WALK = """
    const left = window.wanted.filter((one) => one.isConnected && !one.disabled && !window.walked.includes(one));
    if (window.walked.length < 10) window.wrong.push("walked over " + window.walked.length + " only");
    return window.wrong.concat(left.map((one) => "not reached: " + one.outerHTML.slice(0, 120)))"""


class Looking:
    """One browser at one address."""

    def __init__(self, chrome: Chrome) -> None:
        self.chrome = chrome
        self.base = ""

    def sign_in(self, base: str, token: str, path: str = "/") -> None:
        """Opens the address that ``up --demo`` prints, and waits for the page."""
        self.base = base
        self.chrome.get(f"{base}{path}#token={token}")
        self.shows("nav", "Overview")
        self.until(lambda: self.run("return document.readyState") == "complete")

    def open(self, path: str) -> None:
        self.chrome.get(f"{self.base}{path}")

    def find(self, selector: str) -> list[WebElement]:
        return self.chrome.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str = "#view") -> str:
        """The text of a part of the page, read in one go: the page may change between two looks."""
        script = "return [...document.querySelectorAll(arguments[0])].map((one) => one.innerText).join('\\n')"
        found: str = self.chrome.execute_script(script, selector)
        return found

    def run(self, script: str, *values: Any) -> Any:
        return self.chrome.execute_script(script, *values)

    def shows(self, selector: str, *words: str) -> str:
        """Waits until the part of the page has all these words; returns its text."""

        def asked() -> str | None:
            text = self.text(selector)
            return text if all(word in text for word in words) else None

        try:
            found: str = self.until(asked)
        except AssertionError:
            seen = f"{self.text('body')}\n{self.complaints()}"
            raise AssertionError(f"{words} is not on {self.chrome.current_url}: {seen}") from None
        return found

    def until(self, question: Any) -> Any:
        return eventually(question, within_s=WAIT_S)

    def press(self, name: str, within: str = "body") -> None:
        """Presses the one visible button or link of this name, in one script: the page may be drawn meanwhile."""
        script = """const found = [...document.querySelector(arguments[0]).querySelectorAll("button, a")]
            .filter((one) => one.innerText.trim() === arguments[1] && one.checkVisibility() && !one.disabled);
            if (found.length === 1) found[0].click();
            return found.length"""
        self.until(lambda: self.run(script, within, name) == 1)

    def walk_with_tab(self) -> list[str]:
        """Presses Tab until the focus has been everywhere. Returns what is wrong: unreached, out of order, unseen."""
        self.run(BEGIN_WALK)
        for _ in range(WALK_MAX):
            for kind in ("rawKeyDown", "keyUp"):
                key = {"type": kind, "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}
                self.chrome.execute_cdp_cmd("Input.dispatchKeyEvent", key)
            if self.run(STEP_OF_WALK):
                break
        wrong: list[str] = self.run(END_OF_WALK)
        return wrong

    def media(self, *, width: int, dark: bool, height: int = 900) -> None:
        self.chrome.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def violations(self) -> list[str]:
        """What axe-core has against the page."""
        self.chrome.execute_cdp_cmd("Runtime.evaluate", {"expression": AXE})
        found = self.chrome.execute_async_script(
            "const done = arguments[arguments.length - 1]; axe.run().then((seen) => done(seen.violations))"
        )
        return [f"{one['id']}: {[node['html'] for node in one['nodes']][:3]}" for one in found]

    def scrolls_sideways(self) -> bool:
        wider: bool = self.run("return document.documentElement.scrollWidth > document.documentElement.clientWidth")
        return wider

    def complaints(self) -> list[str]:
        """What the browser has against the page: errors of the script, breaches of its policy."""
        return [entry["message"] for entry in self.chrome.get_log("browser") if entry["level"] == "SEVERE"]  # type: ignore[no-untyped-call]  # selenium types it so

    def forget(self) -> None:
        """Closes every tab but one, and forgets cookies, choices and complaints."""
        first, *others = self.chrome.window_handles
        for other in others:
            self.chrome.switch_to.window(other)
            self.chrome.close()
        self.chrome.switch_to.window(first)
        self.chrome.execute_cdp_cmd("Network.clearBrowserCookies", {})
        if self.base:
            self.chrome.execute_cdp_cmd(
                "Storage.clearDataForOrigin", {"origin": self.base, "storageTypes": "local_storage"}
            )
        self.chrome.get("about:blank")
        self.complaints()
