"""Named items: conditional writes of several at once, ordered pages, and the typed collections above them."""

from __future__ import annotations

import threading

import msgspec
import pytest

from paceline.errors import StoreUnavailable
from paceline.ports import Store
from paceline.ports.items import ANYTHING, VALUE_BYTES_MAX, WRITES_MAX, ItemKey, ItemWrite
from paceline.steps import collection
from paceline.steps.collection import TRIES_MAX, Collection

A, B, C = (ItemKey("thing", name) for name in "abc")
PAGE_KEYS = ["a", "a/1", "a/2", "a0", "b", "ä", "\U0001f511"]
"""In order of their UTF-8 bytes."""


class Counter(msgspec.Struct, frozen=True):
    count: int
    note: str = ""


COUNTERS = Collection("counter", Counter)


def put(store: Store, at: ItemKey, value: bytes) -> None:
    assert store.write_items([ItemWrite(at, value, ANYTHING)]) == {}


def keys_after(store: Store, *, after: str = "", before: str = "", limit: int = 100) -> list[str]:
    return [key for key, _ in store.items_after("thing", after=after, before=before, limit=limit)]


def test_item_is_written_only_if_its_old_value_is_as_expected(store: Store, other: Store) -> None:
    assert store.write_items([ItemWrite(A, b"1", b"0")]) == {A: None}
    assert store.get_items([A]) == {}
    assert store.write_items([ItemWrite(A, b"1", None)]) == {}
    assert other.get_items([A, B]) == {A: b"1"}
    assert other.write_items([ItemWrite(A, b"2", None)]) == {A: b"1"}
    assert other.write_items([ItemWrite(A, b"2", b"0")]) == {A: b"1"}
    assert other.write_items([ItemWrite(A, b"2", b"1")]) == {}
    assert store.write_items([ItemWrite(A, None, b"1")]) == {A: b"2"}
    assert store.write_items([ItemWrite(A, None, b"2")]) == {}
    assert other.get_items([A]) == {}


def test_unchecked_write_replaces_and_deletes_whatever_is_there(store: Store) -> None:
    for value in (b"1", b"2", None, None, b""):
        assert store.write_items([ItemWrite(A, value, ANYTHING)]) == {}
        assert store.get_items([A]) == ({} if value is None else {A: value})


def test_items_of_one_write_are_written_together_or_not_at_all(store: Store, other: Store) -> None:
    put(store, A, b"1")
    writes = [ItemWrite(A, b"2", b"1"), ItemWrite(B, b"2", None), ItemWrite(C, None, b"x")]
    assert store.write_items(writes) == {C: None}
    assert other.get_items([A, B, C]) == {A: b"1"}
    put(store, C, b"x")
    assert store.write_items(writes) == {}
    assert other.get_items([A, B, C]) == {A: b"2", B: b"2"}


def test_writing_the_believed_value_checks_an_item(store: Store) -> None:
    put(store, A, b"1")
    assert store.write_items([ItemWrite(A, b"1", b"1"), ItemWrite(B, b"new", None)]) == {}
    assert store.write_items([ItemWrite(A, b"0", b"0"), ItemWrite(B, b"newer", b"new")]) == {A: b"1"}
    assert store.write_items([ItemWrite(C, None, None), ItemWrite(B, b"newer", b"new")]) == {}
    assert store.get_items([A, B, C]) == {A: b"1", B: b"newer"}


def test_item_that_was_made_again_is_not_taken_for_the_old_one(store: Store) -> None:
    put(store, A, b"old")
    assert store.write_items([ItemWrite(A, None, b"old")]) == {}
    assert store.write_items([ItemWrite(A, b"new", None)]) == {}
    assert store.write_items([ItemWrite(A, b"edit of the old one", b"old")]) == {A: b"new"}


def test_one_call_writes_the_largest_allowed_number_of_the_largest_items(store: Store) -> None:
    keys = [ItemKey("thing", f"{n:02}") for n in range(WRITES_MAX)]
    for old, value in ((None, b"\0" * VALUE_BYTES_MAX), (b"\0" * VALUE_BYTES_MAX, b"\xff" * VALUE_BYTES_MAX)):
        assert store.write_items([ItemWrite(at, value, old) for at in keys]) == {}
    assert store.get_items(keys) == dict.fromkeys(keys, b"\xff" * VALUE_BYTES_MAX)


