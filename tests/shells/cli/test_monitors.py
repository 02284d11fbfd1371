"""``paceline monitor`` and ``paceline run``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline.shells.cli.monitor_document import Wanted, document_of
from tests.shells.cli.program import Program


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


def test_a_check_option_replaces_the_whole_definition(alice: Program) -> None:
    alice.ok("monitor", "set", "m", "--url", "https://example.org/", "--every", "60s", "--tag", "a")
    replaced = alice.json("monitor", "set", "m", "--tcp", "example.org:25", "--every", "60s")
    assert replaced["check"] == {"kind": "tcp", "host": "example.org", "port": 25}
    assert replaced["tags"] == []


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
    assert ([item["id"] for item in page["items"]], page["next_cursor"]) == (["a", "b"], "b")
    rest = alice.json("monitor", "list", "--limit", "2", "--cursor", "b")
    assert ([item["id"] for item in rest["items"]], rest["next_cursor"]) == (["c"], None)


def test_show_tells_definition_schedule_and_runs(alice: Program) -> None:
    alice.ok("monitor", "set", "web", "--url", "https://example.org/", "--every", "1h", "--expect-status", "204")
    shown = alice.json("monitor", "show", "web")
    assert shown["check"]["expect"] == {"status": [204]}
    assert shown["schedule"]["key"] == "alice/web"
    assert shown["runs"] == []
    text = alice.ok("monitor", "show", "web")
    assert 'check.expect         {"status":[204]}' in text
    assert "No run yet." in text
    assert alice.json("monitor", "runs", "web") == {"items": [], "next_cursor": None}


def test_with_several_users_one_must_be_named(alice: Program) -> None:
    alice.ok("user", "add", "bob")
    unnamed = alice.run("monitor", "list")
    assert unnamed.code == 2
    assert "--user" in unnamed.err
    alice.ok("monitor", "set", "mine", "--url", "https://example.org/", "--every", "1h", user="bob")
    assert alice.json("monitor", "list", "--user", "alice")["items"] == []
    assert [item["id"] for item in alice.json("monitor", "list", "--user", "bob")["items"]] == ["mine"]
    assert alice.run("monitor", "list", "--user", "carol").code == 3


def test_what_a_user_stored_cannot_steer_a_terminal(alice: Program) -> None:
    alice.ok("monitor", "set", "m", "--url", "https://example.org/", "--every", "1h", "--tag", "\x1b[31mred")
    assert "\x1b" not in alice.ok("monitor", "list") + alice.ok("monitor", "show", "m")


@pytest.mark.parametrize(
    ("wanted", "check"),
    [
        (Wanted(url="http://a/", method="post"), {"kind": "http", "url": "http://a/", "method": "POST"}),
        (Wanted(url="http://a/", contains="x"), {"kind": "http", "url": "http://a/", "expect": {"body_contains": "x"}}),
        (Wanted(tcp="[::1]:80"), {"kind": "tcp", "host": "::1", "port": 80}),
        (Wanted(tls="example.org"), {"kind": "tls", "host": "example.org"}),
        (Wanted(tls="[::1]"), {"kind": "tls", "host": "::1"}),
        (
            Wanted(tls="example.org:8443", timeout="1s"),
            {"kind": "tls", "host": "example.org", "port": 8443, "timeout": "1s"},
        ),
        (Wanted(dns="example.org"), {"kind": "dns", "name": "example.org"}),
        (Wanted(outgoing='{"city": "Oslo"}'), {"kind": "outgoing", "city": "Oslo"}),
        (Wanted(outgoing=""), {"kind": "outgoing"}),
    ],
)
def test_options_become_the_document_that_the_api_would_get(wanted: Wanted, check: dict[str, object]) -> None:
    assert document_of(wanted) == {"check": check}
