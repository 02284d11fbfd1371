"""Created, replaced or unchanged: what a put does to a provider, a batch or a record."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal, NamedTuple

from paceline.core.batches.batch import RecordSpec
from paceline.core.batches.records.options import options_text

Disposition = Literal["created", "replaced", "unchanged", "revision_mismatch"]


def put_disposition(*, revision: int | None, expected: int | None, same: bool) -> Disposition:
    """What a put of a provider or a batch does.

    ``revision``: of what is there, None if there is nothing; ``same``: it says what the put says. ``expected``: the
    revision that the caller has seen, 0 for nothing, None if the caller does not care.
    """
    if expected is not None and expected != (revision or 0):
        return "revision_mismatch"
    if revision is None:
        return "created"
    return "unchanged" if same else "replaced"


class RecordState(NamedTuple):
    """A record as it is, or shall be. ``number`` and ``provider`` are numbers."""

    number: int
    provider: int
    active: bool
    deleted: bool
    endpoint: str
    body: str | None
    options: str | None = None


class RecordChange(NamedTuple):
    """What a put does to a record.

    ``late``: what follows if a day of its batch is on. ``comes``: the record is to be planned into that day. ``goes``:
    it is no longer. ``stays``: it is, or is not, as before.
    """

    disposition: Literal["created", "replaced", "unchanged"]
    late: Literal["comes", "goes", "stays"]


def wanted_state(record: RecordSpec, *, number: int, provider: int) -> RecordState:
    options = options_text(record.options)
    return RecordState(number, provider, record.active, False, record.endpoint, record.body, options)


_UNCHANGED = RecordChange("unchanged", "stays")
_CREATED = {late: RecordChange("created", late) for late in ("comes", "goes", "stays")}
_REPLACED = {late: RecordChange("replaced", late) for late in ("comes", "goes", "stays")}


def put_record(now: RecordState | None, after: RecordState) -> RecordChange:
    """What becomes of a record that is put; ``now`` None: there is none of that name."""
    if now == after:
        return _UNCHANGED
    if now is None or now.deleted:
        return _CREATED["comes" if after.active else "goes"]
    if not after.active:
        return _REPLACED["goes"]
    # Also one that only changed its provider: a plan that is under way may have passed the new one already.
    comes = not now.active or now.provider != after.provider
    return _REPLACED["comes" if comes else "stays"]


def new_names(records: Iterable[RecordSpec], *, providers: Collection[str], known: Collection[str]) -> list[str]:
    """The names that are new, in the order in which they get numbers: that of the import, which a provider may keep."""
    new = (record.id for record in records if record.provider in providers and record.id not in known)
    return list(dict.fromkeys(new))