def test_pages_are_in_order_of_key_and_between_their_bounds(store: Store) -> None:
    for key in reversed(PAGE_KEYS):
        put(store, ItemKey("thing", key), key.encode())
    put(store, ItemKey("things", "a/3"), b"of another kind")
    assert keys_after(store) == PAGE_KEYS
    assert keys_after(store, limit=2) == PAGE_KEYS[:2]
    assert keys_after(store, after="a/1", limit=2) == ["a/2", "a0"]
    assert keys_after(store, after="a/15", limit=2) == ["a/2", "a0"]
    assert keys_after(store, after="a/1", before="b") == ["a/2", "a0"]
    assert keys_after(store, before="a0") == ["a", "a/1", "a/2"]
    assert keys_after(store, after="a/", before="a/\U0010ffff") == ["a/1", "a/2"]
    assert keys_after(store, after="\U0001f511") == []
    assert keys_after(store, after="b", before="a0") == []
    assert keys_after(store, after="a0", before="a0") == []


def test_expired_items_are_deleted_by_the_purge_or_by_the_engine(store: Store) -> None:
    store.write_items([ItemWrite(A, b"1", None, expires_ms=1_000), ItemWrite(B, b"1", None, expires_ms=5_000)])
    store.purge(settled_before_ms=0, due_before_ms=0, now_ms=2_000, limit=10)
    assert set(store.get_items([A, B])) in ({A, B}, {B})


def test_exactly_one_of_many_inserts_of_the_same_item_wins(store: Store, other: Store) -> None:
    won: list[str] = []

    def race(process: Store, name: str) -> None:
        if COUNTERS.add(process, "prize", Counter(1, name)):
            won.append(name)

    threads = [threading.Thread(target=race, args=((store, other)[n % 2], f"t{n}")) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    prize = COUNTERS.get(store, "prize")
    assert prize is not None
    assert won == [prize.note]


def test_concurrent_edits_of_two_items_lose_no_update(store: Store, other: Store) -> None:
    """Two items change together: the writer that loses reads both and decides again."""

    def move(process: Store) -> None:
        for _ in range(5):
            while True:
                one, two = COUNTERS.find_many(process, ["one", "two"])
                assert one.value is not None
                assert two.value is not None
                changes = [
                    COUNTERS.change(one, Counter(one.value.count - 1)),
                    COUNTERS.change(two, Counter(two.value.count + 1)),
                ]
                if collection.write(process, changes):
                    break

    COUNTERS.put(store, "one", Counter(20))
    COUNTERS.put(store, "two", Counter(0))
    threads = [threading.Thread(target=move, args=(process,)) for process in (store, other, store, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.value for one in COUNTERS.find_many(store, ["one", "two"])] == [Counter(0), Counter(20)]


def test_edit_reads_decides_and_writes(store: Store) -> None:
    assert COUNTERS.edit(store, "a", lambda now: now) is None
    assert COUNTERS.edit(store, "a", lambda now: Counter(1) if now is None else now) == Counter(1)
    assert COUNTERS.edit(store, "a", lambda now: Counter(now.count + 1) if now else None) == Counter(2)
    assert COUNTERS.edit(store, "a", lambda _: None) is None
    assert COUNTERS.get(store, "a") is None


def test_edit_is_decided_again_after_a_concurrent_write(store: Store, other: Store) -> None:
    COUNTERS.put(store, "a", Counter(1))
    seen: list[int] = []

    def decide(now: Counter | None) -> Counter:
        assert now is not None
        seen.append(now.count)
        if len(seen) == 1:
            COUNTERS.put(other, "a", Counter(10))
        return Counter(now.count + 1)

    assert COUNTERS.edit(store, "a", decide) == Counter(11)
    assert seen == [1, 10]


def test_edit_gives_up_after_a_bounded_number_of_lost_races(store: Store) -> None:
    tries = 0

    def decide(_: Counter | None) -> Counter:
        nonlocal tries
        tries += 1
        COUNTERS.put(store, "a", Counter(tries))
        return Counter(-tries)

    with pytest.raises(StoreUnavailable, match="counter 'a'"):
        COUNTERS.edit(store, "a", decide)
    assert tries == TRIES_MAX


def test_collection_walks_a_prefix_and_reads_items_of_older_versions(store: Store) -> None:
    for n in range(3):
        COUNTERS.put(store, f"ann/{n}", Counter(n))
    COUNTERS.put(store, "ann0", Counter(9))
    assert store.write_items([ItemWrite(ItemKey("counter", "ann/3"), b'{"count":3,"since":1}', None)]) == {}
    assert [(one.key, one.value) for one in COUNTERS.walk(store, prefix="ann/")] == [
        (f"ann/{n}", Counter(n)) for n in range(4)
    ]
    assert [one.key for one in COUNTERS.page(store, prefix="ann/", after="ann/1", limit=1)] == ["ann/2"]
    assert COUNTERS.page(store, prefix="ann/", after="b", limit=1) == []
