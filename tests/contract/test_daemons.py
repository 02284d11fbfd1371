"""Processes say that they work on the store, and leases that have ended are not out."""

from __future__ import annotations

import msgspec

from paceline.core.daemons import Daemon, Leases, is_gone
from paceline.ports import Store
from paceline.steps.upkeep.daemons import beat, forget_daemon, forget_daemons, list_daemons
from tests.contract.support.stage import ALL_OUTGOING, GET, LEASE_MS, OUTGOING, T0_MS, armed, claim, make_runs

FIRST = Daemon("d1", "up", "host-a", 11, "https://127.0.0.1:8443", T0_MS, T0_MS + 10, 5_000)
SECOND = Daemon("d2", "worker", "host-b", 12, "", T0_MS + 1, T0_MS + 20, 5_000)


def test_daemons_are_listed_as_they_were_seen_last(store: Store) -> None:
    assert list_daemons(store, limit=9) == []
    for daemon in (FIRST, SECOND):
        beat(store, daemon)
    assert list_daemons(store, limit=9) == [SECOND, FIRST]
    again = msgspec.structs.replace(FIRST, beat_ms=T0_MS + 30)
    beat(store, again)
    assert list_daemons(store, limit=9) == [again, SECOND]
    assert list_daemons(store, limit=1) == [again]
    assert store.verify() == []


def test_daemons_that_have_ended_are_forgotten(store: Store) -> None:
    for daemon in (FIRST, SECOND):
        beat(store, daemon)
    forget_daemon(store, "d1")
    forget_daemon(store, "d1")
    assert list_daemons(store, limit=9) == [SECOND]
    assert forget_daemons(store, before_ms=SECOND.beat_ms) == 0
    assert forget_daemons(store, before_ms=SECOND.beat_ms + 1) == 1
    assert list_daemons(store, limit=9) == []


def test_a_daemon_is_gone_when_it_has_missed_some_beats() -> None:
    assert not is_gone(FIRST, now_ms=FIRST.beat_ms + 20_000)
    assert is_gone(FIRST, now_ms=FIRST.beat_ms + 20_001)
    assert not is_gone(FIRST, now_ms=T0_MS - 60_000), "its clock is ahead of ours"


def test_leases_that_have_ended_are_not_out(store: Store) -> None:
    assert store.leases(now_ms=T0_MS) == Leases(0, None)
    make_runs(store, armed(store, "mine", check=OUTGOING))
    make_runs(store, armed(store, "web", check=GET))
    assert store.leases(now_ms=T0_MS) == Leases(0, None)
    assert len(claim(store, ALL_OUTGOING, now_ms=T0_MS)) == 1
    assert len(claim(store, now_ms=T0_MS + 5)) == 1
    assert store.leases(now_ms=T0_MS + 5) == Leases(2, T0_MS + 5 + LEASE_MS)
    assert store.leases(now_ms=T0_MS + LEASE_MS) == Leases(1, T0_MS + 5 + LEASE_MS)
    assert store.leases(now_ms=T0_MS + 5 + LEASE_MS) == Leases(0, None)
