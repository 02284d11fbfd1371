"""Alerts over real sockets on loopback: webhooks, mail and other services, all behind the outbound guard."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from email import policy
from email.parser import BytesParser
from ipaddress import ip_network
from pathlib import Path

import pytest

from paceline.adapters.providers import apprise_notes
from paceline.adapters.providers.guard import NOT_PUBLIC, OWN_API
from paceline.adapters.providers.messenger import HttpMessenger
from paceline.core.alerts.message import AppriseNote
from paceline.core.batches.calls import Call, CallResult
from paceline.simulators.http import ModelHttpServer
from tests.adapters.providers.support.drive import LOOPBACK, RealClock
from tests.support.mail_sink import MailSink, mail_sink


def open_messenger(*allow: str, own: tuple[tuple[str, int], ...] = ()) -> HttpMessenger:
    return HttpMessenger(allow=[ip_network(text) for text in allow], clock=RealClock(), own=own)


@pytest.fixture(scope="module")
def messenger() -> Iterator[HttpMessenger]:
    """A messenger that is allowed to reach loopback. Shared, because its process takes a second to start."""
    opened = open_messenger(*LOOPBACK)
    yield opened
    opened.close()


@pytest.fixture
def sink() -> Iterator[MailSink]:
    with mail_sink() as running:
        yield running


def note(url: str, *, handle: int = 1, timeout_ms: int = 30_000) -> AppriseNote:
    return AppriseNote(handle, 1, url, "home is failing", "answered 500 ✗\nat noon", "failure", timeout_ms)


def mail(port: int) -> str:
    return f"mailto://127.0.0.1:{port}/?from=paceline@example.org&to=ops@example.org"


def gather(messenger: HttpMessenger, count: int = 1, *, within_s: float = 60.0) -> list[CallResult]:
    results: list[CallResult] = []
    until_s = time.monotonic() + within_s
    while len(results) < count:
        assert time.monotonic() < until_s, f"only {len(results)} of {count} ended"
        results += messenger.finished(wait_ms=200)
    return results


def test_note_reaches_a_mail_server_with_title_and_text(messenger: HttpMessenger, sink: MailSink) -> None:
    messenger.start([note(mail(sink.port))])
    [result] = gather(messenger)
    assert (result.code, result.reason, messenger.in_flight) == (200, "", 0)
    [taken] = sink.messages
    parsed = BytesParser(policy=policy.default).parsebytes(taken.as_bytes())
    assert parsed["to"] == "ops@example.org"
    assert "home is failing" in parsed["subject"]
    body = parsed.get_body(("plain", "html"))
    assert body is not None
    assert "answered 500 ✗" in body.get_content()


def test_notes_and_webhooks_are_sent_beside_each_other(
    messenger: HttpMessenger, sink: MailSink, server: ModelHttpServer
) -> None:
    call = Call(7, 1, "al_1", "POST", f"{server.base_url}/ok", {"Idempotency-Key": "al_1"}, "{}", 5_000)
    json_note = note(f"json://127.0.0.1:{server.port}/ok", handle=2)
    messenger.start([call, json_note, *(note(mail(sink.port), handle=number) for number in (3, 4, 5))])
    results = gather(messenger, 5)
    assert {result.handle for result in results} == {2, 3, 4, 5, 7}
    assert {result.code for result in results} == {200}
    assert len(sink.messages) == 3


def test_refused_mail_is_a_failed_try_and_its_reason_has_no_secret(messenger: HttpMessenger, sink: MailSink) -> None:
    sink.refusing = True
    messenger.start([note(f"mailto://127.0.0.1:{sink.port}/canary-4711?from=a@example.org&to=ops@example.org")])
    [result] = gather(messenger)
    assert result.code is None
    assert result.reason
    assert "canary" not in result.reason


def test_no_service_reaches_an_address_that_the_guard_refuses(sink: MailSink, server: ModelHttpServer) -> None:
    port = server.port
    strict = open_messenger()
    try:
        urls = [mail(sink.port), f"json://127.0.0.1:{port}/", f"json://localhost:{port}/", f"json://[::1]:{port}/"]
        strict.start([note(url, handle=number) for number, url in enumerate(urls)])
        results = gather(strict, len(urls))
    finally:
        strict.close()
    assert {result.reason for result in results} == {NOT_PUBLIC}
    assert sink.messages == []
    assert server.log.total == 0


def test_own_api_is_not_reached_also_where_its_network_is_allowed(server: ModelHttpServer) -> None:
    opened = open_messenger(*LOOPBACK, own=(("127.0.0.1", server.port),))
    try:
        opened.start([note(f"json://127.0.0.1:{server.port}/")])
        [result] = gather(opened)
    finally:
        opened.close()
    assert result.reason == OWN_API


@pytest.mark.parametrize(
    "url", ["syslog://", "msteams://a@b/ccccccccc/d?template={file}", "vapid://a@b.c/d?keyfile={file}"]
)
def test_sandbox_opens_no_file_for_a_service(
    messenger: HttpMessenger, server: ModelHttpServer, tmp_path: Path, url: str
) -> None:
    """The API refuses such URLs; the sandbox is the second line of defence."""
    secret = tmp_path / "secret.json"
    secret.write_text('{"canary": 1}')
    messenger.start([note(url.format(file=secret))])
    [result] = gather(messenger)
    assert result.code is None
    assert server.log.total == 0


def test_note_that_hangs_ends_with_its_deadline_and_later_ones_are_sent(
    messenger: HttpMessenger, sink: MailSink
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        messenger.start([note(mail(silent.getsockname()[1]), timeout_ms=4_000)])
        [result] = gather(messenger)
    assert (result.code, result.reason) == (None, apprise_notes.TOO_SLOW)
    messenger.start([note(mail(sink.port), handle=2)])
    [later] = gather(messenger)
    assert later.code == 200


def test_promise_13_services_that_hang_neither_delay_other_notes_nor_cut_them_short(
    messenger: HttpMessenger, sink: MailSink
) -> None:
    """The slow service answers only after the other notes have ended: at their deadline."""
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as slow:
        silent_url, slow_url = (f"json://127.0.0.1:{one.getsockname()[1]}/?rto=20&cto=20" for one in (silent, slow))
        messenger.start([note(mail(sink.port))])
        gather(messenger)
        messenger.start([note(silent_url, handle=number, timeout_ms=8_000) for number in range(2, 22)])
        messenger.start([note(mail(sink.port), handle=30), note(slow_url, handle=31)])
        [quick] = gather(messenger)
        assert (quick.handle, quick.code) == (30, 200)
        connection, _ = slow.accept()
        late = gather(messenger, 20)
        assert {result.reason for result in late} == {apprise_notes.TOO_SLOW}
        messenger.start([note(mail(sink.port), handle=32)])
        [later] = gather(messenger)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        connection.close()
        [slowest] = gather(messenger)
    assert (later.handle, later.code) == (32, 200)
    assert (slowest.handle, slowest.code) == (31, 200)
    assert messenger._notes._retired == [], "the process with the notes that hang is stopped"


def test_missing_library_is_said_in_words_that_help(messenger: HttpMessenger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apprise_notes, "find_spec", lambda _: None)
    messenger.start([note("ntfy://topic")])
    [result] = gather(messenger)
    assert "pip install apprise" in result.reason
