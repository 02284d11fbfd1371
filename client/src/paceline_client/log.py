"""Log lines with fields: through structlog if it is installed, else through ``logging``."""

from __future__ import annotations

import logging
from typing import Any, Protocol

NAME = "paceline_client"


class Log(Protocol):
    """Logs an event, which is one word, with fields."""

    def info(self, event: str, **fields: Any) -> object: ...
    def warning(self, event: str, **fields: Any) -> object: ...


class PlainLog:
    """Logs through ``logging`` with the fields as text: ``lease_lost run='alice/home#1@7'``."""

    def __init__(self) -> None:
        self._log = logging.getLogger(NAME)

    def info(self, event: str, **fields: Any) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write(logging.WARNING, event, fields)

    def _write(self, level: int, event: str, fields: dict[str, Any]) -> None:
        exc_info = fields.pop("exc_info", None)
        text = " ".join([event, *(f"{name}={value!r}" for name, value in fields.items())])
        self._log.log(level, "%s", text, exc_info=exc_info)


def get_log() -> Log:
    try:
        import structlog  # noqa: PLC0415  an extra
    except ImportError:
        return PlainLog()
    log: Log = structlog.get_logger(NAME)
    return log
