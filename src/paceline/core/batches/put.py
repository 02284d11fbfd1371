"""Created, replaced or unchanged: what a put does to a provider, a batch or a record."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from paceline.core.batches.batch import RecordSpec
from paceline.core.batches.records.options import options_text
from paceline.core.batches.values import RecordPut

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


class RecordPuts:
    """A page of records, judged one by one against what is there. ``now``: all of them by name, as they are after it.

    ``came`` and ``went``: by name, the numbers of those that are to be planned into a day that is on, and of those that
    no longer are.
    """

    def __init__(
        self, known: Mapping[str, RecordState], *, providers: Mapping[str, int], numbers: Mapping[str, int]
    ) -> None:
        """``numbers``: of the records that are new, by name (``new_names``)."""
        self._known = known
        self._providers = providers
        self._numbers = numbers
        self.now = dict(known)
        self.came: dict[str, int] = {}
        self.went: dict[str, int] = {}

    def judge(self, records: Sequence[RecordSpec]) -> list[RecordPut]:
        return [self._judge(record) for record in records]

    def changed(self) -> dict[str, RecordState]:
        """The records that are to be written, by name."""
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
