"""The last admin stays one, whatever is changed about a user."""

from __future__ import annotations

import pytest

from paceline.core.admins import Standing, gives_up_admin, last_admin_words

ADMIN = Standing("admin", disabled=False)
DISABLED = Standing("admin", disabled=True)
USER = Standing("user", disabled=False)


@pytest.mark.parametrize("after", [DISABLED, USER, None])
def test_admin_is_given_up_when_an_active_admin_is_disabled_demoted_or_removed(after: Standing | None) -> None:
    assert gives_up_admin(ADMIN, after)


@pytest.mark.parametrize("before", [DISABLED, USER])
@pytest.mark.parametrize("after", [ADMIN, DISABLED, USER, None])
def test_change_of_a_disabled_or_plain_user_gives_up_no_admin(before: Standing, after: Standing | None) -> None:
    assert not gives_up_admin(before, after)


def test_admin_who_stays_an_active_admin_is_not_given_up() -> None:
    assert not gives_up_admin(ADMIN, ADMIN)


def test_refusal_to_change_the_last_admin_names_the_user_within_bounds() -> None:
    assert last_admin_words("ada").startswith("User 'ada' is the last admin.")
    assert len(last_admin_words("a" * 10_000)) < 300
