"""What ``paceline top`` reads is there on every engine."""

from __future__ import annotations

from paceline.core.monitors.outcome import Done
from paceline.ports import Store
from paceline.shells.cli.text.form import Form
from paceline.shells.cli.top.facts import StoreFacts
from paceline.shells.cli.top.frame import draw
from paceline.steps.ahead.facts import PlaceSettings
from tests.contract.support.call_stage import make_batch, plan, provide
from tests.contract.support.job_stage import add_account, admitted
from tests.contract.support.stage import T0_MS, armed, claim, make_runs, settle

NOW_MS = T0_MS + 1_000


def test_top_shows_failing_monitors_with_reasons_queues_days_jobs_and_accounts(store: Store) -> None:
    make_runs(store, armed(store, "home"))
    settle(store, claim(store), Done(ok=False, reason="status 503"), now_ms=T0_MS)
    provide(store, "a")
    plan(store, make_batch(store), {"r0": T0_MS, "r1": T0_MS + 60_000})
    add_account(store, "lab")
    admitted(store)
    facts = StoreFacts(store, "the store", PlaceSettings(100, 10, 1), lambda: NOW_MS).read()
    assert [(one.monitor.id, one.monitor.health, one.reason) for one in facts.wrong] == [
        ("home", "failing", "status 503")
    ]
    assert [(one.id, one.standing.waiting) for one in facts.providers] == [("a", 2)]
    assert [(day.batch, day.runs) for day in facts.days] == [("daily", 2)]
    assert [account.id for account in facts.accounts] == ["lab"]
    assert len([job for job in facts.jobs if not job.finished]) == 1
    assert (facts.next_hour.calls, facts.next_hour.sends) == (1, 1)
    text = "\n".join("".join(one.text for one in line) for line in draw(facts, Form(80, NOW_MS), height=None))
    for word in ("No daemon runs on this store", "1 monitor failing", "status 503", "0/2", "lab"):
        assert word in text
