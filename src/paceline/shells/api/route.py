"""What is said of a route: how it is reached, who may, what it takes and answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from paceline.errors import (
    BodyTooLarge,
    BodyTooSlow,
    Forbidden,
    InvalidInput,
    MalformedBody,
    NotFound,
    PacelineError,
    StoreDamaged,
    StoreUnavailable,
    Throttled,
    Unauthenticated,
)
from paceline.shells.api.answers import Answer, Stream
from paceline.shells.api.parts import Call
from paceline.shells.api.problems import UnsupportedMediaType

Access = Literal["open", "user", "admin"]
Handler = Callable[[Call], Awaitable[Answer | Stream]]

SMALL_BYTES_MAX = 1_048_576
"""More than any single document can need."""


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str
    handler: Handler
    group: str
    summary: str
    answers: Mapping[int, Any]
    """Status to the type of the body, or to several; None: no body; a str: its media type, or several with a comma."""
    access: Access = "user"
    body: type | None = None
    """Decoded before the handler is called."""
    document: str | None = None
    """Instead of ``body``: the name of a schema whose JSON the handler gets as bytes."""
    body_needed: bool = True
    body_bytes_max: int = SMALL_BYTES_MAX
    """The setting of the same name bounds it too."""
    streamed: bool = False
    """The handler reads the body itself: one JSON document, or one JSON value to a line and then of any length."""
    paged: bool = False
    query: tuple[str, ...] = ()
    """Query parameters that it knows, beyond those of a list."""
    waits: bool = False
    """A long poll: taking long is its purpose."""
    headers: tuple[str, ...] = ()
    """Request headers that it heeds."""
    problems: tuple[type[PacelineError], ...] = field(default=())
    """Those beyond what access, body and pages bring with them."""

    @property
    def has_body(self) -> bool:
        return self.body is not None or self.document is not None

    @property
    def all_problems(self) -> tuple[type[PacelineError], ...]:
        """Every problem it may answer with, but for 405 and 500, which any may."""
        problems: list[type[PacelineError]] = [InvalidInput]
        if self.access != "open":
            problems += [Unauthenticated, Throttled, StoreUnavailable, StoreDamaged]
        if self.access == "admin":
            problems.append(Forbidden)
        if self.has_body:
            problems += [MalformedBody, BodyTooSlow, BodyTooLarge, UnsupportedMediaType]
        if "{" in self.path:
            problems.append(NotFound)
        return tuple(dict.fromkeys([*problems, *self.problems]))
