"""The reference pages and the code say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paceline import errors
from paceline.shells.api.http import problems
from paceline.shells.api.http.problems import CODES
from paceline.shells.api.openapi.documentation import documentation_routes
from paceline.shells.api.routes import ROUTES
from paceline.shells.daemon.metrics import Metrics
from paceline.shells.dashboard.pages import dashboard_routes

REFERENCE = Path(__file__).resolve().parents[4] / "docs" / "reference"

NEVER_ANSWERED = {"wrong_setting", "wrong_secret_key"}
"""They stop the start."""


def rows(page: str) -> list[list[str]]:
    """The cells of every table row that begins with code."""
    lines = re.findall(r"^\| (`.*) \|$", (REFERENCE / page).read_text(), flags=re.MULTILINE)
    return [line.split(" | ") for line in lines]


def every_error() -> set[type[errors.PacelineError]]:
    """Those of the tree and of the API; other shells may have their own."""
    here = (errors.__name__, problems.__name__)
    found, left = set(), errors.PacelineError.__subclasses__()
    while left:
        kind = left.pop()
        found.add(kind)
        left += kind.__subclasses__()
    return {kind for kind in found if kind.__module__ in here}


def test_every_route_is_in_the_reference_and_no_other() -> None:
    routes = {f"{route.method} {route.path}" for route in (*ROUTES, *documentation_routes(ROUTES), *dashboard_routes())}
    listed = {cells[0].strip("`") for cells in rows("api.md")}
    assert {name for name in listed if re.match(r"[A-Z]+ /", name)} == routes


def test_the_reference_says_which_routes_are_for_admins_and_which_are_open() -> None:
    roles = {
        f"{route.method} {route.path}": route.access
        for route in (*ROUTES, *documentation_routes(ROUTES), *dashboard_routes())
    }
    told = {cells[0].strip("`"): cells[1].strip() for cells in rows("api.md") if len(cells) == 3}
    assert {name: role for name, role in told.items() if (role or "user") != roles[name]} == {}
    assert {name for name, role in roles.items() if role != "user"} <= set(told)


def test_every_error_code_is_in_the_reference_with_its_status() -> None:
    every = {error.code: error.status for error in every_error()}
    listed = {cells[0].strip("`"): cells[1] for cells in rows("errors.md")}
    assert set(listed) == set(every)
    for code in NEVER_ANSWERED:
        assert listed.pop(code) == "–"  # noqa: RUF001  as the page has it
    assert {code: int(status) for code, status in listed.items()} == {code: every[code] for code in listed}


def test_every_code_that_can_be_answered_is_known_to_the_api() -> None:
    assert set(CODES) == {error.code for error in every_error()} - NEVER_ANSWERED


def test_every_metric_is_in_the_reference_with_its_kind() -> None:
    kinds = {
        f"{family.name}_total" if family.type == "counter" else family.name: family.type
        for family in Metrics().registry.collect()
    }
    listed = {cells[0].strip("`"): cells[1] for cells in rows("metrics.md")}
    assert {name: kind for name, kind in listed.items() if name.startswith("paceline_")} == kinds


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_is_described(route: object) -> None:
    summary = getattr(route, "summary", "")
    assert summary.endswith(".")
    assert len(summary) > 10
