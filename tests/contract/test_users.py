from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec.structs import replace

from paceline.core.monitors.values import RemoveMonitor
from paceline.core.users import UserEdit
from paceline.errors import LastAdmin
from paceline.ports import Store
from tests.contract.support.stage import T0_MS, arm_all, put, spec, token, user


def test_a_user_is_added_once(store: Store, other: Store) -> None:
    assert store.add_user(user("cem", created_ms=T0_MS + 7))
    assert not other.add_user(user("cem"))
    assert other.user("cem") == user("cem", created_ms=T0_MS + 7)
    assert store.user("nobody") is None


def test_users_are_paged_in_order_of_id(store: Store) -> None:
    for name in ("dan", "cem", "Zoe"):
        assert store.add_user(user(name))
    everyone = [found.id for found in store.users(after="", limit=100)]
    assert everyone == sorted(["ann", "bob", "cem", "dan", "Zoe"])
    assert [found.id for found in store.users(after=everyone[1], limit=2)] == everyone[2:4]
    assert store.users(after=everyone[-1], limit=2) == []


def test_user_edit_changes_only_the_named_fields(store: Store, other: Store) -> None:
    edited = store.edit_user("ann", UserEdit(daily_credits=9))
    assert edited is not None
    assert (edited.role, edited.daily_credits, edited.disabled) == ("user", 9, False)
    again = store.edit_user("ann", UserEdit(role="admin", disabled=True))
    assert again is not None
    assert (again.role, again.daily_credits, again.disabled) == ("admin", 9, True)
    assert other.user("ann") == again
    assert store.edit_user("nobody", UserEdit(role="admin")) is None


@pytest.mark.parametrize("change", [UserEdit(role="user"), UserEdit(disabled=True), None], ids=str)
def test_last_admin_cannot_be_demoted_disabled_or_removed(store: Store, change: UserEdit | None) -> None:
    store.edit_user("ann", UserEdit(role="admin"))
    store.edit_user("bob", UserEdit(role="admin", disabled=True))  # a disabled admin does not count
    before = store.user("ann")
    with pytest.raises(LastAdmin, match="'ann' is the last admin"):
        give_up(store, "ann", change)
    assert store.user("ann") == before
    store.edit_user("ann", UserEdit(daily_credits=5, role="admin"))
    store.edit_user("bob", UserEdit(disabled=False))
    give_up(store, "ann", change)
    with pytest.raises(LastAdmin):
        give_up(store, "bob", change)
    assert store.remove_user("ann") == (change is not None), "a plain user may be removed"


@pytest.mark.parametrize("change", [UserEdit(role="user"), UserEdit(disabled=True), None], ids=str)
def test_one_of_two_admins_who_demote_each_other_at_once_stays_admin(
    store: Store, other: Store, change: UserEdit | None
) -> None:
    for name in ("ann", "bob"):
        store.edit_user(name, UserEdit(role="admin"))
    together = threading.Barrier(2)

    def demote(given: tuple[Store, str]) -> bool:
        together.wait()
        try:
            give_up(*given, change)
        except LastAdmin:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        won = list(pool.map(demote, [(store, "ann"), (other, "bob")]))
    assert sorted(won) == [False, True]
    left = [one for one in store.users(after="", limit=10) if one.role == "admin" and not one.disabled]
    assert len(left) == 1


def give_up(store: Store, name: str, change: UserEdit | None) -> None:
    if change is None:
        store.remove_user(name)
    else:
        store.edit_user(name, change)


def test_disabling_and_enabling_records_a_change_for_each_monitor_of_the_user(store: Store) -> None:
    for owner, name in (("ann", "a"), ("ann", "b"), ("bob", "c")):
        put(store, name, owner=owner)
    arm_all(store, T0_MS)
    assert store.changes(limit=10, now_ms=T0_MS) == []
    for disabled in (True, False):
        store.edit_user("ann", UserEdit(disabled=disabled))
        changes = store.changes(limit=10, now_ms=T0_MS)
        assert sorted(change.monitor.id for change in changes if change.monitor) == ["a", "b"]
        assert all(change.owner_disabled == disabled for change in changes)
        arm_all(store, T0_MS)


def test_user_edit_that_neither_disables_nor_enables_records_no_change(store: Store) -> None:
    put(store, "a")
    arm_all(store, T0_MS)
    store.edit_user("ann", UserEdit(daily_credits=9))
    assert store.changes(limit=10, now_ms=T0_MS) == []


