"""Imports that are interrupted or refused: what is wrong is named, and a later import is complete."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from paceline.adapters.sqlite.store import SqliteStore
from paceline.adapters.vault import SecretVault
from paceline.core.jobs.values import AccountSpec, AddKey
from paceline.core.monitors.schedule import Rest
from paceline.core.monitors.values import Reacted
from paceline.errors import AlreadyExists, InvalidInput, MalformedBody, PacelineError, WrongSetting
from paceline.ports import Store
from paceline.ports.monitors import Beside
from paceline.steps.move.move_in import import_lines
from tests.contract.support.stage import EVERY_MINUTE
from tests.steps.support import move_scene
from tests.steps.support.move_scene import NOON_MS, NOW_MS, VAULT, open_runs, picture, take_in, take_out


@pytest.mark.parametrize("cut", [1, 4, 9, 13, 20])
def test_truncated_import_is_reported_and_a_complete_one_finishes_it(source: Store, target: Store, cut: int) -> None:
    move_scene.with_users_and_monitors(source)
    move_scene.with_batch(source)
    waiting = open_runs(source)
    stream, _ = take_out(source, now_ms=NOON_MS)
    lines = stream.splitlines()
    with pytest.raises(MalformedBody, match=f"breaks off after line {cut}"):
        import_lines(target, VAULT, lines[:cut], now_ms=NOON_MS)
    take_in(target, stream, now_ms=NOON_MS)
    assert picture(target) == picture(source)
    assert open_runs(target) == waiting


class Crash(Exception):
    pass


class Dying(SqliteStore):
    """Dies after the definitions are written and before their entries follow."""

    def react(self, reacted: Sequence[Reacted], *, now_ms: int, beside: Beside | None = None) -> list[bool]:
        raise Crash(len(reacted), now_ms, beside)


def test_import_after_a_crash_between_a_monitor_and_its_entry_keeps_its_due_time(source: Store, tmp_path: Path) -> None:
    move_scene.with_users_and_monitors(source)
    stream, _ = take_out(source)
    path = str(tmp_path / "target.db")
    with closing(Dying(path)) as dying, pytest.raises(Crash):
        take_in(dying, stream)
    with closing(SqliteStore(path)) as target:
        take_in(target, stream)
        assert picture(target) == picture(source)
        assert target.verify() == []


class Hasty(SqliteStore):
    """Another process on the store arms the new monitors before the import does."""

    def react(self, reacted: Sequence[Reacted], *, now_ms: int, beside: Beside | None = None) -> list[bool]:
        super().react([Reacted(one.change, Rest(EVERY_MINUTE, outgoing=False)) for one in reacted[:1]], now_ms=now_ms)
        return super().react(reacted, now_ms=now_ms, beside=beside)


def test_import_counts_monitors_that_another_process_armed(source: Store) -> None:
    move_scene.with_users_and_monitors(source)
    stream, _ = take_out(source)
    with closing(Hasty(":memory:")) as hasty:
        assert take_in(hasty, stream).unplaced == 1
    with closing(SqliteStore(":memory:")) as alone:
        assert take_in(alone, stream).unplaced == 0


def test_import_under_another_secret_is_refused_before_anything_is_written(source: Store, target: Store) -> None:
    move_scene.with_users_and_monitors(source)
    stream, _ = take_out(source)
    with pytest.raises(WrongSetting, match="sealed with another secret"):
        import_lines(target, SecretVault(b"of another installation....."), stream.splitlines(), now_ms=NOW_MS)
    assert target.users(after="", limit=10) == []


def changed(stream: bytes, kind: str, /, **fields: object) -> list[bytes]:
    lines = [json.loads(line) for line in stream.splitlines()]
    next(line for line in lines if line["kind"] == kind).update(fields)
    return [json.dumps(line).encode() for line in lines]


@pytest.mark.parametrize(
    ("kind", "fields", "error", "words"),
    [
        ("paceline", {"format": 2}, InvalidInput, "format 2, and this version reads 1"),
        ("paceline", {"kind": "user"}, MalformedBody, "Line 1 is not one of an export"),
        ("monitor", {"spec": {"every": "1m"}}, InvalidInput, "Line 5: "),
        ("monitor", {"owner": "nobody"}, InvalidInput, "Line 5: there is no user 'nobody'"),
        ("provider", {"id": "a b"}, InvalidInput, "Line 10: "),
        ("record", {"batch": "other"}, InvalidInput, "Line 13: records come after their batch"),
        ("end", {"lines": 3}, MalformedBody, "breaks off"),
        ("user", {"more": 1}, MalformedBody, "Line 2 is not one of an export"),
    ],
)
def test_wrong_line_of_an_import_is_refused_by_its_number(
    source: Store, target: Store, kind: str, fields: dict[str, object], error: type[PacelineError], words: str
) -> None:
    move_scene.with_users_and_monitors(source)
    move_scene.with_batch(source)
    stream, _ = take_out(source)
    with pytest.raises(error, match=words):
        import_lines(target, VAULT, changed(stream, kind, **fields), now_ms=NOW_MS)


def test_two_exports_in_one_stream_are_refused(source: Store, target: Store) -> None:
    stream, _ = take_out(source)
    with pytest.raises(MalformedBody, match="comes after the end"):
        take_in(target, stream + stream)


def sharing_a_key(stream: bytes, account: str, holder: str) -> bytes:
    """The same export, as of an older store in which both accounts had the holder's first key."""
    lines = [json.loads(line) for line in stream.splitlines()]
    by_id = {line["id"]: line for line in lines if line["kind"] == "account"}
    by_id[account]["keys"].append(by_id[holder]["keys"][0])
    return b"\n".join(json.dumps(line).encode() for line in lines)


