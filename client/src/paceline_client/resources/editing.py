"""Guarded edits: read, change, put with the ETag, and repeat if somebody else was faster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from paceline_client.answers import document_of, plain
from paceline_client.calls import Described, Plan
from paceline_client.problems import PreconditionFailed

EDITS_MAX = 10


class Tagged(Protocol):
    """A model that came with its ETag."""

    @property
    def etag(self) -> str | None: ...


M = TypeVar("M", bound=Tagged)


def guarded_edit(
    read: Described[M], put: Callable[..., Described[M]], definition: type, change: Callable[[M], Mapping[str, object]]
) -> Plan[M]:
    """Puts the changed definition only if the stored one is still the one that was read. Returns the new one.

    ``definition`` is the document that ``put`` takes. ``change`` gets the stored model and returns the fields to
    change.

    If a put was cut off and the next one is refused, our own put may have made the difference, and a repetition could
    apply the change twice. Then the stored definition decides: if it is the wanted one, it is returned, else the
    refusal is raised.
    """
    names = tuple(definition.__annotations__)
    for _ in range(EDITS_MAX):
        seen = yield from read
        wanted = _definition(seen, names) | plain(change(seen))
        try:
            return (yield from put(if_match=seen.etag, **wanted))
        except PreconditionFailed as error:
            lost = error
        if lost.may_have_counted:
            now = yield from read
            if _definition(now, names) == {name: value for name, value in wanted.items() if value is not None}:
                return now
            raise lost
    raise lost


def _definition(model: Any, names: Iterable[str]) -> dict[str, Any]:
    """Returns the fields of a model that a put takes, as a document."""
    values = {name: getattr(model, name) for name in names}
    return {name: plain(document_of(value)) for name, value in values.items() if value is not None}
