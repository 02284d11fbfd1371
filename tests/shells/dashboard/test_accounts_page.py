"""The page of accounts: what is left over the pool, how long it lasts, and who cannot send."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.jobs.accounts import quarantine_key
from paceline.shells.dashboard.pictures import forecast_chart
from paceline.shells.dashboard.views.accounts import FORECAST_DAYS_MAX, meter_total, pool_forecast
from tests.shells.api.conftest import World
from tests.shells.dashboard.support.reading import text_of, view_of

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1_000)


def account(
    *, left: int | None = 1_000, spent: int = 0, held: int = 0, foreign: int = 0, state: str = "ready"
) -> dict[str, Any]:
    meter = {"spent": spent, "held": held, "foreign": foreign, "limit": 10_000, "left": 10_000 - spent - held - foreign}
    balance = None if left is None else {"left": left}
    return {"enabled": True, "state": state, "usage": {"daily_credits": meter, "balance": balance}}


def test_pool_lasts_as_long_as_its_balance_at_the_use_of_a_day() -> None:
    found = pool_forecast([account(left=600, spent=100), account(left=400, foreign=100)], NOW_MS)
    assert found is not None
    assert (found["left"], found["used"]) == (1_000, 200)
    assert found["ends"] == found["latest"] == "2026-11-23T12:00:00.000Z"


def test_forecast_says_how_sure_it_is_where_something_is_held() -> None:
    found = pool_forecast([account(left=1_000, spent=100, held=100)], NOW_MS)
    assert found is not None
    assert (found["ends"], found["latest"]) == ("2026-11-23T12:00:00.000Z", "2026-11-28T12:00:00.000Z")


def test_forecast_is_rounded_to_ten_minutes_so_that_two_reads_are_the_same() -> None:
    looks = [pool_forecast([account(left=777, spent=100)], NOW_MS + later) for later in (0, 1_000, 2_000)]
    assert len({look["ends"] for look in looks if look is not None}) == 1


def test_pool_that_is_not_used_or_lasts_for_many_years_has_no_end() -> None:
    unused = pool_forecast([account()], NOW_MS)
    assert unused is not None
    assert (unused["ends"], unused["used"]) == (None, 0)
    for left, ends in ((100 * FORECAST_DAYS_MAX, False), (100 * FORECAST_DAYS_MAX - 1, True)):
        found = pool_forecast([account(left=left, spent=100)], NOW_MS)
        assert found is not None
        assert (found["ends"] is not None) is ends
    assert pool_forecast([account(left=None)], NOW_MS) is None


def test_accounts_that_cannot_send_do_not_count_as_remaining_credits() -> None:
    accounts = [account(spent=10, held=5, foreign=1), account(state="full"), account(state="quarantined")]
    assert meter_total(accounts, "daily_credits") == {
        "accounts": 2,
        "spent": 10,
        "held": 5,
        "foreign": 1,
        "limit": 20_000,
        "left": 19_984,
    }


@given(st.integers(0, 10**10), st.integers(0, 10**8), st.integers(0, 10**8))
def test_every_forecast_stays_inside_its_picture(left: int, slow: int, held: int) -> None:
    chart = forecast_chart(left, (slow, slow + held), NOW, height=100)
    for x, y in re.findall(r"([\d.-]+) ([\d.-]+)", chart.line + chart.band):
        assert 0 <= float(x) <= 100.01
        assert -0.1 <= float(y) <= 100.01
    assert chart.line.startswith("M0.00 ")
    assert chart.times[0].text == "18 Nov" or ":" in chart.times[0].text


def test_page_shows_meters_keys_and_the_account_that_has_no_key(world: World) -> None:
    root = world.add("root", "admin")
    assert "Name whose quota is spent" in text_of(root, "/ui/accounts")
    root("PUT", "/v1/accounts/lab", {"concurrent": 7})
    root("PUT", "/v1/accounts/home", {})
    root("POST", "/v1/accounts/lab/keys?check=false", {"key": "a-key-of-the-lab-0001", "label": "spare"})
    text = text_of(root, "/ui/accounts")
    assert "1 account of 2 cannot send now." in text
    assert "Free slots 7 of 7" in text
    assert "RIPE has not told" in text
    assert "spare" in text
    assert "a-key-of-the-lab" not in view_of(root, "/ui/accounts")
    [key] = root("GET", "/v1/accounts/lab").json["keys"]
    world.system.store.change_key("lab", key["id"], quarantine_key("RIPE says that it is wrong"))
    overview = text_of(root, "/")
    assert "1 account is quarantined." in overview
    assert re.search(r"lab Account .*RIPE says that it is wrong.* Nothing is sent through it", overview)
