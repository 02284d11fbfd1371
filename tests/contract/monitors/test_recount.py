"""Wrong counts of phases are found and corrected, even while monitors are added and removed."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from paceline.core.findings import PHASES_MISCOUNTED
from paceline.core.monitors.checks import HttpCheck
from paceline.core.monitors.definition import MonitorSpec
from paceline.core.monitors.phases.circle import Circle
from paceline.core.monitors.values import PutMonitor, RemoveMonitor
from paceline.ports import Store
from paceline.steps.monitors import define
from paceline.steps.monitors.phases import CIRCLES
from paceline.steps.monitors.react import react_to_all
from paceline.steps.upkeep.recount import CIRCLES_MAX, COUNTS, EVERY_MS, RecountReport, phase_problems, recount_phases
from tests.contract.support.stage import MINUTE_MS, MONITORS_MAX, T0_MS

INTERVALS = ("60s", "5m", "1h")
WRONG = PHASES_MISCOUNTED


def put(store: Store, names: list[str], every: str = "60s") -> None:
    check = HttpCheck(url="http://example.org/")
    puts = [PutMonitor("ann", name, MonitorSpec(check=check, every=every)) for name in names]
    define.put_monitors(store, puts, monitors_max=MONITORS_MAX, now_ms=T0_MS)


def remove(store: Store, name: str) -> None:
    define.remove_monitor(store, "ann", name, now_ms=T0_MS)


def damage(store: Store, every_ms: int, by: dict[int, int]) -> None:
    """Makes counts wrong, as a process does that dies between the write of an entry and that of its circle."""

    def change(circle: Circle | None) -> Circle:
        assert circle is not None
        counts = [max(0, count + by.get(bucket, 0)) for bucket, count in enumerate(circle.counts)]
        return replace(circle, counts=counts)

    CIRCLES.edit(store, str(every_ms), change)


def circles(store: Store) -> dict[str, list[int]]:
    return {one.key: one.value.counts for one in CIRCLES.walk(store) if one.value}


def recount(store: Store, *, now_ms: int = T0_MS, limit: int = 1_000) -> RecountReport:
    """A whole round."""
    entries = wrong = 0
    for _ in range(1_000):
        report = recount_phases(store, now_ms=now_ms, pause_ms=0, limit=limit)
        entries, wrong = entries + report.entries, wrong + report.wrong
        if not report.more:
            return RecountReport(entries, wrong)
    raise AssertionError("the round does not end")


def test_check_reports_damaged_counts_until_a_recount_repairs_them(store: Store, other: Store) -> None:
    put(store, [f"m{number:02}" for number in range(20)])
    put(store, ["five"], every="5m")
    right = circles(store)
    assert phase_problems(other, now_ms=T0_MS) == []
    damage(store, MINUTE_MS, {0: 3, 30: 1, 59: -9})
    damaged = sum(abs(now - was) for now, was in zip(circles(store)["60000"], right["60000"], strict=True))
    assert phase_problems(other, now_ms=T0_MS) == [WRONG.format("1m")]
    assert recount(other, limit=7) == RecountReport(21, damaged)
    assert circles(store) == right
    assert phase_problems(other, now_ms=T0_MS) == []
    assert list(COUNTS.walk(store)) == []


def test_recount_repairs_counts_after_a_process_died_between_an_entry_and_its_count(
    store: Store, other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, ["a", "b"])

    class KilledError(Exception):
        """The process ends here."""

    def die(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr("paceline.steps.monitors.react.count_moves", lambda _: die)
        with pytest.raises(KilledError):
            put(store, ["c"])
    react_to_all(other, now_ms=T0_MS)
    recount(other)
    assert phase_problems(other, now_ms=T0_MS) == []
    assert sum(circles(other)["60000"]) == 3


def test_recount_finds_nothing_wrong_in_counts_that_are_right(store: Store) -> None:
    put(store, [f"m{number:02}" for number in range(9)])
    put(store, ["x", "y"], every="1h")
    right = [one.value for one in CIRCLES.walk(store)]
    assert recount(store, limit=4) == RecountReport(11, 0)
    assert [one.value for one in CIRCLES.walk(store)] == right


def test_recount_restores_missing_circles_and_removes_empty_ones(store: Store) -> None:
    put(store, ["a", "b"])
    put(store, ["x"], every="5m")
    right = circles(store)
    CIRCLES.delete(store, "60000")
    CIRCLES.put(store, "7000", Circle([2] * 7))
    assert set(phase_problems(store, now_ms=T0_MS)) == {WRONG.format("1m"), WRONG.format("7s")}
    recount(store)
    assert circles(store) == right


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_recount_stays_exact_while_monitors_come_and_go_between_its_pages(
    store: Store, other: Store, seed: int
) -> None:
    chance = random.Random(seed)
    live = [f"m{number:02}" for number in range(12)]
    for name in live:
        put(store, [name], every=chance.choice(INTERVALS))
    damage(store, chance.choice([int(key) for key in circles(store)]), {1: 2})
    for number in range(200):
        for _ in range(chance.randrange(3)):
            if chance.random() < 0.5 and len(live) > 1:
                remove(store, live.pop(chance.randrange(len(live))))
            else:
                name = chance.choice(live) if chance.random() < 0.4 else f"n{number:03}{chance.random()}"
                live += [name] if name not in live else []
                put(store, [name], every=chance.choice(INTERVALS))
        if not recount_phases(other, now_ms=T0_MS, pause_ms=0, limit=3).more:
            break
    assert phase_problems(store, now_ms=T0_MS) == []


def test_recount_page_is_counted_again_if_a_monitor_moved_while_it_was_read(store: Store, other: Store) -> None:
    put(store, ["a", "b", "c"])

    class Moves:
        """A store on which another process removes a monitor between the read of a page and its write."""

        def __init__(self) -> None:
            self.left = ["a", "b"]

        def __getattr__(self, name: str) -> object:
            if name == "changes" and self.left:
                remove(store, self.left.pop())
            return getattr(other, name)

    moving = Moves()
    for _ in range(20):
        recount_phases(moving, now_ms=T0_MS, pause_ms=0, limit=2)  # type: ignore[arg-type]
    assert moving.left == []
    assert sum(circles(store)["60000"]) == 1
    assert phase_problems(store, now_ms=T0_MS) == []


def test_recount_counts_the_entry_of_a_removed_monitor_until_its_change_is_applied(store: Store) -> None:
    put(store, ["a", "b"])
    store.remove_monitors([RemoveMonitor("ann", "b")])
    assert phase_problems(store, now_ms=T0_MS) == []
    assert recount(store).wrong == 0
    put(store, ["a"], every="5m")  # lets all changes follow
    assert {key: sum(counts) for key, counts in circles(store).items()} == {"300000": 1}


def test_recount_repairs_more_circles_than_one_write_holds(store: Store) -> None:
    for number in range(CIRCLES_MAX + 3):
        put(store, [f"m{number}"], every=f"{60 + number}s")
    right = circles(store)
    for key in right:
        damage(store, int(key), {0: 5})
    assert recount(store) == RecountReport(2 * (CIRCLES_MAX + 3), 5 * (CIRCLES_MAX + 3))
    assert circles(store) == right


def test_recount_rests_for_a_day_and_processes_take_turns_at_its_pages(store: Store, other: Store) -> None:
    put(store, ["a", "b"])
    assert recount_phases(store, now_ms=T0_MS).more
    assert recount_phases(other, now_ms=T0_MS + 500) == RecountReport(more=True)
    assert recount_phases(other, now_ms=T0_MS + 1_000) == RecountReport(2, 0, more=True)
    recount(store)
    assert recount_phases(store, now_ms=T0_MS + EVERY_MS - 1) == RecountReport()
    assert recount_phases(store, now_ms=T0_MS + EVERY_MS).more
