"""``paceline provider``, ``batch`` and ``dead``: a batch from its first record to its export."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.shells.cli.support.program import Program

DAY = str((datetime.now(UTC) + timedelta(days=2)).date())
"""Far enough away that nothing of it is due."""


@pytest.fixture
def shop(program: Program) -> Program:
    program.ok("provider", "set", "shop", "--base-url", "http://127.0.0.1:9/api")
    program.ok("batch", "set", "daily")
    return program


def lines(count: int, provider: str = "shop") -> str:
    return "\n".join(json.dumps({"id": f"r{i}", "provider": provider, "endpoint": f"/{i}"}) for i in range(count))


def test_a_provider_is_set_edited_and_shown(program: Program) -> None:
    program.ok(
        "provider", "set", "shop", "--base-url", "http://127.0.0.1:9", "--header", "X-Key: sesame", "--rate", "5/1s"
    )
    edited = program.json("provider", "set", "shop", "--max-in-flight", "3", "--max-attempts", "2")
    assert (edited["max_in_flight"], edited["rate"], edited["headers"]) == (3, "5/1s", {"X-Key": "***"})
    assert edited["retry"] == {"max_attempts": 2, "base": "1s", "cap": "5m"}
    shown = program.ok("provider", "show", "shop")
    assert "sesame" not in shown
    assert "headers.X-Key" in shown
    assert program.json("provider", "list")["items"][0]["id"] == "shop"
    assert "shop paused" in program.ok("provider", "pause", "shop")
    assert program.json("provider", "resume", "shop")["paused"] is False
    assert program.ok("provider", "rm", "shop") == "shop removed.\n"
    assert program.run("provider", "show", "shop").code == 3


def test_a_provider_comes_from_a_file(program: Program) -> None:
    Path(program.folder, "spec.json").write_text(json.dumps({"base_url": "http://127.0.0.1:9", "timeout": "5s"}))
    assert program.json("provider", "set", "shop", "--file", "spec.json")["timeout"] == "5s"
    assert program.run("provider", "set", "shop", "--file", "spec.json", "--rate", "1/1s").code == 2
    assert program.run("provider", "set", "shop").code == 2
    assert program.run("provider", "set", "other", "--rate", "1/1s").code == 3
    assert program.run("provider", "set", "shop", "--header", "nonsense", "--base-url", "http://x").code == 2


def test_set_keeps_unnamed_fields_unless_replace_is_given(program: Program) -> None:
    base = ("provider", "set", "shop", "--base-url", "http://127.0.0.1:9")
    program.ok(*base, "--rate", "5/1s", "--header", "X-Key:secret", "--max-in-flight", "3", "--retry-base", "2s")
    before = program.json("provider", "show", "shop")
    after = program.json("provider", "set", "shop", "--base-url", "http://127.0.0.1:10")
    ours = ("base_url", "rate", "headers", "max_in_flight", "retry")
    assert {name: after[name] for name in ours} == {name: before[name] for name in ours} | {
        "base_url": "http://127.0.0.1:10"
    }
    whole = program.json(*base, "--replace")
    assert (whole["rate"], whole["headers"], whole["max_in_flight"]) == (None, {}, 1)
    program.ok("batch", "set", "daily", "--window", "1h", "--jitter", "5s")
    assert program.json("batch", "set", "daily", "--start", "03:00")["jitter"] == "5s"
    assert program.json("batch", "set", "daily", "--start", "03:00", "--replace")["window"] == "24h"
    program.ok("account", "set", "lab", "--concurrent", "7")
    assert program.json("account", "set", "lab", "--daily-results", "9")["concurrent"] == 7
    assert program.json("account", "set", "lab", "--daily-results", "9", "--replace")["concurrent"] == 100


def test_only_batch_is_the_default_and_one_of_several_must_be_named(program: Program) -> None:
    program.ok("migrate")
    none = program.run("batch", "import", "-", stdin=lines(1))
    assert (none.code, "paceline batch set" in none.err) == (2, True)
    program.ok("provider", "set", "shop", "--base-url", "http://127.0.0.1:9")
    program.ok("batch", "set", "one")
    assert program.ok("batch", "import", "-", stdin=lines(2)).startswith("2 created")
    program.ok("batch", "set", "two")
    several = program.run("batch", "plan", "--date", DAY)
    assert (several.code, "--batch" in several.err) == (2, True)
    assert program.json("batch", "plan", "one", "--date", DAY)["enqueued"] == 2
    assert program.json("batch", "plan", "--batch", "two", "--date", DAY)["enqueued"] == 0
    assert program.run("batch", "plan", "three", "--date", DAY).code == 3


def test_import_keeps_good_lines_and_names_bad_lines(shop: Program) -> None:
    text = "\n".join([lines(1), "", '{"id": "cut",', json.dumps({"id": "x", "provider": "nobody"}), "[]", lines(2)])
    ended = shop.run("batch", "import", "-", "--json", stdin=text)
    assert ended.code == 1
    assert {name: ended.document[name] for name in ("created", "unchanged", "refused")} == {
        "created": 2,
        "unchanged": 1,
        "refused": 3,
    }
    assert [(refusal["line"], refusal["id"], refusal["code"]) for refusal in ended.document["refusals"]] == [
        (3, None, "malformed_body"),
        (4, "x", "invalid_input"),
        (5, None, "invalid_input"),
    ]
    told = shop.run("batch", "import", "-", stdin=text)
    assert "line 4 (x): /provider: there is no provider 'nobody'" in told.err
    assert told.out == "0 created, 0 replaced, 3 unchanged, 3 refused\n"


def test_the_forms_of_a_file_mean_the_same(shop: Program) -> None:
    records = [json.loads(line) for line in lines(6_000).splitlines()]
    Path(shop.folder, "array.json").write_text(json.dumps(records))
    Path(shop.folder, "lines.ndjson").write_text(lines(6_000))
    rows = "\n".join(f"{record['provider']},{record['id']},{record['endpoint']}" for record in records)
    Path(shop.folder, "table.csv").write_text(f"\ufeffprovider,id,endpoint\n{rows}\n")
    assert shop.json("batch", "import", "array.json")["created"] == 6_000
    assert shop.json("batch", "import", "lines.ndjson")["unchanged"] == 6_000
    assert shop.json("batch", "import", "table.csv")["unchanged"] == 6_000


def test_batch_is_removed_its_records_listed_and_its_runs_rerun(shop: Program) -> None:
    shop.ok("batch", "import", "-", stdin=lines(3))
    assert [one["id"] for one in shop.json("batch", "records", "daily")["items"]] == ["r0", "r1", "r2"]
    asked = ("batch", "records", "--provider", "shop", "--active", "--limit", "2")
    page = shop.json(*asked)
    rest = shop.json(*asked, "--cursor", page["next_cursor"])
    assert [[one["id"] for one in part["items"]] for part in (page, rest)] == [["r0", "r1"], ["r2"]]
    assert shop.json("batch", "records", "--inactive")["items"] == []
    assert "r2" in shop.ok("batch", "records")
    assert shop.run("batch", "rerun", DAY, "--state", "done").code == 3
    shop.ok("batch", "plan", "--date", DAY)
    assert shop.json("batch", "rerun", DAY, "--state", "done") == {"enqueued": 0, "rerun": 0}
    assert shop.json("batch", "rerun", DAY, "--record", "r0", "--record", "r1") == {"enqueued": 0, "rerun": 0}
    assert shop.run("batch", "rerun", DAY).code == 2
    assert shop.run("batch", "rerun", DAY, "--record", "nobody").code == 2
    assert shop.ok("batch", "rm", "daily") == "daily removed.\n"
    assert shop.run("batch", "rm", "daily").code == 3
    assert shop.json("batch", "list")["items"] == []


def test_import_with_a_wrong_source_says_what_is_wrong(shop: Program) -> None:
    private = shop.run("batch", "import", "https://127.0.0.1:9/records.csv")
    assert (private.code, "not public" in private.err) == (2, True)
    table = shop.run("batch", "import", "dynamodb://")
    assert (table.code, "dynamodb://TABLE" in table.err) == (2, True)
    assert shop.run("batch", "import", "missing.ndjson").code == 2


def test_csv_import_reads_the_options_of_records(shop: Program) -> None:
    table = (
        "id,provider,method,timeout,headers,expect,endpoint\n"
        'a,shop,PUT,5s,"{""X-A"": ""{date}""}","{""done"": [409]}",/{record}\n'
        "b,shop,,,,,/b\n"
        "c,shop,SING,,,,\nd,shop,,1ms,,,\ne,shop,,,{,,\nf,shop,,,,,/{what}\n"
    )
    ended = shop.run("batch", "import", "-", "--format", "csv", "--json", stdin=table)
    assert ended.document["created"] == 2
    assert [(refusal["line"], refusal["detail"].split(":")[0]) for refusal in ended.document["refusals"]] == [
        (4, "/method"),
        (5, "/timeout"),
        (6, "/headers"),
        (7, "/endpoint"),
    ]
    edited = shop.json("provider", "set", "shop", "--expect", '{"done": ["2xx", 409]}')
    assert edited["expect"] == {"done": ["2xx", 409]}
    assert shop.json("provider", "set", "shop", "--expect", '{"retry": [404]}')["expect"]["done"] == ["2xx", 409]
    assert shop.run("provider", "set", "shop", "--expect", "nonsense").code == 2


def test_csv_import_reads_files_as_spreadsheets_write_them(shop: Program) -> None:
    table = (
        'id,provider,body,active\r\na,shop,"{""n"": [1,\n2]}",\r\nb,shop,plain text,no\r\nc,shop,,maybe\r\nd,shop\r\n'
    )
    ended = shop.run("batch", "import", "-", "--format", "csv", "--json", stdin=table)
    assert (ended.code, ended.document["created"]) == (1, 2)
    assert [(refusal["line"], refusal["id"]) for refusal in ended.document["refusals"]] == [(5, "c"), (6, None)]
    assert shop.json("batch", "plan", "--date", DAY)["enqueued"] == 1  # b is not active
    wrong = shop.run("batch", "import", "-", "--format", "csv", stdin="id,name\n1,2\n")
    assert (wrong.code, "Unknown column 'name'" in wrong.err) == (1, True)
    broken = shop.run("batch", "import", "-", "--format", "csv", stdin='id,provider\n"a,shop\n')
    assert (broken.code, "line 2: Not valid CSV" in broken.err) == (1, True)


def test_plan_prints_the_number_of_enqueued_runs_and_a_preview_changes_nothing(shop: Program) -> None:
    shop.ok("batch", "import", "-", stdin=lines(96))
    before = shop.run("batch", "plan", "--date", DAY, "--dry-run")
    assert before.code == 0
    assert before.out.count("▆") + before.out.count("█") >= 96
    assert len(shop.json("batch", "plan", "--date", DAY, "--dry-run")["histogram"]) == 96
    assert shop.run("batch", "show", DAY).code == 3
    assert json.loads(shop.ok("batch", "plan", "--date", DAY))["enqueued"] == 96
    assert shop.json("batch", "plan", "--date", DAY) == {"enqueued": 0, "already": 96, "skipped": 0}
    assert shop.run("batch", "plan", "--date", "someday").code == 2


def test_a_preview_warns_where_a_provider_cannot_keep_up(shop: Program) -> None:
    shop.ok("provider", "set", "shop", "--rate", "1/1h")
    shop.ok("batch", "import", "-", stdin=lines(96))
    told = shop.run("batch", "plan", "--date", DAY, "--dry-run")
    assert "warning: shop: its rate of 1/1h" in told.err


def test_a_day_is_shown_listed_and_exported(shop: Program) -> None:
    shop.ok("batch", "import", "-", stdin=lines(96))
    shop.ok("batch", "plan", "--date", DAY)
    shown = shop.ok("batch", "show", DAY)
    assert "96 waiting" in shown
    assert [line for line in shown.splitlines() if line.startswith("00:00Z |")] == ["00:00Z |" + "█" * 24 + "| 24"]
    assert shop.json("batch", "show", DAY)["providers"][0]["totals"]["waiting"] == 96
    assert shop.json("batch", "days")["items"][0]["date"] == DAY
    assert len(shop.json("batch", "runs", DAY, "--state", "waiting", "--limit", "5")["items"]) == 5
    assert shop.json("batch", "runs", DAY, "--state", "failed")["items"] == []
    exported = [json.loads(line) for line in shop.ok("batch", "export", DAY).splitlines()]
    assert sorted(run["record"] for run in exported) == sorted(f"r{i}" for i in range(96))
    shop.ok("batch", "export", DAY, "--format", "csv", "--output", "day.csv")
    rows = list(csv.DictReader(io.StringIO(Path(shop.folder, "day.csv").read_text(), newline="")))
    assert [row["run"] for row in rows] == [run["run"] for run in exported]
    assert shop.json("run", "show", f"daily/r7@{DAY}")["state"] == "waiting"
    assert shop.run("run", "show", f"daily/r999@{DAY}").code == 3


def test_a_batch_is_set_edited_paused_and_resumed(program: Program) -> None:
    program.ok("batch", "set", "daily", "--start", "02:30", "--timezone", "Europe/Berlin")
    edited = program.json("batch", "set", "daily", "--window", "6h", "--missed", "skip")
    assert (edited["start"], edited["window"], edited["missed"]) == ("02:30", "6h", "skip")
    assert program.json("batch", "pause", "daily")["paused"] is True
    assert "daily resumed" in program.ok("batch", "resume", "daily")
    assert program.json("batch", "list")["items"][0]["revision"] == 4
    assert program.run("batch", "set", "daily", "--window", "2d").code == 2


def test_dead_letters_can_be_asked_for_when_there_are_none(shop: Program) -> None:
    assert shop.json("dead", "list") == {"items": [], "next_cursor": None}
    assert shop.json("dead", "redrive", "--batch", "daily", "--date", DAY) == {"redriven": 0}
    assert shop.json("dead", "discard", f"daily/r1@{DAY}") == {"discarded": 0}
    assert shop.json("dead", "redrive", "--queues") == {"redriven": 0, "dropped": 0, "left": 0, "queues": {}}
    assert "0 redriven, 0 dropped, 0 left." in shop.ok("dead", "redrive", "--queues")
    assert shop.run("dead", "redrive", "--queues", "--batch", "daily").code == 2
    assert shop.run("dead", "redrive").code == 2
    assert shop.run("dead", "discard", "nonsense").code == 2
