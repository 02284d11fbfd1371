"""APScheduler 4 (alpha) with its SQLAlchemy data store on SQLite."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import sqlalchemy as sa  # type: ignore[import-not-found]  # lives in the peer's own environment
from apscheduler import (  # type: ignore[import-not-found]  # lives in the peer's own environment
    AsyncScheduler,
    CoalescePolicy,
    Schedule,
)
from apscheduler.datastores.sqlalchemy import (  # type: ignore[import-not-found]  # lives in the peer's own environment
    SQLAlchemyDataStore,
)
from apscheduler.triggers.interval import (  # type: ignore[import-not-found]  # lives in the peer's own environment
    IntervalTrigger,
)

from bench.peer_scripts.meter import Meter, answer, read_task

METERS: list[Meter] = []


async def fire(index: int) -> None:
    METERS[0].fired(index)


async def run() -> None:
    task = read_task()
    meter = Meter(task)
    METERS.append(meter)
    store = SQLAlchemyDataStore(_engine(task.file, wal=task.variant != "default"))
    async with AsyncScheduler(store) as scheduler:
        configured = await scheduler.configure_task(fire, max_running_jobs=None)
        _seed(store, configured.id, meter)
        meter.release()
        await scheduler.start_in_background()
        await asyncio.to_thread(meter.wait)
        answer(meter.report(version=version("apscheduler")))
        os._exit(0)


def _engine(file: str, *, wal: bool) -> sa.Engine:
    """Returns a plain engine: the store's own documentation advises against aiosqlite."""
    engine = sa.create_engine(f"sqlite:///{file}")

    @sa.event.listens_for(engine, "connect")  # type: ignore[untyped-decorator]  # the peer's types are not seen here
    def _connected(connection: Any, _record: Any) -> None:
        if wal:
            connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")

    return engine


def _seed(store: SQLAlchemyDataStore, task_id: str, meter: Meter) -> None:
    """Writes the rows that ``add_schedule`` would write, in one transaction: adding them is not measured."""
    rows = []
    for index, due_s in enumerate(meter.first_due_s):
        trigger = IntervalTrigger(seconds=meter.task.every_s, start_time=datetime.fromtimestamp(due_s, UTC))
        schedule = Schedule(
            id=f"s{index}",
            task_id=task_id,
            trigger=trigger,
            args=(index,),
            kwargs={},
            coalesce=CoalescePolicy.all,
            misfire_grace_time=None,
            next_fire_time=trigger.next(),
            job_executor="async",
        )
        rows.append(store._convert_outgoing_fire_times(schedule.marshal(store.serializer)))  # noqa: SLF001 - seeding
    with store._engine.begin() as connection:  # noqa: SLF001 - seeding
        connection.execute(store._t_schedules.insert(), rows)  # noqa: SLF001 - seeding


if __name__ == "__main__":
    asyncio.run(run())
