"""The RIPE Atlas client against answers that RIPE should not give, and answers of machines in between."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from paceline.adapters.providers.guard import NOT_PUBLIC
from paceline.adapters.providers.ripe_atlas import ANSWER_BYTES_MAX, RipeAtlas
from paceline.config import load_settings
from paceline.core.jobs.atlas import Created, Lost, Refused, marker_prefix, marker_tag
from paceline.core.jobs.atlas_replies import Credits, Delivered, KeyCheck
from paceline.errors import WrongSetting
from paceline.simulators.http import ModelAnswer, ModelHttpServer, ModelRequest
from paceline.wiring import open_atlas
from tests.adapters.providers.support.atlas_stage import CANARY, marker, send

KEY = CANARY
HTML = (("Content-Type", "text/html"),)


class Canned:
    """Answers every request as the test says."""

    def __init__(self, give: Callable[[ModelRequest], ModelAnswer]) -> None:
        self.answer = give


@contextmanager
def answering(give: Callable[[ModelRequest], ModelAnswer] | ModelAnswer) -> Iterator[tuple[RipeAtlas, ModelHttpServer]]:
    model = Canned(give if callable(give) else lambda _request: give)
    with ModelHttpServer(model=model) as server:
        atlas = RipeAtlas(server.base_url, timeout_ms=5_000)
        yield atlas, server
        atlas.close()


def documented(document: Any, status: int = 200) -> ModelAnswer:
    return ModelAnswer(status, json.dumps(document).encode())


def page(*rows: dict[str, Any], following: str | None = None, **more: Any) -> ModelAnswer:
    return documented({"count": len(rows), "next": following, "previous": None, "results": rows, **more})


def row(id_: int, *, status: int = 2, **more: Any) -> dict[str, Any]:
    return {"id": id_, "status": {"id": status, "name": "?"}} | more


async def endless(piece: bytes) -> AsyncIterator[bytes]:
    while True:
        yield piece
        await asyncio.sleep(0.001)  # so that the server notices that the client is gone


def everything(atlas: RipeAtlas, key: str) -> list[Any]:
    """Returns the answer to each kind of request."""
    lines: list[bytes] = []
    return [
        send(atlas, key),
        atlas.find_by_marker(key, marker_tag(marker())),
        atlas.running_by_marker(key, marker_tag(marker())),
        atlas.statuses(key, [1]),
        atlas.in_flight(key),
        atlas.credits(key),
        atlas.stop(key, 1),
        atlas.results(key, 1, lines.append, bytes_max=1_000_000),
        atlas.check_key(key),
        lines,
    ]


# -- the key


def echo(status: int, *, json_body: bool) -> Callable[[ModelRequest], ModelAnswer]:
    """A gateway that echoes the request, in capitals too."""

    def give(request: ModelRequest) -> ModelAnswer:
        said = " ".join([*request.headers.values(), request.target, KEY.upper()])
        if json_body:
            return documented({"error": {"status": status, "detail": said, "title": said}}, status)
        return ModelAnswer(status, f"<html>{said}</html>".encode(), HTML)

    return give


@pytest.mark.parametrize("json_body", [True, False])
@pytest.mark.parametrize("status", [200, 201, 302, 400, 401, 403, 404, 429, 500, 503])
def test_a_key_that_is_echoed_is_in_no_answer_log_or_repr(
    status: int,
    json_body: bool,  # noqa: FBT001
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    with answering(echo(status, json_body=json_body)) as (atlas, server):
        answers = everything(atlas, KEY)
        sent = [request.headers for request in server.log.latest]
    assert KEY in str(sent)
    shown = repr(answers) + repr(vars(atlas)) + caplog.text + "".join(capfd.readouterr())
    assert KEY not in shown.lower()
    assert "c0ffee" not in shown.lower()


def test_a_redirect_and_a_link_to_another_host_are_not_followed() -> None:
    with answering(ModelAnswer(200, b"{}")) as (_, other):
        redirect = ModelAnswer(307, b"", (("Location", f"{other.base_url}/api/v2/credits/"),))
        with answering(redirect) as (atlas, _):
            answer = atlas.credits(KEY)
            assert isinstance(answer, Refused), answer
            assert answer.scope == "global"
            assert isinstance(send(atlas, KEY), Refused)
        tag = marker_tag(marker())

        def give(request: ModelRequest) -> ModelAnswer:
            number = int(request.parameter("page", "1"))
            following = f"{other.base_url}/elsewhere" if number < 3 else None
            return page(row(number, tags=[tag]), following=following)

        with answering(give) as (atlas, _):
            found = atlas.find_by_marker(KEY, tag)
        assert not isinstance(found, Refused | Lost)
        assert [one.id for one in found] == [1, 2, 3]
        assert other.log.latest == []


# -- sizes and times


@pytest.mark.parametrize("status", [200, 201, 400, 503])
def test_huge_answer_of_ripe_is_cut_and_not_interpreted(status: int) -> None:
    with answering(lambda _request: ModelAnswer(status, stream=endless(b" " * 65_536))) as (atlas, _):
        answers = [send(atlas, KEY), atlas.credits(KEY), atlas.check_key(KEY)]
    expected = Refused if status == 400 else Lost
    assert [type(answer) for answer in answers] == [expected] * 3
    assert all(len(answer.reason) < 600 for answer in answers if isinstance(answer, Refused | Lost))
    if status == 201:
        assert str(ANSWER_BYTES_MAX) in repr(answers[0])


def test_results_without_an_end_stop_at_the_bound_or_at_the_longest_line() -> None:
    line = b'{"msm_id": 1, "prb_id": 2}\n'
    lines: list[bytes] = []
    with answering(lambda _request: ModelAnswer(200, stream=endless(line * 100))) as (atlas, _):
        answer = atlas.results(KEY, 1, lines.append, bytes_max=len(line) * 1_000)
    assert answer == Delivered(1_000, len(line) * 1_000, whole=False)
    assert set(lines) == {line.strip()}
    with answering(lambda _request: ModelAnswer(200, stream=endless(b" [" * 32_768))) as (atlas, _):
        endless_line = atlas.results(KEY, 1, lines.append, bytes_max=1_000_000_000)
    assert isinstance(endless_line, Lost), endless_line
    assert len(lines) == 1_000


def test_a_server_that_says_nothing_costs_no_more_than_the_deadline() -> None:
    with answering(ModelAnswer(200, b"{}", delay_ms=20_000)) as (_, server):
        atlas = RipeAtlas(server.base_url, timeout_ms=200)
        answers = [send(atlas, KEY), atlas.credits(KEY), atlas.stop(KEY, 1)]
        atlas.close()
    assert [type(answer) for answer in answers] == [Lost] * 3
    assert all("timed out after 200ms" in repr(answer) for answer in answers)


@pytest.mark.parametrize(
    ("headers", "pause_ms"),
    [
        ({"Retry-After": "30"}, 30_000),
        ({"retry-after": "Mon, 16 Nov 2026 10:01:30 GMT", "Date": "Mon, 16 Nov 2026 10:00:00 GMT"}, 90_000),
        ({"Retry-After": "Mon, 16 Nov 2026 10:01:30 GMT"}, None),
        ({"Retry-After": "soon", "Date": "Mon, 16 Nov 2026 10:00:00 GMT"}, None),
        ({"Retry-After": "999999999"}, 86_400_000),
    ],
)
def test_retry_after_is_read_in_seconds_or_as_a_date(headers: dict[str, str], pause_ms: int | None) -> None:
    with answering(ModelAnswer(429, b"slow down", tuple(headers.items()))) as (atlas, _):
        answers = [send(atlas, KEY), atlas.in_flight(KEY)]
    assert [answer.retry_after_ms for answer in answers if isinstance(answer, Refused)] == [pause_ms] * 2


# -- answers of the wrong shape


@pytest.mark.parametrize(
    "document",
    [
        {},
        [],
        None,
        {"count": -1, "results": []},
        {"count": 1, "results": [{"id": 0, "status": {"id": 2}}]},
        {"count": 1, "results": [{"id": 1, "status": "Ongoing"}]},
        {"current_balance": "many", "past_day_credits_spent": 1, "past_day_measurement_results": 1},
        {"current_balance": 1, "past_day_credits_spent": -1, "past_day_measurement_results": 1},
    ],
)
def test_an_answer_of_the_wrong_shape_is_lost(document: Any) -> None:
    with answering(documented(document)) as (atlas, _):
        answers = everything(atlas, KEY)
    del answers[6]  # a stop needs no words
    *asked, lines = answers
    assert [type(answer) for answer in asked] == [Lost] * 8
    assert lines == []


@pytest.mark.parametrize("ids", [[], [0], [-1], [1, 2], ["1"], [1.5], None])
def test_answer_with_impossible_measurement_ids_counts_as_lost(ids: Any) -> None:
    with answering(documented({"measurements": ids}, 201)) as (atlas, _):
        assert isinstance(send(atlas, KEY), Lost)


def test_warnings_of_a_creation_are_handed_on() -> None:
    warnings = [{"source": {"parameter": "x"}, "detail": ["ignored"]}]
    with answering(documented({"measurements": [7], "warnings": warnings}, 201)) as (atlas, _):
        answer = send(atlas, KEY)
    assert isinstance(answer, Created), answer
    assert "ignored" in answer.warnings


def test_a_filter_that_was_ignored_is_noticed() -> None:
    def ignored(name: str) -> ModelAnswer:
        return page(row(5), warnings=[{"source": {"parameter": name}, "detail": ["ignored"]}])

    with answering(ignored("status__in")) as (atlas, _):
        assert isinstance(atlas.in_flight(KEY), Lost)
    with answering(page(row(5, status=4))) as (atlas, _):
        assert isinstance(atlas.in_flight(KEY), Lost)
    with answering(ignored("id__in")) as (atlas, _):
        assert isinstance(atlas.statuses(KEY, [5]), Lost)
    tag = marker_tag(marker(1))
    rows = [row(1), row(2, tags=[f"{tag}1"]), row(3, tags=[tag]), row(4, description=f"{marker_prefix(marker(1))} d")]
    with answering(page(*rows, row(9, tags=[tag], status=4))) as (atlas, _):
        found, running = atlas.find_by_marker(KEY, tag), atlas.running_by_marker(KEY, tag)
        statuses = atlas.statuses(KEY, [3, 4])
    assert not isinstance(found, Refused | Lost)
    assert not isinstance(running, Refused | Lost)
    assert [one.id for one in found] == [3, 4, 9]
    assert [one.id for one in running] == [3, 4]
    assert set(statuses) == {3, 4}


def test_a_list_that_does_not_end_is_given_up() -> None:
    with answering(page(row(1), following="http://example.org/")) as (atlas, server):
        answer = atlas.find_by_marker(KEY, "t")
        assert len(server.log.latest) == 40
    assert isinstance(answer, Lost), answer


def test_results_of_another_measurement_are_not_taken() -> None:
    lines: list[bytes] = []
    with answering(ModelAnswer(200, b'{"msm_id": 1}\n\n{"msm_id": 2}\n')) as (atlas, _):
        assert isinstance(atlas.results(KEY, 1, lines.append, bytes_max=1_000), Lost)
    assert lines == [b'{"msm_id": 1}']
    with answering(ModelAnswer(200, b'{"msm_id": 1}\n{"msm_id": 1, "a": 2}')) as (atlas, _):
        assert atlas.results(KEY, 1, lines.append, bytes_max=1_000) == Delivered(2, 36, whole=True)
    with answering(ModelAnswer(200, b'[{"msm_id": 1}, {"msm_id": 1}]')) as (atlas, _):
        assert isinstance(atlas.results(KEY, 1, lines.append, bytes_max=1_000), Lost)


def test_credits_of_an_older_ripe_have_no_limit() -> None:
    document = {"current_balance": 9.0, "past_day_credits_spent": 180, "past_day_measurement_results": 3.0}
    with answering(documented(document)) as (atlas, _):
        assert atlas.credits(KEY) == Credits(balance=9, spent_day=180, results_day=3)


def test_grant_bound_to_one_object_does_not_count_as_a_permission() -> None:
    def give(request: ModelRequest) -> ModelAnswer:
        if "/keys/" in request.target:
            grants = [
                {"permission": "measurements.create_measurement", "target": None},
                {"permission": "measurements.stop_measurement", "target": {"type": "msm", "id": "5"}},
            ]
            return documented({"results": [{"uuid": "other", "grants": []}, {"uuid": KEY, "grants": grants}]})
        if "/credits/" in request.target:
            return documented({"current_balance": 1, "past_day_credits_spent": 1, "past_day_measurement_results": 1})
        return page()

    with answering(give) as (atlas, _):
        checked = atlas.check_key(KEY)
    assert isinstance(checked, KeyCheck), checked
    assert [problem.split(" (")[0] for problem in checked.problems] == ["it may not stop a measurement"]


# -- addresses


def test_a_name_that_leads_to_a_private_address_is_refused_unless_it_is_allowed() -> None:
    with ModelHttpServer() as server:
        # A spelling of 127.0.0.1 that is no address to Python: to the guard it is a name like any other.
        url = f"http://127.1:{server.port}"
        for allow, reason in (("", NOT_PUBLIC), ("127.0.0.0/8", "404")):
            atlas = open_atlas(load_settings(atlas_url=url, outbound_allow=allow))
            answer = atlas.credits(KEY)
            assert isinstance(answer, Refused | Lost), answer
            assert reason in answer.reason
            atlas.close()


@pytest.mark.parametrize("url", ["ftp://a", "https://", "https://me:pw@a", "https://a?key=1", "https://a#b"])
def test_atlas_url_setting_that_is_not_a_plain_url_is_refused(url: str) -> None:
    with pytest.raises(WrongSetting, match="PACELINE_ATLAS_URL"):
        load_settings(atlas_url=url)