def assert_a_shared_key_is_refused(source: Store, target: Store) -> None:
    move_scene.with_accounts(source)
    (first, *_) = source.keys("lab")
    stream, _ = take_out(source)
    shared = sharing_a_key(stream, "off", "lab")
    with pytest.raises(AlreadyExists) as refused:
        take_in(target, shared)
    said = refused.value.detail
    assert "account 'off' has a key that account 'lab' has in this export, too" in said
    assert said.startswith("Line ")
    sealed = source.sealed_key("lab", first.id)
    assert sealed is not None
    assert sealed not in said
    assert "first-key" not in said
    assert target.account("off", now_ms=NOW_MS) is None, "nothing of the refused line is there"
    take_in(target, stream)
    assert picture(target) == picture(source)


def test_a_key_of_two_accounts_is_refused_with_both_names_and_without_the_key(source: Store, target: Store) -> None:
    assert_a_shared_key_is_refused(source, target)


@pytest.mark.aws
def test_a_key_of_two_accounts_is_refused_on_aws(source: Store, aws_store: Store) -> None:
    assert_a_shared_key_is_refused(source, aws_store)


def test_a_key_that_another_account_of_the_new_store_has_is_refused(source: Store, target: Store) -> None:
    move_scene.with_accounts(source)
    target.put_account("mine", AccountSpec())
    target.add_key(AddKey("mine", VAULT.seal("first-key"), "-key", "here"), now_ms=NOW_MS)
    stream, _ = take_out(source)
    with pytest.raises(AlreadyExists, match="account 'lab' has a key that account 'mine' has in this store, too"):
        take_in(target, stream)


def test_wrong_roll_up_in_an_export_is_refused_with_its_line(source: Store, target: Store) -> None:
    move_scene.with_users_and_monitors(source)
    stream, _ = take_out(source)
    lines = stream.splitlines(keepends=True)
    at = next(at for at, line in enumerate(lines) if b'"rollup":"k' in line or b'"rollup":"l' in line)
    document = json.loads(lines[at])
    lines[at] = json.dumps(document | {"rollup": "AAAA"}).encode() + b"\n"
    with pytest.raises(InvalidInput, match=f"Line {at + 1}: .*rollup"):
        take_in(target, b"".join(lines))
