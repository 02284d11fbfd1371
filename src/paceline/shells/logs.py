"""Logging of the daemon: one line per event with fields, to stderr or a file, and never a secret."""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import sys
from collections.abc import MutableMapping
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Literal, TextIO

import structlog

MASK = "***"
DEPTH_MAX = 6
FILE_BYTES_MAX = 10_000_000
"""A larger log file is renamed, and replaces the one that was renamed before."""
_SECRET_NAMES = frozenset({"token", "secret", "authorization", "key", "password", "passwd", "cookie", "apikey"})
_SECRET_TEXTS = (
    (re.compile(r"pl_[0-9A-Za-z]+_[0-9A-Za-z]+"), MASK),
    (re.compile(r"(?i)\b((?:[a-z]+[_-])?(?:key|apikey|token|secret|password)=)[^&\s\"'<>]+"), rf"\1{MASK}"),
    (re.compile(r"(?i)\b(bearer\s+)[^\s\"',]+"), rf"\1{MASK}"),
)


LogFormat = Literal["auto", "json", "text"]


def configure_logs(*, level: str, log_format: LogFormat, stream: TextIO | None = None) -> None:
    """Logs to a stream: text on a terminal and JSON elsewhere, unless a format is set.

    Covers the standard library's loggers.
    """
    target = sys.stderr if stream is None else stream
    text = log_format == "text" or (log_format == "auto" and target.isatty())
    _log_to(_handler(logging.StreamHandler(target), text=text, colors=_takes_colors(target)), level=level)


def configure_log_file(file: Path, *, level: str, log_format: LogFormat) -> None:
    """Logs to a file of mode 0600, as JSON unless a format is set.

    Errors go to stderr too, so that somebody sees them.
    """
    file.touch(mode=0o600)
    kept = RotatingFileHandler(file, maxBytes=FILE_BYTES_MAX, backupCount=1, encoding="utf-8")
    errors = _handler(logging.StreamHandler(sys.stderr), text=True, colors=_takes_colors(sys.stderr))
    errors.setLevel(logging.ERROR)
    _log_to(_handler(kept, text=log_format == "text", colors=False), errors, level=level)


def _takes_colors(stream: TextIO) -> bool:
    """Whether a log there may have colours: on a terminal, unless NO_COLOR is set or TERM is dumb."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _log_to(*handlers: logging.Handler, level: str) -> None:
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_shared(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    root.handlers[:] = handlers
    root.setLevel(level.upper())
    # The daemon itself logs when it serves and stops; of the server's log only warnings and errors are of use.
    logging.getLogger("uvicorn").setLevel("DEBUG" if level == "debug" else "WARNING")


def _shared() -> list[structlog.typing.Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
        structlog.processors.format_exc_info,
        redact,
    ]


def _handler(handler: logging.Handler, *, text: bool, colors: bool) -> logging.Handler:
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, structlog.stdlib.ExtraAdder(), *_shared()],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _renderer(text=text, colors=colors),
            ],
        )
    )
    return handler


def warn_of_plain_http(host: str, *, tls: bool) -> None:
    """Logs a warning if tokens would cross a network in the clear."""
    if tls or host == "localhost":
        return
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        structlog.get_logger("paceline").warning(
            "plain_http",
            host=host,
            detail="Tokens and answers cross the network unencrypted. Use --tls-cert and --tls-key, --tls-self-signed,"
            " or listen on 127.0.0.1 behind a proxy that speaks HTTPS.",
        )


def redact(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Masks values whose names are secret, and parts of texts that look like secrets."""
    for name, value in event.items():
        if not name.startswith("_"):
            event[name] = _masked(name, value, depth=0)
    return event


def _masked(name: str, value: Any, *, depth: int) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if re.split(r"[_.-]", name.lower())[-1] in _SECRET_NAMES or depth > DEPTH_MAX:
        return MASK
    if isinstance(value, dict):
        return {inner: _masked(str(inner), below, depth=depth + 1) for inner, below in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_masked(name, below, depth=depth + 1) for below in value]
    return _masked_text(value if isinstance(value, str) else str(value))


def _masked_text(text: str) -> str:
    for pattern, replacement in _SECRET_TEXTS:
        text = pattern.sub(replacement, text)
    return text


def _renderer(*, text: bool, colors: bool) -> structlog.typing.Processor:
    if text:
        return structlog.dev.ConsoleRenderer(colors=colors, timestamp_key="at")
    return structlog.processors.JSONRenderer()
