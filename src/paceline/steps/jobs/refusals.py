"""Refused jobs: the newest of each user are kept, so that the reason can be explained."""

from __future__ import annotations

from paceline.core.why.refusals import (
    KEPT_MS,
    JobRefusal,
    RefusalName,
    Refusals,
    find_refusal,
    refusal_id,
    why_refused,
    with_refusal,
)
from paceline.errors import NotFound
from paceline.ports import Store
from paceline.ports.items import ItemStore
from paceline.steps.collection import Collection, write
from paceline.steps.why.view import WhyView, why_view

REFUSALS = Collection("refusals", Refusals)
TRIES_MAX = 5


def note_refusal(store: ItemStore, owner: str, new: JobRefusal) -> str | None:
    """Keep the refusal and return its id; None: it was not kept, because others of the user came at the same time."""
    for _ in range(TRIES_MAX):
        found = REFUSALS.find(store, owner)
        after = with_refusal(found.value or Refusals(), new)
        if write(store, [REFUSALS.change(found, after, expires_ms=new.at_ms + KEPT_MS)]):
            return refusal_id(owner, after.last)
    return None


def remove_refusals(store: ItemStore, owner: str) -> None:
    REFUSALS.delete(store, owner)


def explain_refusal(store: Store, name: RefusalName, *, viewer: str | None, now_ms: int) -> WhyView:
    """Return why a job was refused. ``viewer`` None may see anybody's; raise NotFound if none of this name is kept."""
    user = store.user(name.owner) if viewer in (None, name.owner) else None
    budget = None if user is None else store.budget(user.id, now_ms=now_ms)
    known = None if user is None else REFUSALS.get(store, user.id)
    if user is None or budget is None or known is None:
        raise _no_refusal(name)
    refusal = find_refusal(known, name, since_ms=user.created_ms, now_ms=now_ms)
    if refusal is None:
        raise _no_refusal(name)
    return why_view(why_refused(user.id, refusal, budget))


def _no_refusal(name: RefusalName) -> NotFound:
    which = "refusal" if name.number is None else f"refusal {name.number}"
    return NotFound(f"There is no {which} of {name.owner[:100]!r}: the newest 20 of 30 days are kept.")
