"""Requests for alerts and webhooks that are due: they do not grow with the backlog."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing

import pytest

from paceline.adapters.aws.store import AwsStore
from tests.aws.support.jobs_bench import AwsBench
from tests.contract.support.stage import MINUTE_MS, T0_MS, user
from tests.contract.support.try_stage import AlertTelling, Telling, WebhookTelling

pytestmark = pytest.mark.aws
NOW_MS = T0_MS + MINUTE_MS


def requests_of_a_pass(kind: Callable[[AwsStore], Telling], backlog: int) -> list[Counter[str]]:
    """Requests of three passes: a place was freed, nothing was, and nothing was a second later."""
    with closing(AwsBench()) as bench:
        for name in ("ann", "bob"):
            bench.store.add_user(user(name))
        telling = kind(bench.store)
        telling.due("ann", backlog)
        telling.due("bob", 30)
        while telling.begin(now_ms=NOW_MS) or telling.more:
            pass
        telling.end("bob")
        return [
            Counter(bench.requests(lambda _, ms=now_ms: telling.begin(now_ms=ms)))  # type: ignore[misc]
            for now_ms in (NOW_MS + 1, NOW_MS + 2, NOW_MS + 1_002)
        ]


@pytest.mark.parametrize("kind", [AlertTelling, WebhookTelling])
def test_requests_of_a_claim_do_not_grow_with_the_backlog(kind: Callable[[AwsStore], Telling]) -> None:
    small, large = (requests_of_a_pass(kind, backlog) for backlog in (50, 150))
    assert large == small
    assert small[1:] == [{"Query": 1}, {"Query": 2}]
