"""Which failures are tried again: those that cannot do anything twice, and no others."""

from __future__ import annotations

import ssl
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from paceline.adapters.certificates import make_certificates
from paceline_client import (
    Client,
    NoAnswer,
    NotFound,
    PreconditionFailed,
    Problem,
    Throttled,
    Unavailable,
    UnexpectedAnswer,
)
from paceline_client.answers import Nothing
from paceline_client.calls import Call, Send, Sleep
from paceline_client.lines import Lines
from paceline_client.retries import Retries, deliver
from tests.client.support.both import Connect
from tests.client.support.scripted import Act, HangUp, Say, ScriptedServer, problem
from tests.shells.support.daemons import free_port

USER = {
    "id": "bob",
    "role": "user",
    "daily_credits": 1,
    "disabled": False,
    "monitors": 0,
    "created_at": "2026-11-15T00:00:00Z",
}
QUICK = Retries(base_s=0.001, cap_s=0.01)
GOOD = Say(200, USER)
PAGE = Say(502, raw=b"<html>bad gateway</html>", headers={"content-type": "text/html"})


def quick(client: Any) -> Any:
    """Pauses of milliseconds, which a test can wait for."""
    transport = getattr(client, "_part", client)._transport
    object.__setattr__(transport.connection, "retries", QUICK)
    return client


def asked(connect: Connect, script: Sequence[Act], ask: Any) -> tuple[Any, list[Any]]:
    """Returns the result or the raised error, and the requests."""
    with ScriptedServer(script) as server:
        try:
            came: Any = ask(quick(connect(server.url, "t")))
        except (Problem, NoAnswer) as error:
            came = error
        return came, server.requests


@pytest.mark.parametrize("trouble", [HangUp(), PAGE, problem(503, "store_unavailable"), problem(429, "throttled")])
def test_get_is_retried_after_a_temporary_failure(connect: Connect, trouble: Act) -> None:
    came, requests = asked(connect, [trouble, trouble, GOOD], lambda client: client.users.get("bob"))
    assert came.id == "bob"
    assert len(requests) == 3


def test_get_fails_after_four_tries(connect: Connect) -> None:
    came, requests = asked(connect, [problem(503, "store_unavailable", "locked")], lambda client: client.users.get())
    assert isinstance(came, Unavailable)
    assert (came.detail, len(requests)) == ("locked", 4)


@pytest.mark.parametrize("trouble", [HangUp(), PAGE, problem(503, "store_unavailable")])
def test_post_that_may_have_counted_is_not_sent_again(connect: Connect, trouble: Act) -> None:
    came, requests = asked(
        connect, [trouble, Say(201, {"user": "bob", "token": "x"})], lambda client: client.users.add("bob")
    )
    assert isinstance(came, NoAnswer | Problem)
    assert came.may_have_counted
    assert len(requests) == 1


def test_post_that_was_refused_before_anything_was_done_is_sent_again(connect: Connect) -> None:
    script = [problem(429, "throttled"), Say(201, {"user": "bob", "token": "x"})]
    came, requests = asked(connect, script, lambda client: client.users.add("bob"))
    assert (came.token, len(requests)) == ("x", 2)


def test_post_to_an_unreachable_service_says_that_it_did_not_count(connect: Connect) -> None:
    client = quick(connect(f"http://127.0.0.1:{free_port()}", "t"))
    with pytest.raises(NoAnswer) as caught:
        client.users.add("bob")
    assert not caught.value.may_have_counted
    assert "cannot be reached" in str(caught.value)


def test_submitted_job_is_sent_again_under_one_key(connect: Connect) -> None:
    accepted = Say(202, {"job": "j1", "cost": 60, "credits_left": 40, "measurements": 1, "again": True})
    came, requests = asked(connect, [HangUp(), accepted], lambda client: client.jobs.submit({"measurements": []}))
    assert came.id == "j1"
    assert len(requests) == 2
    assert len({one.headers["idempotency-key"] for one in requests}) == 1


def test_repeated_remove_that_finds_nothing_counts_as_removed(connect: Connect) -> None:
    came, requests = asked(connect, [HangUp(), problem(404, "not_found")], lambda client: client.users.remove("bob"))
    assert (came, len(requests)) == (None, 2)
    came, requests = asked(connect, [problem(404, "not_found")], lambda client: client.users.remove("bob"))
    assert isinstance(came, NotFound)


def test_refusal_after_a_cut_off_put_says_that_it_may_have_counted(connect: Connect) -> None:
    script: list[Act] = [HangUp(), problem(412, "revision_mismatch")]
    came, _ = asked(connect, script, lambda client: client.accounts.put("lab", concurrent=1, if_match='"1"'))
    assert isinstance(came, PreconditionFailed)
    assert came.may_have_counted
    assert "may have counted" in str(came)


def test_retry_after_is_waited_for_and_no_longer_than_allowed(connect: Connect) -> None:
    throttled = problem(429, "throttled")._replace(headers={"retry-after": "1"})
    started_s = time.monotonic()
    came, requests = asked(connect, [throttled, GOOD], lambda client: client.users.get())
    assert (came.id, len(requests)) == ("bob", 2)
    assert time.monotonic() - started_s >= 1.0
    patient = problem(429, "throttled")._replace(headers={"retry-after": "3600"})
    came, requests = asked(connect, [patient, GOOD], lambda client: client.users.get())
    assert isinstance(came, Throttled)
    assert (came.retry_after_s, len(requests)) == (3600.0, 1)


