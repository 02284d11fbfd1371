"""``paceline verify`` on a store and on its backup, for people and for programs."""

from __future__ import annotations

from contextlib import closing

from paceline.adapters.sqlite.store import SqliteStore
from tests.contract.support.stage import MINUTE_MS, T0_MS, armed, claim, make_runs, settle
from tests.shells.cli.support.program import Program


def with_past(program: Program) -> None:
    """A store of alice with three runs that have ended."""
    program.ok("user", "add", "alice")
    with closing(SqliteStore(str(program.folder / "paceline.db"))) as store:
        monitor = armed(store, "home", owner="alice")
        for number in range(3):
            now_ms = T0_MS + number * MINUTE_MS
            make_runs(store, monitor, now_ms=now_ms)
            settle(store, claim(store, now_ms=now_ms), now_ms=now_ms)


def test_verify_prints_each_promise_and_the_smallest_counterexample(program: Program) -> None:
    with_past(program)
    text = program.ok("verify")
    assert "once                      4 facts  PASS" in text
    assert "nothing to judge" in text
    with closing(SqliteStore(str(program.folder / "paceline.db"))) as store, store._db.write() as db:
        db.execute("UPDATE run SET due_ms = due_ms + 50 WHERE counter = 1")
    broken = program.run("verify")
    assert broken.code == 1
    assert "on the grid               4 facts  BROKEN 1 times" in broken.out
    assert (
        "  alice/home#1@1 is not due on the grid of its entry:\n    entry generation=1 counter=3 due=2026-"
        in broken.out
    )
    told = program.run("verify", "--json")
    assert (told.code, told.document["ok"], told.document["runs"]) == (1, False, 3)
    (grid,) = [one for one in told.document["promises"] if not one["passed"]]
    assert grid["promise"] == "on the grid"
    assert [line["kind"] for line in grid["counterexample"]["lines"]] == ["entry", "run"]
    assert program.run("verify", "--since", "2099-01-01").code == 0


def test_verify_judges_a_backup(program: Program) -> None:
    with_past(program)
    program.ok("backup", "copy.db")
    assert program.json("verify", "--store", "sqlite:///copy.db")["runs"] == 3


def test_verify_without_a_store_or_with_a_wrong_since_is_refused(program: Program) -> None:
    assert program.run("verify").code == 3
    program.ok("migrate")
    wrong = program.run("verify", "--since", "yesterday")
    assert wrong.code == 2
    assert "--since: write a day" in wrong.err or "write a day" in wrong.err


def test_verify_judges_an_export_with_its_history(program: Program) -> None:
    with_past(program)
    program.ok("export", "out.ndjson", "--history", "--receipt", "receipt.json")
    assert program.json("verify", "out.ndjson", "--store", "sqlite:///nothing.db")["runs"] == 3
    assert "PASS" in program.ok("verify", "out.ndjson", "receipt.json", "--store", "sqlite:///nothing.db")
    path = program.folder / "out.ndjson"
    path.write_bytes(path.read_bytes().replace(b'"state":"ok"', b'"state":"failed"', 1))
    judged = program.run("verify", "out.ndjson", "--json")
    assert (judged.code, [one["promise"] for one in judged.document["promises"] if not one["passed"]]) == (
        1,
        ["nothing lost"],
    )
    checked = program.run("verify", "out.ndjson", "receipt.json")
    assert (checked.code, "BROKEN, lines 1 to" in checked.out) == (1, True)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert "not whole" in program.run("verify", "out.ndjson").err


def test_exported_history_is_no_hindrance_to_an_import(program: Program) -> None:
    with_past(program)
    program.ok("export", "out.ndjson", "--history")
    key = (program.folder / "paceline.key").read_text().strip()
    program.ok("import", "out.ndjson", "--store", "sqlite:///new.db", secret_key=key)
    assert program.json("verify", "--store", "sqlite:///new.db", secret_key=key)["runs"] == 0


def test_verify_judges_one_batch_or_one_job_and_refuses_missing_ones_and_wrong_options(program: Program) -> None:
    with_past(program)
    assert program.run("verify", "--batch", "nobody").code == 3
    assert program.run("verify", "--job", "nobody").code == 3
    assert program.run("verify", "--date", "2026-11-18").code == 2
    assert program.run("verify", "--batch", "a", "--job", "b").code == 2
    assert program.run("job", "results", "nobody", "--receipt", "r.json").code == 2
    (program.folder / "receipt.json").write_text("{}")
    wrong = program.run("verify", "receipt.json", "receipt.json")
    assert (wrong.code, "is no receipt" in wrong.err) == (2, True)
