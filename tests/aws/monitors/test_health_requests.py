"""What health costs on AWS: nothing for a good outcome of a monitor that does well, a few requests for the others."""

from __future__ import annotations

import pytest

from paceline.adapters.aws.client.connect import Clients
from paceline.adapters.aws.store import AwsStore
from paceline.core.monitors.outcome import Done
from tests.aws.support.monitor_stage import counted
from tests.contract.support.stage import HOUR_MS, MINUTE_MS, T0_MS, armed_all, claim, make_run_of_each, settle

pytestmark = [pytest.mark.aws, pytest.mark.usefixtures("silent_bell")]
BAD = Done(ok=False, reason="answered 500")


def test_requests_to_aws_for_outcomes_that_change_health_are_bounded(store: AwsStore, clients: Clients) -> None:
    monitors = armed_all(store, [f"m{number:02}" for number in range(27)])
    seen = []
    for number, outcome in enumerate((Done(ok=True), BAD, BAD, Done(ok=True), Done(ok=True))):
        now_ms = T0_MS + number * MINUTE_MS
        make_run_of_each(store, monitors, now_ms=now_ms)
        out = claim(store, now_ms=now_ms)
        with counted(clients) as requests:
            assert all(settle(store, out, outcome, now_ms=now_ms))
        seen.append(requests["TransactWriteItems"])
        assert requests["BatchGetItem"] <= 3
        assert requests.total() - requests["TransactWriteItems"] - requests["BatchGetItem"] <= 1  # the change counter
    # Good; turned failing; failing still; turned back after the first try found a record; good within the hour.
    assert seen[0] == 1
    assert seen[1] <= 7
    assert seen[2] <= 3
    assert seen[3] <= 8
    assert seen[4] <= 4
    now_ms = T0_MS + 2 * HOUR_MS
    for number, wanted in ((0, 4), (1, 1)):  # the first good outcome after the hour forgets it
        at_ms = now_ms + number * MINUTE_MS
        make_run_of_each(store, monitors, now_ms=at_ms)
        out = claim(store, now_ms=at_ms)
        with counted(clients) as requests:
            assert all(settle(store, out, now_ms=at_ms))
        assert requests["TransactWriteItems"] <= wanted
