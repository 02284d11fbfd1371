"""Items in ``ledger``: a partition for each kind, sorted by key."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.adapters.aws.base import AwsStorePart
from paceline.adapters.aws.client.expiry import to_s
from paceline.adapters.aws.client.items import ABSENT, Action, DynamoKey, delete, joined, put
from paceline.adapters.aws.client.tables import EXPIRES, LEDGER
from paceline.ports.items import ANYTHING, ItemKey, ItemWrite


class AwsItemStore(AwsStorePart):
    """Fills ``ports.items.ItemStore``."""

    def get_items(self, keys: Sequence[ItemKey]) -> dict[ItemKey, bytes]:
        places = {_place(at): at for at in keys}
        if len(places) == 1:  # a single read costs less than a batch of one
            ((place, at),) = places.items()
            item = self._database.get(LEDGER, place)
            return {} if item is None else {at: item["value"]}
        found = self._database.get_many(LEDGER, places)
        return {at: found[place]["value"] for place, at in places.items() if place in found}

    def items_after(self, kind: str, *, after: str, before: str, limit: int) -> list[tuple[str, bytes]]:
        # The bounds are included, so one row more is read.
        rows = self._database.page(LEDGER, _pk(kind), limit=limit + bool(after), first=after, last=before)
        return [(row["sk"], row["value"]) for row in rows if row["sk"] not in (after, before)][:limit]

    def write_items(self, writes: Sequence[ItemWrite]) -> dict[ItemKey, bytes | None]:
        done = self._database.transact([_action(one) for one in writes])
        if done.won:
            return {}
        return {
            one.at: None if item is None else item["value"]
            for one, lost, item in zip(writes, done.lost, done.items, strict=True)
            if lost
        }


def _action(write: ItemWrite) -> Action:
    place, when, values = _place(write.at), *_condition(write)
    if write.value is None:
        return delete(LEDGER, place, when=when, **values)
    expires_s = None if write.expires_ms is None else to_s(write.expires_ms)
    item = {"pk": place.pk, "sk": place.sk, "value": write.value, EXPIRES: expires_s}
    return put(LEDGER, item, when=when, **values)


def _condition(write: ItemWrite) -> tuple[str, dict[str, bytes]]:
    match write.believed:
        case None:
            return ABSENT, {}
        case bytes():
            return "#value = :believed", {"believed": write.believed}
        case _:
            assert write.believed is ANYTHING
            return "", {}


def _place(at: ItemKey) -> DynamoKey:
    return DynamoKey(_pk(at.kind), at.key)


def _pk(kind: str) -> str:
    return joined("item", kind)
