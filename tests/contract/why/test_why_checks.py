"""Why a monitor's run waits, and why a monitor does not fire, on both engines."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from paceline.core.daemons import Daemon
from paceline.core.ids import run_id
from paceline.core.instants import to_text
from paceline.core.monitors.definition import Monitor
from paceline.core.monitors.due import CatchUp
from paceline.core.monitors.values import CHECKS, PutMonitor
from paceline.core.users import UserEdit
from paceline.errors import NotFound
from paceline.ports import Store
from paceline.steps.monitors.define import get_monitor, put_monitor
from paceline.steps.monitors.tick import tick
from paceline.steps.upkeep.daemons import beat
from paceline.steps.why.runs import explain_run
from paceline.steps.why.view import WhyView
from paceline.steps.why.why_not import explain_monitor
from tests.contract.support.stage import LEASE_MS, MINUTE_MS, OUTGOING, T0_MS, settle, spec, user

NOW_MS = T0_MS + MINUTE_MS


@pytest.fixture
def staged(store: Store) -> Store:
    """User ann, and a daemon that has just written its row."""
    store.add_user(user("ann"))
    beat(store, Daemon("up-1", "up", "host", 7, "", T0_MS, NOW_MS, 600_000))
    return store


def make(store: Store, name: str = "home", **fields: object) -> Monitor:
    written = replace(spec(**fields), initial_delay="60s")  # type: ignore[arg-type]
    put_monitor(store, PutMonitor("ann", name, written), monitors_max=100, now_ms=T0_MS)
    return get_monitor(store, "ann", name)


def fire(store: Store, now_ms: int) -> None:
    tick(store, now_ms=now_ms, catch_up=CatchUp())


def name_of(monitor: Monitor, counter: int) -> str:
    return run_id("ann", monitor.id, generation=monitor.generation, counter=counter)


def why(store: Store, monitor: Monitor, counter: int = 0, *, now_ms: int = NOW_MS) -> WhyView:
    view = explain_run(store, name_of(monitor, counter), viewer="ann", now_ms=now_ms)
    assert view.chain
    assert all(link.text and link.change for link in view.chain)
    return view


def links(view: WhyView) -> list[str]:
    return [link.link for link in view.chain]


def test_next_firing_waits_for_its_due_time_and_its_eta_is_exact(staged: Store) -> None:
    monitor = make(staged)
    view = why(staged, monitor, now_ms=T0_MS)
    due = to_text(NOW_MS)
    assert (view.state, links(view), view.chain[0].until) == ("planned", ["due"], due)
    assert view.eta is not None
    assert (view.eta.from_, view.eta.to) == (due, due)
    assert explain_monitor(staged, monitor, now_ms=T0_MS) == view


def test_run_that_was_made_may_start_now(staged: Store) -> None:
    monitor = make(staged)
    fire(staged, NOW_MS)
    view = why(staged, monitor)
    assert (view.state, links(view)) == ("waiting", ["due", "place"])
    assert "nothing is in its way" in view.chain[-1].text
    assert view.eta is not None
    assert view.eta.to == to_text(NOW_MS)


def test_check_without_a_daemon_says_that_no_process_takes_it(store: Store) -> None:
    store.add_user(user("ann"))
    monitor = make(store)
    remote = store.traits.remote  # there functions may do the work, which write no row
    assert links(why(store, monitor)) == ["due", "due" if remote else "lease"]
    fire(store, NOW_MS)
    view = why(store, monitor)
    assert links(view) == ["due", "place" if remote else "lease"]
    assert (view.eta is None) == (not remote)


def test_outgoing_run_waits_for_a_checker_of_its_owner(staged: Store) -> None:
    monitor = make(staged, check=OUTGOING)
    fire(staged, NOW_MS)
    view = why(staged, monitor)
    assert links(view) == ["due", "lease"]
    assert "a checker of ann" in view.chain[-1].text
    assert view.eta is None


def test_why_of_a_leased_run_and_of_the_firing_behind_it(staged: Store) -> None:
    monitor = make(staged)
    fire(staged, NOW_MS)
    (claimed,) = staged.claim(CHECKS, now_ms=NOW_MS, runs_max=1, lease_ms=LEASE_MS)
    out = why(staged, monitor)
    assert (out.state, links(out), out.chain[-1].until) == ("out", ["due", "lease"], to_text(claimed.lease_until_ms))
    behind = why(staged, monitor, 1)
    assert (behind.state, links(behind)) == ("planned", ["due", "order"])
    assert "firings are skipped" in behind.chain[-1].text
    assert behind.eta is not None
    assert behind.eta.from_ == to_text(NOW_MS + MINUTE_MS)
    assert behind.eta.to == to_text(NOW_MS + 2 * MINUTE_MS)


def test_parked_run_names_the_run_before_it(staged: Store) -> None:
    monitor = make(staged, overlap="queue")
    fire(staged, NOW_MS)
    (claimed,) = staged.claim(CHECKS, now_ms=NOW_MS, runs_max=1, lease_ms=10 * LEASE_MS)
    later_ms = NOW_MS + MINUTE_MS
    fire(staged, later_ms)
    staged.claim(CHECKS, now_ms=later_ms, runs_max=1, lease_ms=LEASE_MS)
    view = why(staged, monitor, 1, now_ms=later_ms)
    assert (view.state, links(view)) == ("parked", ["due", "order"])
    assert name_of(monitor, 0) in view.chain[-1].text
    assert view.eta is not None
    assert view.eta.to == to_text(claimed.lease_until_ms)


def test_settled_run_says_when_it_started_and_how_it_ended(staged: Store) -> None:
    monitor = make(staged)
    fire(staged, NOW_MS)
    (claimed,) = staged.claim(CHECKS, now_ms=NOW_MS + 40, runs_max=1, lease_ms=LEASE_MS)
    settle(staged, [claimed], now_ms=NOW_MS + 40)
    view = why(staged, monitor, now_ms=NOW_MS + 50)
    assert (view.state, links(view), view.eta) == ("ok", ["due", "place", "target"], None)
    assert view.chain[-1].text == "It ended as ok: what it found was as expected."


def test_paused_monitor_and_disabled_owner_are_named(staged: Store) -> None:
    monitor = make(staged, paused=True)
    view = explain_monitor(staged, monitor, now_ms=NOW_MS)
    assert (links(view), view.eta) == (["pause"], None)
    assert view.chain[0].change == "its owner: `paceline monitor resume home`"
    staged.edit_user("ann", UserEdit(disabled=True))
    assert links(explain_monitor(staged, monitor, now_ms=NOW_MS)) == ["pause", "pause"]


def test_held_run_names_its_disabled_owner(staged: Store) -> None:
    monitor = make(staged)
    fire(staged, NOW_MS)
    staged.edit_user("ann", UserEdit(disabled=True))
    view = why(staged, monitor)
    assert (view.state, links(view)) == ("held", ["due", "pause"])
    assert view.chain[-1].change == "an admin: `paceline user enable ann`"


def test_runs_of_others_and_runs_to_come_are_not_found(staged: Store) -> None:
    monitor = make(staged)
    for run, viewer in ((name_of(monitor, 0), "bob"), (name_of(monitor, 1), "ann"), ("ann/home#999@0", "ann")):
        with pytest.raises(NotFound):
            explain_run(staged, run, viewer=viewer, now_ms=T0_MS)
