"""The page of a batch's day: its plan, its forecast, who is behind, and why each call waits."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from tests.shells.api.conftest import Client, World
from tests.shells.api.support.day import PROVIDER, TOMORROW, end_all
from tests.shells.dashboard.support.reading import text_of, view_of

RECORDS = 40


@pytest.fixture
def root(world: World) -> Client:
    root = world.add("root", "admin")
    for name in ("shop", "tax"):
        assert root("PUT", f"/v1/providers/{name}", PROVIDER).status == 201
    assert root("PUT", "/v1/batches/daily", {}).status == 201
    items = [{"id": f"r{number:02d}", "provider": ("shop", "tax")[number % 2]} for number in range(RECORDS)]
    assert root("PUT", "/v1/batches/daily/records", {"items": items}).status == 200
    assert root("POST", "/v1/batches/daily/plan", {"date": TOMORROW}).status == 200
    return root


def test_day_that_has_not_begun_says_when_it_ends_and_is_on_plan(root: Client) -> None:
    text = text_of(root, f"/ui/batches/daily/{TOMORROW}")
    assert f"{RECORDS} runs of {RECORDS} still to do." in text
    assert f"daily, {datetime.fromisoformat(TOMORROW):%A %-d %B}: from " in text
    assert re.search(r"It ends .+, on plan\.", text)
    assert "Plan for now 0 on plan" in text
    assert re.search(r"shop 0 of 20 done .+? ends .+? on plan", text)
    assert text.count("Its time has not come") == RECORDS


def test_every_call_of_the_day_is_one_click_from_why(root: Client) -> None:
    body = view_of(root, f"/ui/batches/daily/{TOMORROW}")
    assert body.count('/why">Why<') == RECORDS
    assert f'href="/ui/runs/daily%2Fr00%40{TOMORROW}/why">Why<' in body


def test_provider_and_batch_that_are_paused_have_no_forecast_and_say_so(root: Client) -> None:
    root("POST", "/v1/providers/tax/pause")
    text = text_of(root, f"/ui/batches/daily/{TOMORROW}")
    assert re.search(r"tax 0 of 20 done .*paused", text)
    assert "Its provider is paused" in text
    assert re.search(r"shop 0 of 20 done shop: [^.]+ ends ", text)
    root("POST", "/v1/batches/daily/pause")
    text = text_of(root, f"/ui/batches/daily/{TOMORROW}")
    assert "The batch is paused." in text
    assert "It ends" not in text
    assert "Resume" in text


def test_ended_day_lists_dead_letters_and_the_answer_of_each_call(world: World, root: Client) -> None:
    assert end_all(world, "failed", provider="shop", reason="status 400") == RECORDS / 2
    root("POST", "/v1/providers/shop/resume")
    assert end_all(world, "done", provider="tax", reason="") == RECORDS / 2
    text = text_of(root, f"/ui/batches/daily/{TOMORROW}")
    assert f"All {RECORDS} runs ended, 20 runs gave up." in text
    assert "It ends" not in text
    assert "all have ended" in text
    assert "shop 0 of 20 done, 20 gave up" in text
    assert re.search(r"tax 20 of 20 done .*complete", text)
    assert text.count("Answered 200 in 5 ms") == RECORDS / 2
    assert "Redrive 20…" in text
    filtered = text_of(root, f"/ui/batches/daily/{TOMORROW}?state=failed&provider=shop")
    assert filtered.count("Status 400") == RECORDS / 2


def test_days_beside_this_one_are_a_click_away(root: Client) -> None:
    after = str((datetime.fromisoformat(TOMORROW) + timedelta(days=1)).date())
    root("POST", "/v1/batches/daily/plan", {"date": after})
    link = '<a class="btn" href="/ui/batches/daily/{}" data-load="push">'
    shown = view_of(root, f"/ui/batches/daily/{TOMORROW}")
    assert link.format(after) in shown
    shown = view_of(root, f"/ui/batches/daily/{after}")
    assert link.format(TOMORROW) in shown
    assert shown.count('<a class="btn" href="/ui/batches/') == 1


def test_running_day_marks_now_in_its_plan_and_in_every_lane(root: Client) -> None:
    root("PUT", "/v1/batches/daily", {"start": f"{datetime.now(UTC) - timedelta(hours=2):%H:%M}"})
    today = str((datetime.now(UTC) - timedelta(hours=2)).date())
    assert root("POST", "/v1/batches/daily/plan", {"date": today}).status == 200
    body = view_of(root, f"/ui/batches/daily/{today}")
    assert body.count('class="now"') >= 1 + 2 + 1  # the picture, two lanes, the key
    assert ">now</text>" in body
    assert re.search(r"Plan for now</dt><dd>\d+</dd>", body)