def test_edit_whose_put_lost_its_answer_is_not_applied_twice(connect: Connect) -> None:
    """The put counted, its answer was lost, and the put that was sent again is refused."""
    account = {
        "id": "lab", "concurrent": 10, "daily_results": 5, "daily_credits": 5, "enabled": True, "state": "ready",
        "reason": "", "closed_until": None, "sends": 0, "barred": [], "keys": [],
        "usage": {name: {"spent": 0, "held": 0, "foreign": 0, "limit": 1, "left": 1, "room_at": None}
                  for name in ("concurrent", "daily_results", "daily_credits")}
                 | {"balance": None, "balance_ends": None},
    }  # fmt: skip
    before, after = Say(200, account, {"etag": '"1"'}), Say(200, account | {"concurrent": 20}, {"etag": '"2"'})
    mismatch = problem(412, "revision_mismatch")

    def double(client: Any) -> Any:
        return client.accounts.edit("lab", lambda seen: {"concurrent": seen.concurrent * 2})

    came, requests = asked(connect, [before, HangUp(), mismatch, after], double)
    assert came.concurrent == 20
    assert [one.method for one in requests] == ["GET", "PUT", "PUT", "GET"]
    other = Say(200, account | {"concurrent": 7}, {"etag": '"3"'})
    came, requests = asked(connect, [before, HangUp(), mismatch, other], double)
    assert isinstance(came, PreconditionFailed), (
        "another client wrote after our put, which may have counted: no second try"
    )


def test_stream_from_a_generator_is_not_sent_again_but_one_from_a_list_is(connect: Connect) -> None:
    records = [{"id": "r1", "provider": "shop"}]
    good = Say(200, {"created": 1, "replaced": 0, "unchanged": 0, "refused": 0, "refusals": []})
    came, requests = asked(connect, [HangUp(), good], lambda client: client.records.load("b", iter(records)))
    assert isinstance(came, NoAnswer)
    assert len(requests) == 1
    came, requests = asked(connect, [HangUp(), good], lambda client: client.records.load("b", records))
    assert (came.created, len(requests)) == (1, 2)
    assert requests[0].body == requests[1].body == b'{"id":"r1","provider":"shop"}\n'


def test_unreadable_answer_raises_an_error_that_mentions_a_newer_version(connect: Connect) -> None:
    with pytest.raises(UnexpectedAnswer, match="newer"):
        asked(connect, [Say(200, {"id": 7})], lambda client: client.users.get())


def test_answer_of_a_proxy_becomes_a_problem_with_its_text(connect: Connect) -> None:
    came, _ = asked(connect, [Say(418, raw=b"a teapot")], lambda client: client.users.get())
    assert (type(came), came.status, came.code, came.detail) == (Problem, 418, "http_418", "a teapot")


def test_unknown_fields_and_values_of_a_newer_service_are_accepted(connect: Connect) -> None:
    came, _ = asked(connect, [Say(200, USER | {"role": "auditor", "shoe_size": 44})], lambda client: client.users.get())
    assert came.role == "auditor"


def test_request_that_takes_longer_than_the_timeout_is_given_up() -> None:
    def slow(_: Any) -> Act:
        time.sleep(0.5)
        return GOOD

    with ScriptedServer(slow) as server, Client(server.url, "t", timeout=5.0, tries=1) as client:
        assert client.users.get().id == "bob"
        with pytest.raises(NoAnswer) as caught:
            client.with_options(timeout="100ms").users.get()
    assert caught.value.may_have_counted


def test_pauses_grow_at_random_up_to_their_cap() -> None:
    plan = deliver(Call("GET", "/", Nothing()), Retries(tries_max=8), chance=lambda: 1.0)
    pauses = []
    for _ in range(7):
        assert isinstance(next(plan), Send)
        pause = plan.send(NoAnswer("gone", may_have_counted=True))
        assert isinstance(pause, Sleep)
        pauses.append(pause.seconds)
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    next(plan)
    with pytest.raises(NoAnswer):
        plan.send(NoAnswer("gone", may_have_counted=True))


def test_lines_of_a_generator_may_not_be_repeated() -> None:
    assert not Call("PUT", "/", Nothing(), lines=Lines(iter([]))).may_repeat
    assert Call("PUT", "/", Nothing(), lines=Lines([])).may_repeat


def test_service_under_a_certificate_of_its_own_is_trusted_only_with_its_authority(
    connect: Connect, tmp_path: Path
) -> None:
    files = make_certificates(tmp_path, "p", names=(), now=datetime.now(UTC))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.server)
    with ScriptedServer([GOOD], tls=context) as server:
        assert connect(server.url, "t", ca_file=files.authority).users.get().id == "bob"
        with pytest.raises(NoAnswer, match="CERTIFICATE_VERIFY_FAILED"):
            quick(connect(server.url, "t")).users.get()
        assert len(server.requests) == 1
