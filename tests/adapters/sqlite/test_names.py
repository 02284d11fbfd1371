"""Names that the store gives."""

from __future__ import annotations

from contextlib import closing

from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.jobs.values import AccountSpec, AddKey


def test_adding_a_stored_key_again_uses_no_new_key_id() -> None:
    with closing(SqliteStore(":memory:")) as store:
        store.put_account("lab", AccountSpec())
        added = [store.add_key(AddKey("lab", f"sealed {name}", "1234"), now_ms=1) for name in "aaabab"]
        assert [one.disposition for one in added] == ["created", "already", "already", "created", "already", "already"]
        assert [one.key.id for one in added if one.key] == ["k1", "k1", "k1", "k2", "k1", "k2"]
