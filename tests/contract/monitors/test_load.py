"""How often a user's monitors may fire together: judged with each put, on both engines."""

from __future__ import annotations

from msgspec.structs import replace

from paceline.core.monitors.load import UNIT
from paceline.core.monitors.values import PutMonitor, PutResult, RemoveMonitor
from paceline.ports import Store
from tests.contract.support.stage import T0_MS, spec


def put_all(store: Store, *puts: PutMonitor, firings_max: int = 2) -> list[PutResult]:
    return store.put_monitors(puts, monitors_max=99, firings_max=firings_max, now_ms=T0_MS)


def every(name: str, interval: str, *, owner: str = "ann", paused: bool = False) -> PutMonitor:
    return PutMonitor(owner, name, replace(spec(every=interval), paused=paused))


def dispositions(results: list[PutResult]) -> list[str]:
    return [result.disposition for result in results]


def test_a_put_beyond_the_firings_a_second_of_its_owner_is_refused_with_the_figure(store: Store, other: Store) -> None:
    results = put_all(store, every("a", "1s"), every("b", "1s"), every("c", "1s"), every("c", "1s", owner="bob"))
    assert dispositions(results) == ["created", "created", "rate_reached", "created"]
    assert results[2].load == 3 * UNIT
    assert other.monitor("ann", "c") is None
    assert dispositions(put_all(other, every("d", "1h"))) == ["rate_reached"]
    assert dispositions(put_all(other, every("d", "1h"), firings_max=0)) == ["created"]


def test_edits_and_resumes_count_against_the_firing_limit_and_pauses_and_removals_make_room(store: Store) -> None:
    assert (
        dispositions(put_all(store, every("a", "1s"), every("b", "2s"), every("c", "1s", paused=True)))
        == ["created"] * 3
    )
    assert dispositions(put_all(store, every("b", "500ms"))) == ["rate_reached"]
    assert dispositions(put_all(store, every("c", "1s"))) == ["rate_reached"]  # a resume
    found = store.monitor("ann", "b")
    assert found is not None
    assert (found.revision, found.spec.every) == (1, "2s")
    assert dispositions(put_all(store, every("a", "1s", paused=True), every("c", "1s"))) == ["replaced", "replaced"]
    assert store.remove_monitors([RemoveMonitor("ann", "c")]) == ["removed"]
    assert dispositions(put_all(store, every("b", "500ms"))) == ["replaced"]


def test_monitors_above_a_lowered_limit_may_only_become_less_frequent(store: Store) -> None:
    put_all(store, *(every(f"m{number}", "1s") for number in range(5)), firings_max=0)
    assert dispositions(put_all(store, every("m0", "10s"))) == ["replaced"]
    assert dispositions(put_all(store, every("m0", "1s"))) == ["rate_reached"]
