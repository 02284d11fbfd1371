"""Items of the processes that work on the store."""

from __future__ import annotations

import msgspec

from paceline.adapters.aws.database import Database
from paceline.adapters.aws.items import Item, Key, delete, setting, update
from paceline.adapters.aws.tables import EXPIRES, RUNS
from paceline.core.daemons import Daemon

DAEMONS = "daemons"
DAEMONS_MAX = 1_000
KEPT_S = 7 * 86_400
"""DynamoDB forgets an item by itself whose process was never seen again."""


def beat(db: Database, daemon: Daemon) -> None:
    fields = msgspec.structs.asdict(daemon) | {EXPIRES: daemon.beat_ms // 1_000 + KEPT_S}
    name = fields.pop("id")
    change, values = setting(fields)
    db.write(update(RUNS, Key(DAEMONS, name), change, when="", **values))


def daemons(db: Database, *, limit: int) -> list[Daemon]:
    found = [_daemon(item) for item in db.query(RUNS, "#pk = :pk", limit=DAEMONS_MAX, pk=DAEMONS)]
    return sorted(found, key=lambda one: (-one.beat_ms, one.id))[:limit]


def forget(db: Database, daemon_id: str) -> None:
    db.write(delete(RUNS, Key(DAEMONS, daemon_id)))


def forget_before(db: Database, *, before_ms: int) -> int:
    old = [one for one in daemons(db, limit=DAEMONS_MAX) if one.beat_ms < before_ms]
    # Not if it has said in between that it is there.
    return sum(
        db.write(delete(RUNS, Key(DAEMONS, one.id), when="#beat_ms < :before", before=before_ms)).won for one in old
    )


def _daemon(item: Item) -> Daemon:
    return Daemon(item["sk"], *(item[name] for name in Daemon.__struct_fields__ if name != "id"))
