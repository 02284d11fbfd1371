"""One line per event, readable by machines, without secrets."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from paceline.shells.logs import MASK, configure_log_file, configure_logs, warn_of_plain_http

TOKEN = "pl_0123456789ab_" + "c0ffee" * 10
CANARY = "canary-4711"


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Logging is the process's own: what it was before, it is again."""
    root = logging.getLogger()
    handlers, level, uvicorn_level = root.handlers[:], root.level, logging.getLogger("uvicorn").level
    yield
    for handler in root.handlers:
        if isinstance(handler, logging.FileHandler):
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("uvicorn").setLevel(uvicorn_level)
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[Any]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def logged(*, level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    configure_logs(level=level, log_format="auto", stream=stream)
    return stream


def test_an_event_is_one_json_line_with_its_fields() -> None:
    stream = logged()
    structlog.get_logger("t").info("purged", deleted=3, monitors=["a", "b"])
    (line,) = lines(stream)
    assert line.pop("at").endswith("Z")
    assert line == {"event": "purged", "deleted": 3, "monitors": ["a", "b"], "level": "info"}


class Screen(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_log_on_a_terminal_has_colours_unless_the_environment_forbids_them(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], *, coloured: bool
) -> None:
    for name, value in ({"TERM": "xterm"} | environment).items():
        monkeypatch.setenv(name, value)
    if "NO_COLOR" not in environment:
        monkeypatch.delenv("NO_COLOR", raising=False)
    screen = Screen()
    configure_logs(level="info", log_format="auto", stream=screen)
    structlog.get_logger("t").info("purged", deleted=3)
    assert "purged" in screen.getvalue()
    assert ("\x1b[" in screen.getvalue()) is coloured


def test_events_of_standard_library_loggers_have_the_same_form() -> None:
    stream = logged()
    logging.getLogger("uvicorn.error").warning("asked with %s", TOKEN)
    logging.getLogger("uvicorn.error").info("no news")
    (line,) = lines(stream)
    assert (line["event"], line["level"], line["logger"]) == (f"asked with {MASK}", "warning", "uvicorn.error")


def test_events_below_the_log_level_are_not_written() -> None:
    stream = logged(level="warning")
    structlog.get_logger("t").info("quiet")
    structlog.get_logger("t").warning("loud")
    assert [line["event"] for line in lines(stream)] == ["loud"]


def test_log_on_a_terminal_is_text() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    configure_logs(level="info", log_format="auto", stream=stream)
    structlog.get_logger("t").info("serving", url="http://127.0.0.1:1")
    assert "serving" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


def test_log_file_has_everything_and_stderr_only_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "demo.log"
    configure_log_file(file, level="info", log_format="auto")
    structlog.get_logger("t").info("fired", detail=f"token={TOKEN}")
    structlog.get_logger("t").error("broken")
    assert [json.loads(line)["event"] for line in file.read_text().splitlines()] == ["fired", "broken"]
    assert file.stat().st_mode & 0o777 == 0o600
    assert "c0ffee" not in file.read_text()
    told = capsys.readouterr().err
    assert ("broken" in told, "fired" in told) == (True, False)


def test_log_file_that_is_too_large_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "demo.log"
    monkeypatch.setattr("paceline.shells.logs.FILE_BYTES_MAX", 10_000)
    configure_log_file(file, level="info", log_format="json")
    for number in range(1_000):
        structlog.get_logger("t").info("fired", number=number)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["demo.log", "demo.log.1"]
    assert sum(one.stat().st_size for one in tmp_path.iterdir()) <= 20_000


@pytest.mark.parametrize(
    "fields",
    [
        {"token": CANARY},
        {"Authorization": f"Bearer {CANARY}"},
        {"secret_key": CANARY},
        {"api-key": CANARY},
        {"password": [CANARY]},
        {"headers": {"X-Api-Key": CANARY, "Cookie": CANARY}},
        {"nested": [{"deep": {"token": CANARY}}]},
        {"url": f"https://example.org/?a=1&key={CANARY}&b=2"},
        {"detail": f"GET /x?api_key={CANARY} HTTP/1.1"},
        {"detail": f"sent 'Authorization: Bearer {CANARY}' twice"},
        {"error": ValueError(f"token={CANARY}")},
        {"detail": f"key={CANARY}"},
    ],
    ids=str,
)
def test_secret_fields_are_masked_in_log_lines(fields: dict[str, Any]) -> None:
    stream = logged()
    structlog.get_logger("t").info("said", **fields)
    assert CANARY not in stream.getvalue()
    assert MASK in stream.getvalue()


def test_token_is_masked_everywhere_in_a_log_line_and_in_a_traceback() -> None:
    stream = logged()
    try:
        json.loads(TOKEN)
    except ValueError:
        structlog.get_logger("t").exception(f"failed with {TOKEN}", run=f"a/b#{TOKEN}")
    assert "c0ffee" not in stream.getvalue()
    assert "JSONDecodeError" in lines(stream)[0]["exception"]


def test_log_fields_that_are_not_secret_stay_readable() -> None:
    stream = logged()
    structlog.get_logger("t").info("said", url="https://example.org/?monkey=1&page=2", token_id="0123456789ab", keys=3)
    (line,) = lines(stream)
    assert (line["url"], line["token_id"], line["keys"]) == ("https://example.org/?monkey=1&page=2", "0123456789ab", 3)


@pytest.mark.parametrize(
    ("host", "tls", "warned"),
    [
        ("127.0.0.1", False, False),
        ("::1", False, False),
        ("localhost", False, False),
        ("0.0.0.0", False, True),  # noqa: S104  nothing listens here
        ("::", False, True),
        ("192.0.2.1", False, True),
        ("192.0.2.1", True, False),
    ],
)
def test_plain_http_beyond_this_machine_is_warned_of(host: str, tls: bool, warned: bool) -> None:  # noqa: FBT001
    stream = logged()
    warn_of_plain_http(host, tls=tls)
    assert [(line["event"], line["level"]) for line in lines(stream)] == [("plain_http", "warning")] * warned
