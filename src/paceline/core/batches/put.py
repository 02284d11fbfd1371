"""Dispositions of a put of a provider, a batch or a record: created, replaced or unchanged."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from paceline.core.batches.batch import RecordSpec
from paceline.core.batches.records.options import options_text
from paceline.core.batches.values import RecordPut

Disposition = Literal["created", "replaced", "unchanged", "revision_mismatch"]


def put_disposition(*, revision: int | None, expected: int | None, same: bool) -> Disposition:
    """Return what a put of a provider or a batch does.

    ``revision``: the stored one, None if nothing is stored; ``same``: the stored definition equals the new one.
    ``expected``: the revision that the caller has seen, 0 for nothing, None if the caller does not care.
    """
    if expected is not None and expected != (revision or 0):
        return "revision_mismatch"
    if revision is None:
        return "created"
    return "unchanged" if same else "replaced"


class RecordState(NamedTuple):
    """A record as it is stored, or as a put wants it. ``provider`` is the provider's number."""

    number: int
    provider: int
    active: bool
    deleted: bool
    endpoint: str
    body: str | None
    options: str | None = None


class RecordChange(NamedTuple):
    """Effect of a put on a record.

    ``late``: what follows if a day of its batch is on. ``comes``: the record is to be planned into that day. ``goes``:
    it no longer is. ``stays``: nothing changes for that day.
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
    """Return the effect of a put on a record; ``now`` None: no record has that name."""
    if now == after:
        return _UNCHANGED
    if now is None or now.deleted:
        return _CREATED["comes" if after.active else "goes"]
    if not after.active:
        return _REPLACED["goes"]
    # Also if only the provider changed: a plan in progress may have passed the new provider already.
    comes = not now.active or now.provider != after.provider
    return _REPLACED["comes" if comes else "stays"]


def new_names(records: Iterable[RecordSpec], *, providers: Collection[str], known: Collection[str]) -> list[str]:
    """Return the new names in the order in which they get numbers: that of the import, which a provider may keep."""
    new = (record.id for record in records if record.provider in providers and record.id not in known)
    return list(dict.fromkeys(new))


class RecordPuts:
    """Judges a page of records one by one. ``now``: all of them by name, as they are afterwards.

    ``came`` and ``went``: numbers, by name, of the records that are to be planned into a day that is on, and of those
    that no longer are.
    """

    def __init__(
        self, known: Mapping[str, RecordState], *, providers: Mapping[str, int], numbers: Mapping[str, int]
    ) -> None:
        """Take the existing records by name. ``numbers``: numbers of the new records by name (``new_names``)."""
        self._known = known
        self._providers = providers
        self._numbers = numbers
        self.now = dict(known)
        self.came: dict[str, int] = {}
        self.went: dict[str, int] = {}

    def judge(self, records: Sequence[RecordSpec]) -> list[RecordPut]:
        return [self._judge(record) for record in records]

    def changed(self) -> dict[str, RecordState]:
        """Return the records that must be written, by name."""
        return {name: after for name, after in self.now.items() if after != self._known.get(name)}

    def _judge(self, record: RecordSpec) -> RecordPut:
        provider = self._providers.get(record.provider)
        if provider is None:
            return "no_provider"
        now = self.now.get(record.id)
        number = now.number if now is not None else self._numbers[record.id]
        after = wanted_state(record, number=number, provider=provider)
        change = put_record(now, after)
        self.now[record.id] = after
        if change.late != "stays":
            into, out_of = (self.came, self.went) if change.late == "comes" else (self.went, self.came)
            into[record.id] = number
            out_of.pop(record.id, None)
        return change.disposition
