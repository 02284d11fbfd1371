"""Alerts: stored once by their id, found when they are due, changed only at their newest version."""

from __future__ import annotations

import msgspec
import pytest

from paceline.core.alerts.alert import Alert, alert_id
from paceline.core.alerts.record import AlertCounts, AlertRecord, Delivery
from paceline.ports import Store
from paceline.ports.alerts import ListPlace
from tests.contract.support.stage import T0_MS

TOLD = Delivery("ops", "told", 1, T0_MS, T0_MS)
GIVEN_UP = Delivery("ops", "given_up", 17, T0_MS, T0_MS, "answered 500")


def alert(cause: str, *, at_ms: int = T0_MS, user: str = "ann") -> Alert:
    return Alert(
        id=alert_id("monitor.failing", cause),
        event="monitor.failing",
        at_ms=at_ms,
        user=user,
        subject="home",
        reason="answered 500 ✗",
        data={"failures": 3, "ratio": 0.5, "run": cause, "of": [1, {"a": None}]},
        channels=("ops",),
    )


def only(store: Store, alert_: Alert) -> AlertRecord:
    found = store.alert(alert_.id)
    assert found is not None
    return found


def over(record: AlertRecord, delivery: Delivery = TOLD) -> AlertRecord:
    return msgspec.structs.replace(record, state="told", deliveries=(delivery,), next_ms=None)


def test_alert_of_one_id_is_stored_once_and_read_whole(store: Store, other: Store) -> None:
    first = alert("a")
    assert store.add_alerts([first, alert("b")]) == [True, True]
    assert other.add_alerts([alert("c"), alert("a", at_ms=T0_MS + 5, user="bob")]) == [True, False]
    assert only(other, first) == AlertRecord(first, next_ms=T0_MS)
    assert store.alerts("bob", since_ms=0, before=None, limit=10) == []
    assert store.alert("al_none") is None


def test_finished_alert_is_not_reopened_by_the_same_id(store: Store) -> None:
    store.add_alerts([alert("a")])
    assert store.write_alerts([over(only(store, alert("a")))]) == [True]
    assert store.add_alerts([alert("a")]) == [False]
    assert store.due_alerts(now_ms=T0_MS + 1, limit=10) == []


def test_due_alerts_are_those_whose_time_has_come_the_longest_due_first(store: Store, other: Store) -> None:
    later, sooner, ahead = alert("a", at_ms=T0_MS + 2), alert("b", at_ms=T0_MS + 1), alert("c", at_ms=T0_MS + 100)
    assert store.add_alerts([later, sooner, ahead]) == [True] * 3
    assert [one.id for one in other.due_alerts(now_ms=T0_MS + 2, limit=10)] == [sooner.id, later.id]
    assert [one.id for one in other.due_alerts(now_ms=T0_MS + 2, limit=1)] == [sooner.id]
    assert store.due_alerts(now_ms=T0_MS, limit=10) == []
    assert [one.alert for one in store.open_alerts_after(T0_MS + 2, limit=10)] == [ahead]


def test_alert_record_is_replaced_only_at_its_newest_version(store: Store, other: Store) -> None:
    store.add_alerts([alert("a"), alert("b")])
    seen = only(store, alert("a"))
    again = msgspec.structs.replace(seen, state="sending", deliveries=(Delivery("ops", tries=1),), next_ms=T0_MS + 9)
    assert other.write_alerts([again]) == [True]
    assert store.write_alerts([over(seen), over(only(store, alert("b")))]) == [False, True]
    assert only(store, alert("a")) == msgspec.structs.replace(again, version=1)
    assert store.due_alerts(now_ms=T0_MS + 8, limit=10) == []
    assert [one.id for one in store.due_alerts(now_ms=T0_MS + 9, limit=10)] == [alert("a").id]
    missing = msgspec.structs.replace(seen, alert=alert("none"))
    assert store.write_alerts([missing]) == [False]
    assert store.alert(missing.alert.id) is None


def test_list_of_a_user_is_newest_first_and_paged(store: Store) -> None:
    times = [T0_MS, T0_MS + 1, T0_MS + 1, T0_MS + 3]
    store.add_alerts([alert(str(number), at_ms=at_ms) for number, at_ms in enumerate(times)])
    store.add_alerts([alert("bob's", user="bob"), alert("admins'", user="")])
    whole = [one.alert for one in store.alerts("ann", since_ms=0, before=None, limit=10)]
    assert [one.at_ms for one in whole] == [T0_MS + 3, T0_MS + 1, T0_MS + 1, T0_MS]
    assert whole[1].id > whole[2].id
    paged: list[Alert] = []
    before = None
    while page := store.alerts("ann", since_ms=0, before=before, limit=1):
        paged += [one.alert for one in page]
        before = ListPlace(page[-1].alert.at_ms, page[-1].alert.id)
    assert paged == whole
    assert [one.alert for one in store.alerts("ann", since_ms=T0_MS + 1, before=None, limit=10)] == whole[:3]
    assert len(store.alerts("", since_ms=0, before=None, limit=10)) == 1


def test_alert_counts_are_open_alerts_and_failed_deliveries(store: Store) -> None:
    assert store.alert_counts() == AlertCounts(0, 0)
    store.add_alerts([alert("a"), alert("b"), alert("c")])
    store.write_alerts([over(only(store, alert("a"))), over(only(store, alert("b")), GIVEN_UP)])
    assert store.alert_counts() == AlertCounts(open=1, failed=1)


@pytest.mark.parametrize("limit", [1, 10])
def test_purge_deletes_old_alerts_that_are_over_from_every_list(store: Store, limit: int) -> None:
    store.add_alerts([alert("a"), alert("b"), alert("open"), alert("young", at_ms=T0_MS + 10)])
    store.write_alerts([over(only(store, alert("a"))), over(only(store, alert("b")), GIVEN_UP)])
    store.write_alerts([over(only(store, alert("young")))])
    assert store.purge_alerts(at_before_ms=T0_MS, limit=limit) == 0
    passes = [store.purge_alerts(at_before_ms=T0_MS + 10, limit=limit) for _ in range(3)]
    assert passes == ([1, 1, 0] if limit == 1 else [2, 0, 0])
    left = store.alerts("ann", since_ms=0, before=None, limit=10)
    assert {one.alert.id for one in left} == {alert("open").id, alert("young").id}
    assert store.alert(alert("a").id) is None
    assert store.alert_counts() == AlertCounts(open=1, failed=0)
