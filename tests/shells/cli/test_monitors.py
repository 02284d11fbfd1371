"""``paceline monitor`` and ``paceline run``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import InvalidInput
from paceline.shells.cli.monitors.document import MonitorOptions, document_of
from tests.shells.cli.support.program import Program


@pytest.fixture
def alice(program: Program) -> Program:
    program.ok("user", "add", "alice")
    return program


def test_a_monitor_is_put_edited_paused_resumed_and_removed(alice: Program) -> None:
    made = alice.json("monitor", "set", "web", "--url", "https://example.org/", "--every", "60s", "--tag", "a")
    assert made["check"] == {"kind": "http", "url": "https://example.org/"}
    assert (made["revision"], made["health"], made["tags"]) == (1, "new", ["a"])

    edited = alice.json("monitor", "set", "web", "--every", "10s", "--timeout", "2s")
    assert (edited["every"], edited["check"]["timeout"], edited["tags"]) == ("10s", "2s", ["a"])
    assert edited["schedule"]["generation"] == made["schedule"]["generation"]

    paused = alice.json("monitor", "pause", "web")
    assert (paused["paused"], paused["health"], paused["schedule"]["next_due"]) == (True, "paused", None)
    assert alice.json("monitor", "resume", "web")["schedule"]["next_due"] is not None

    assert alice.json("monitor", "rm", "web") == {"removed": "web"}
    assert alice.json("monitor", "list")["items"] == []
    assert alice.run("monitor", "show", "web").code == 3


FULL = [
    *("--url", "https://example.org/", "--every", "60s", "--tag", "a", "--tag", "b", "--jitter", "3s"),
    *("--timeout", "2s", "--expect-status", "204", "--contains", "ok", "--missed", "once", "--method", "put"),
]


OF_THE_STORE = ("revision", "schedule", "health", "runs", "uptime", "created_at", "updated_at")


def declared(view: Any) -> dict[str, Any]:
    return {name: value for name, value in view.items() if name not in OF_THE_STORE}


def test_set_changes_only_the_fields_named_by_its_options(alice: Program) -> None:
    made = declared(alice.json("monitor", "set", "m", *FULL))
    assert (made["tags"], made["jitter"], made["missed"]) == (["a", "b"], "3s", "once")
    edited = declared(alice.json("monitor", "set", "m", "--url", "https://example.net/"))
    assert edited == made | {"check": made["check"] | {"url": "https://example.net/"}}
    edited = declared(alice.json("monitor", "set", "m", "--contains", "fine", "--tag", "c"))
    expect = {"status": [204], "body_contains": "fine"}
    assert (edited["check"]["expect"], edited["tags"], edited["jitter"]) == (expect, ["c"], "3s")


def test_set_with_replace_sets_the_whole(alice: Program) -> None:
    alice.ok("monitor", "set", "m", *FULL)
    whole = alice.json("monitor", "set", "m", "--url", "https://example.net/", "--every", "5s", "--replace")
    fresh = alice.json("monitor", "set", "n", "--url", "https://example.net/", "--every", "5s")
    assert declared(whole) == declared(fresh) | {"id": "m"}
    assert whole["schedule"]["generation"] == 1
    wrong = alice.run("monitor", "set", "m", "--every", "5s", "--replace")
    assert (wrong.code, "/check" in wrong.err) == (2, True)


def test_set_removes_tags_and_expectations_on_request(alice: Program) -> None:
    alice.ok("monitor", "set", "m", *FULL)
    bare = alice.json("monitor", "set", "m", "--no-tags", "--no-expect")
    assert (bare["tags"], "expect" in bare["check"], bare["check"]["timeout"]) == ([], False, "2s")
    alice.ok("monitor", "set", "m", "--expect-status", "204")
    other = alice.json("monitor", "set", "m", "--no-expect", "--contains", "x")
    assert other["check"]["expect"] == {"body_contains": "x"}
    assert alice.run("monitor", "set", "m", "--no-tags", "--tag", "a").code == 2


def test_set_has_an_option_for_everything_that_an_http_check_can_ask(alice: Program) -> None:
    asked = alice.json(
        *("monitor", "set", "m", "--url", "https://example.org/", "--every", "1h", "--method", "post", "--body", "x"),
        *("--header", "Accept: text/html", "--header", "X-Key:a:b", "--basic", "ann:p:w", "--follow-redirects", "2"),
        *("--no-verify-tls", "--max-bytes", "99", "--expect-status", "2xx", "--expect-status", "404"),
        *("--contains", "a", "--lacks", "b", "--matches", "c+", "--latency-max", "500ms", "--days-left", "7"),
        *("--expect-json", "/status is up", "--expect-json", "/free at_least 10", "--expect-json", "is {}"),
        *("--expect-json", r"/a is b matches ^2\.", "--expect-header", "Server: x"),
    )["check"]
    assert asked == {
        "kind": "http",
        "url": "https://example.org/",
        "method": "POST",
        "body": "***",
        "headers": {"Accept": "***", "X-Key": "***"},
        "auth": {"kind": "basic", "username": "***", "password": "***"},
        "follow_redirects": 2,
        "verify_tls": False,
        "max_bytes": 99,
        "expect": {
            "status": ["2xx", 404],
            "body_contains": "a",
            "body_lacks": "b",
            "body_matches": "c+",
            "json": [
                {"pointer": "/status", "is": "up"},
                {"pointer": "/free", "at_least": 10},
                {"pointer": "", "is": {}},
                {"pointer": "/a", "is": r"b matches ^2\."},
            ],
            "header": {"Server": "x"},
            "latency_max": "500ms",
            "days_left": 7,
        },
    }
    other = alice.json("monitor", "set", "m", "--bearer", "t", "--header", "X-Key: c")["check"]
    assert other["auth"] == {"kind": "bearer", "token": "***"}
    assert other["headers"] == {"Accept": "***", "X-Key": "***"}
    assert "auth" not in alice.json("monitor", "set", "m", "--no-auth")["check"]


def test_set_has_options_for_dns_and_tls(alice: Program) -> None:
    dns = alice.json(
        *("monitor", "set", "d", "--dns", "example.org", "--dns-type", "mx", "--dns-server", "192.0.2.1:5353"),
        *("--answer", "10 a.example", "--only-answer", "10 a.example", "--every", "1h"),
    )["check"]
    assert dns == {
        "kind": "dns",
        "name": "example.org",
        "type": "MX",
        "server": "192.0.2.1",
        "port": 5353,
        "expect": {"contains": ["10 a.example"], "equals": ["10 a.example"]},
    }
    tls = alice.json("monitor", "set", "t", "--tls", "example.org", "--days-left", "30", "--every", "1h")["check"]
    assert tls == {"kind": "tls", "host": "example.org", "expect": {"days_left": 30}}


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (MonitorOptions(expect_json=["status=up"]), "--expect-json"),
        (MonitorOptions(expect_header=["Server"]), "--expect-header"),
        (MonitorOptions(basic="ann"), "--basic"),
        (MonitorOptions(basic="a:b", bearer="c"), "--no-auth"),
        (MonitorOptions(bearer="c", no_auth=True), "--no-auth"),
    ],
)
def test_option_that_cannot_be_read_is_refused_by_name(wanted: MonitorOptions, words: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        document_of(wanted)
    assert words in str(refused.value) + str(refused.value.errors)


def test_set_of_another_kind_of_check_keeps_schedule_and_tags(alice: Program) -> None:
    alice.ok("monitor", "set", "m", *FULL)
    changed = alice.json("monitor", "set", "m", "--tcp", "example.org:25")
    assert changed["check"] == {"kind": "tcp", "host": "example.org", "port": 25, "timeout": "2s"}
    assert (changed["tags"], changed["jitter"], changed["every"]) == (["a", "b"], "3s", "60s")
    alice.ok("monitor", "set", "m", "--outgoing", '{"path": "/", "deep": true}')
    given = alice.json("monitor", "set", "m", "--outgoing", '{"path": "/home"}')
    assert given["check"] == {"kind": "outgoing", "path": "/home", "timeout": "2s"}


def test_simultaneous_edits_of_a_monitor_are_all_kept(alice: Program) -> None:
    alice.ok("monitor", "set", "m", *FULL)
    edits = [
        ("--url", "https://example.net/"),
        ("--jitter", "7s"),
        ("--timeout", "9s"),
        ("--tag", "z"),
        ("--every", "2m"),
    ]
    started = [alice.begin("monitor", "set", "m", *words) for words in edits]
    ended = [process.communicate(timeout=60) for process in started]
    assert [process.returncode for process in started] == [0] * len(edits), ended
    shown = alice.json("monitor", "show", "m")
    assert (shown["check"]["url"], shown["check"]["timeout"]) == ("https://example.net/", "9s")
    assert (shown["jitter"], shown["tags"], shown["every"], shown["revision"]) == ("7s", ["z"], "2m", 6)


def test_a_definition_comes_from_a_file_or_from_stdin(alice: Program) -> None:
    document = {
        "check": {"kind": "dns", "name": "example.org", "type": "MX"},
        "cron": "0 3 * * *",
        "timezone": "Asia/Tokyo",
    }
    Path(alice.folder, "dns.json").write_text(json.dumps(document))
    from_file = alice.json("monitor", "set", "one", "--file", "dns.json")
    assert (from_file["cron"], from_file["timezone"]) == ("0 3 * * *", "Asia/Tokyo")
    alice.ok("monitor", "set", "two", "--file", "-", stdin=json.dumps(document))
    assert [item["id"] for item in alice.json("monitor", "list")["items"]] == ["one", "two"]


def test_lists_are_paged_and_tables_are_never_cut_short(alice: Program) -> None:
    url = "https://example.org/" + "long/" * 60
    for name in ("a", "b", "c"):
        alice.ok("monitor", "set", name, "--url", url, "--every", "1h")
    assert url in alice.ok("monitor", "list")
    page = alice.json("monitor", "list", "--limit", "2")
    assert [item["id"] for item in page["items"]] == ["a", "b"]
    rest = alice.json("monitor", "list", "--limit", "2", "--cursor", page["next_cursor"])
    assert ([item["id"] for item in rest["items"]], rest["next_cursor"]) == (["c"], None)


def test_show_prints_definition_schedule_uptime_and_runs(alice: Program) -> None:
    alice.ok("monitor", "set", "web", "--url", "https://example.org/", "--every", "1h", "--expect-status", "204")
    shown = alice.json("monitor", "show", "web")
    assert shown["check"]["expect"] == {"status": [204]}
    assert shown["schedule"]["key"] == "alice/web"
    assert shown["runs"] == []
    assert (shown["uptime"]["90d"], shown["uptime"]["incidents"]) == (None, [])
    text = alice.ok("monitor", "show", "web")
    assert 'check.expect         {"status":[204]}' in text
    assert "No run yet." in text
    assert "good 90d" in text
    assert alice.json("monitor", "runs", "web") == {"items": [], "next_cursor": None}


def test_command_requires_a_user_if_there_are_several(alice: Program) -> None:
    alice.ok("user", "add", "bob")
    unnamed = alice.run("monitor", "list")
    assert unnamed.code == 2
    assert "--user" in unnamed.err
    alice.ok("monitor", "set", "mine", "--url", "https://example.org/", "--every", "1h", user="bob")
    assert alice.json("monitor", "list", "--user", "alice")["items"] == []
    assert [item["id"] for item in alice.json("monitor", "list", "--user", "bob")["items"]] == ["mine"]
    assert alice.run("monitor", "list", "--user", "carol").code == 3


def test_control_characters_that_a_user_stored_are_not_printed(alice: Program) -> None:
    wanted = ["--url", "https://example.org/", "--every", "1h"]
    refused = alice.run("monitor", "set", "m", *wanted, "--tag", "\x1b[31mred")
    assert (refused.code, "\x1b" in refused.err) == (2, False)
    alice.ok("monitor", "set", "m", *wanted, "--contains", "\x1b[31mred")
    assert "\x1b" not in alice.ok("monitor", "list") + alice.ok("monitor", "show", "m")


@pytest.mark.parametrize(
    ("wanted", "check"),
    [
        (MonitorOptions(url="http://a/", method="post"), {"kind": "http", "url": "http://a/", "method": "POST"}),
        (
            MonitorOptions(url="http://a/", contains="x"),
            {"kind": "http", "url": "http://a/", "expect": {"body_contains": "x"}},
        ),
        (MonitorOptions(tcp="[::1]:80"), {"kind": "tcp", "host": "::1", "port": 80}),
        (MonitorOptions(tls="example.org"), {"kind": "tls", "host": "example.org"}),
        (MonitorOptions(tls="[::1]"), {"kind": "tls", "host": "::1"}),
        (
            MonitorOptions(tls="example.org:8443", timeout="1s"),
            {"kind": "tls", "host": "example.org", "port": 8443, "timeout": "1s"},
        ),
        (MonitorOptions(dns="example.org"), {"kind": "dns", "name": "example.org"}),
        (MonitorOptions(outgoing='{"city": "Oslo"}'), {"kind": "outgoing", "city": "Oslo"}),
        (MonitorOptions(outgoing=""), {"kind": "outgoing"}),
    ],
)
def test_options_become_the_document_that_the_api_would_get(wanted: MonitorOptions, check: dict[str, object]) -> None:
    assert document_of(wanted) == {"check": check}
