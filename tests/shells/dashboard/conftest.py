"""A real Chromium, driven as a person would. ``make browser`` installs it where it is missing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, ChromeOptions, ChromeService

from tests.shells.api.conftest import World, serving
from tests.shells.cli.support.program import Program
from tests.shells.dashboard.support.looking import Looking

QUIET = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1280,1600",
)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with serving(tmp_path) as running:
        yield running


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """One browser for the tests of a module."""
    driver, chromium = shutil.which("chromedriver"), shutil.which("chromium")
    if driver is None or chromium is None:
        pytest.skip("there is no Chromium here: `make browser` installs it")
    options = ChromeOptions()
    options.binary_location = chromium
    for flag in (*QUIET, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = Chrome(options=options, service=ChromeService(driver))
    try:
        yield chrome
    finally:
        chrome.quit()


@pytest.fixture
def browser(chrome: Chrome) -> Iterator[Looking]:
    """The browser with one empty tab, without what an earlier test has left in it."""
    looking = Looking(chrome)
    yield looking
    looking.forget()