def test_removing_a_user_removes_tokens_and_monitors_and_records_their_changes(store: Store, other: Store) -> None:
    generations = []
    for name in ("a", "b"):
        created = put(store, name).monitor
        assert created is not None
        generations.append(created.generation)
    arm_all(store, T0_MS)
    put(store, "c", owner="bob")
    arm_all(store, T0_MS)
    assert store.add_token(token("t1", "ann"), tokens_max=100) == "added"
    assert other.remove_user("ann")
    assert not other.remove_user("ann")
    assert store.user("ann") is None
    assert store.token("t1") is None
    assert store.monitor("ann", "a") is None
    changes = store.changes(limit=10, now_ms=T0_MS)
    assert sorted(change.generation for change in changes) == generations
    assert all(change.monitor is None and change.entry is not None for change in changes)
    assert store.monitor("bob", "c") is not None


def test_user_added_again_after_removal_owns_no_old_monitor(store: Store) -> None:
    before = put(store, "a").monitor
    assert store.remove_user("ann")
    assert store.add_user(user("ann"))
    assert store.monitors("ann", after="", limit=10) == []
    after = put(store, "a").monitor
    assert before is not None
    assert after is not None
    assert after.generation != before.generation


def test_monitor_count_of_a_user_follows_puts_and_removals(store: Store) -> None:
    def count() -> int:
        found = store.user("ann")
        assert found is not None
        return found.monitors

    put(store, "a")
    put(store, "b")
    put(store, "b", spec(every="5s"))
    assert count() == 2
    store.remove_user("bob")
    assert count() == 2
    store.remove_monitors([RemoveMonitor("ann", "a"), RemoveMonitor("ann", "x")])
    assert count() == 1


def test_a_token_belongs_to_a_user(store: Store, other: Store) -> None:
    assert store.add_token(token("t1", "ann"), tokens_max=100) == "added"
    assert store.add_token(token("t2", "ann", created_ms=T0_MS + 1), tokens_max=100) == "added"
    assert store.add_token(token("t3", "bob"), tokens_max=100) == "added"
    assert store.add_token(token("t4", "nobody"), tokens_max=100) == "no_user"
    found = other.token("t1")
    assert found is not None
    assert found[0] == token("t1", "ann")
    assert found[1].id == "ann"
    assert [item.id for item in other.tokens("ann")] == ["t1", "t2"]
    assert other.token("t4") is None


def test_only_its_own_user_s_token_is_removed(store: Store, other: Store) -> None:
    assert store.add_token(token("t1", "ann"), tokens_max=100) == "added"
    assert not store.remove_token("bob", "t1")
    assert other.token("t1") is not None
    assert other.remove_token("ann", "t1")
    assert not store.remove_token("ann", "t1")
    assert store.token("t1") is None


def test_token_lookup_shows_that_its_user_is_disabled(store: Store) -> None:
    assert store.add_token(token("t1", "ann"), tokens_max=100) == "added"
    store.edit_user("ann", UserEdit(disabled=True))
    found = store.token("t1")
    assert found is not None
    assert found[1].disabled


def test_tokens_of_a_user_stop_at_the_limit_and_go_on_when_one_is_revoked(store: Store, other: Store) -> None:
    assert [store.add_token(token(f"t{index}", "ann"), tokens_max=3) for index in range(4)] == [*["added"] * 3, "full"]
    assert other.add_token(token("t9", "bob"), tokens_max=3) == "added"
    assert other.remove_token("ann", "t1")
    assert not other.remove_token("ann", "t1")
    assert store.add_token(token("t5", "ann"), tokens_max=3) == "added"
    assert store.add_token(token("t6", "ann"), tokens_max=3) == "full"
    assert {found.id for found in store.tokens("ann")} == {"t0", "t2", "t5"}


def test_a_token_keeps_its_scope_and_its_end(store: Store) -> None:
    scoped = replace(token("one", "ann"), scope="worker:shop", expires_ms=T0_MS + 5)
    plain = token("two", "ann")
    for one in (scoped, plain):
        assert store.add_token(one, tokens_max=10) == "added"
        found = store.token(one.id)
        assert found is not None
        assert found[0] == one
    assert {one.id: one for one in store.tokens("ann")} == {"one": scoped, "two": plain}
    assert not scoped.has_expired(T0_MS + 4)
    assert scoped.has_expired(T0_MS + 5)
    assert not plain.has_expired(T0_MS + 5)
