"""Two stores that are asked the same, and the comparison of what they answer."""

from __future__ import annotations

import difflib
import pprint
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from paceline.errors import PacelineError
from paceline.ports import Store
from tests.differential.support.plain import Names

T = TypeVar("T")


class Side:
    """One of the two stores."""

    def __init__(self, name: str, store: Store) -> None:
        self.name = name
        self.store = store
        self.names = Names()


class Both(NamedTuple):
    """What each store answered, as it answered. After a comparison they differ in a store's own numbers only."""

    sqlite: Any
    aws: Any

    def of(self, side: Side) -> Any:
        return self.sqlite if side.name == "sqlite" else self.aws

    @property
    def raised(self) -> bool:
        return isinstance(self.sqlite, PacelineError)


class Different(AssertionError):
    """The stores disagree."""


class Damaged(AssertionError):
    """A store finds something wrong with itself."""


class Pair:
    def __init__(self, *, sqlite: Store, aws: Store) -> None:
        self.sqlite = Side("sqlite", sqlite)
        self.aws = Side("aws", aws)

    def ask(self, act: str, ask: Callable[[Side], Any], *, arrange: Callable[[Any], Any] | None = None) -> Both:
        """Asks both and compares. ``arrange``: puts an answer into an order where the port promises none.

        An error that a store raises for its caller is an answer too.
        """
        both = Both(_answer(ask, self.sqlite), _answer(ask, self.aws))
        shown = Both(*(_shown(side, both.of(side), arrange) for side in (self.sqlite, self.aws)))
        if shown.sqlite != shown.aws:
            raise Different(f"the stores disagree on {act}:\n{_difference(shown)}")
        return both


def _answer(ask: Callable[[Side], Any], side: Side) -> Any:
    try:
        return ask(side)
    except PacelineError as error:
        return error


def _shown(side: Side, answer: Any, arrange: Callable[[Any], Any] | None) -> Any:
    if arrange is not None and not isinstance(answer, PacelineError):
        answer = arrange(answer)
    return side.names.plain(answer)


def _difference(shown: Both) -> str:
    sqlite, aws = (pprint.pformat(answer, width=110, sort_dicts=False).splitlines() for answer in shown)
    return "\n".join(difflib.unified_diff(sqlite, aws, fromfile="sqlite", tofile="aws", n=4, lineterm=""))
