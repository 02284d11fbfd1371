"""The pages of providers: state, breaker, rate, queue, order and latency; and one of them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from tests.shells.api.conftest import Client, World
from tests.shells.api.support.day import PROVIDER, end_all
from tests.shells.dashboard.support.reading import text_of, view_of


@pytest.fixture
def root(world: World) -> Client:
    """An admin with two providers, and a running day with calls for one of them."""
    root = world.add("root", "admin")
    root("PUT", "/v1/providers/shop", PROVIDER | {"rate": "5/1s", "max_in_flight": 4, "order": "priority"})
    root("PUT", "/v1/providers/tax", PROVIDER)
    began = datetime.now(UTC) - timedelta(hours=1)
    root("PUT", "/v1/batches/daily", {"start": f"{began:%H:%M}"})
    items = [{"id": f"r{number}", "provider": "shop"} for number in range(12)]
    root("PUT", "/v1/batches/daily/records", {"items": items})
    assert root("POST", "/v1/batches/daily/plan", {"date": str(began.date())}).json["enqueued"] == 12
    return root


def test_provider_list_shows_rate_places_queue_order_and_latency(world: World, root: Client) -> None:
    text = text_of(root, "/ui/providers")
    assert "All providers are open. 12 calls wait for their time or turn." in text
    assert re.search(
        r"shop https://shop.example.org/api Open 5/1s 0 of 4 12 next .+ priority \S Look at shop Pause", text
    )
    body = view_of(root, "/ui/providers")
    assert body.count('<rect class="f-track" x="') == 4  # one block for each place of the shop; a thousand are a bar
    end_all(world, "done", provider="shop", reason="")
    root("POST", "/v1/providers/tax/resume")
    assert re.search(r"priority 5 ms Look at shop", text_of(root, "/ui/providers"))


def test_paused_provider_comes_first_and_is_counted_apart(root: Client) -> None:
    root("POST", "/v1/providers/tax/pause")
    text = text_of(root, "/ui/providers")
    assert "1 provider is paused. The other 1 is open." in text
    assert text.index("tax https") < text.index("shop https")
    assert "Why tax is paused" in text


def test_provider_page_lists_the_next_calls_by_due_time_each_with_its_why(root: Client) -> None:
    body, text = view_of(root, "/ui/providers?id=shop"), text_of(root, "/ui/providers?id=shop")
    dues = re.findall(r'<td role="cell" class="nw" data-l="Due"><time datetime="([^"]+)"', body)
    assert len(dues) == 10
    assert dues == sorted(dues)
    assert body.count('/why">Why<') == 10
    assert "12 wait" in text
    assert "by the priority of the records" in text
    assert "after 10 bad calls in a row for 1m" in text
    assert "No latency is known yet." in text


def test_provider_page_draws_the_latency_of_done_calls(world: World, root: Client) -> None:
    end_all(world, "done", provider="shop", reason="")
    text = text_of(root, "/ui/providers?id=shop")
    assert "No call of a running day waits for it." in text
    assert "Latency, median" in text


def test_page_of_a_paused_provider_says_why_nothing_starts(root: Client) -> None:
    root("POST", "/v1/providers/shop/pause")
    text = text_of(root, "/ui/providers?id=shop")
    assert "Paused by its operator. Nothing starts until somebody resumes it." in text
    assert "Resume" in text
    assert root("GET", "/ui/providers?id=nowhere").status == 404
