"""The pictures of the README and the guide, taken from the demo. ``make pictures`` writes them to docs/images."""

from __future__ import annotations

import os
from pathlib import Path

from tests.shells.cli.support.program import Program
from tests.shells.dashboard.support.looking import Looking

PICTURES = {
    "overview": ("/", 1280, False, "Dead letters"),
    "monitor": ("/ui/monitors/demo/web", 1280, False, "Latency, ms"),
    "monitors-dark": ("/ui/monitors", 1280, True, "flapping"),
    "overview-phone": ("/", 390, False, "Needs attention"),
}
HEIGHT_MAX = 1_400


def test_pictures_of_the_demo_are_taken(program: Program, browser: Looking, tmp_path: Path) -> None:
    folder = Path(os.environ.get("PACELINE_PICTURES", tmp_path))
    folder.mkdir(exist_ok=True)
    with program.running("up", "--demo", "--port", "0") as up:
        browser.sign_in(up.said["url"], up.said["token"])
        browser.shows("#view", "Dead letters", "Success")
        for name, (path, width, dark, words) in PICTURES.items():
            browser.media(width=width, dark=dark)
            browser.open(path)
            browser.shows("#view", words)
            height = browser.run("return document.documentElement.scrollHeight")
            browser.media(width=width, dark=dark, height=min(height, HEIGHT_MAX))
            browser.until(lambda: browser.run("return document.querySelector('time')?.textContent.includes('s')"))
            assert browser.chrome.save_screenshot(str(folder / f"{name}.png"))
            assert (folder / f"{name}.png").stat().st_size > 10_000
