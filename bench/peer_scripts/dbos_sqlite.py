"""DBOS on SQLite: its cron schedules (a thread each); or, as ``queue``, firings that enqueue their own successor."""

from __future__ import annotations

import logging
import os
import time
from datetime import datetime
from importlib.metadata import version
from typing import Any

import sqlalchemy as sa  # type: ignore[import-not-found]  # lives in the peer's own environment
from dbos import (  # type: ignore[import-not-found]  # lives in the peer's own environment
    DBOS,
    SetEnqueueOptions,
)
from dbos._serialization import (  # type: ignore[import-not-found]  # lives in the peer's own environment
    DBOSDefaultSerializer,
)

from bench.peer_scripts.meter import Meter, answer, read_task

TASK = read_task()
METER = Meter(TASK)
QUEUE = "bench"
POLL_S = 0.05


@DBOS.workflow()  # type: ignore[untyped-decorator]  # the peer's types are not seen here
def fire_scheduled(scheduled: datetime, context: Any) -> None:
    METER.fired_for(int(context), scheduled.timestamp())


@DBOS.workflow()  # type: ignore[untyped-decorator]  # the peer's types are not seen here
def fire_queued(index: int) -> None:
    METER.fired(index)
    _enqueue(index)


def main() -> None:
    engine = _engine(TASK.file)
    DBOS(
        config={
            "name": "bench",
            "system_database_engine": engine,
            "system_database_url": f"sqlite:///{TASK.file}",
            "log_level": "ERROR",
        }
    )
    logging.getLogger("dbos").setLevel(logging.ERROR)
    DBOS.launch()
    if TASK.variant == "queue":
        _seed(engine)
        METER.release()
        DBOS.register_queue(QUEUE, polling_interval_sec=POLL_S)
    else:
        DBOS.register_queue(QUEUE, polling_interval_sec=POLL_S)
        _create_schedules()
        METER.release()
    METER.wait()
    answer(METER.report(version=version("dbos")))
    os._exit(0)


def _engine(file: str) -> sa.Engine:
    """Returns an engine as DBOS makes it (immediate transactions, patient locks), plus WAL, as a careful user would."""
    engine = sa.create_engine(f"sqlite:///{file}", pool_size=20, max_overflow=20, pool_timeout=60)

    @sa.event.listens_for(engine, "connect")  # type: ignore[untyped-decorator]  # the peer's types are not seen here
    def _connected(connection: Any, _record: Any) -> None:
        connection.isolation_level = "IMMEDIATE"
        for pragma in ("busy_timeout=30000", "foreign_keys=ON", "journal_mode=WAL", "synchronous=FULL"):
            connection.execute(f"PRAGMA {pragma}")

    return engine


def _enqueue(index: int) -> None:
    delay_s = max(0.0, METER.due_s(index) - time.time())
    with SetEnqueueOptions(delay_seconds=delay_s):
        DBOS.enqueue_workflow(QUEUE, fire_queued, index)


def _seed(engine: sa.Engine) -> None:
    """Makes one schedule through the API, the others as copies of its row in one transaction. This is not measured."""
    _enqueue(0)
    with engine.begin() as connection:
        table = sa.Table("workflow_status", sa.MetaData(), autoload_with=connection)
        first = dict(connection.execute(sa.select(table)).mappings().one())
        rows = [
            first
            | {
                "workflow_uuid": f"bench-{index}",
                "inputs": DBOSDefaultSerializer.serialize({"args": (index,), "kwargs": {}}),
                "delay_until_epoch_ms": int(METER.due_s(index) * 1_000),
                "status": "DELAYED",
            }
            for index in range(TASK.schedules)
        ]
        connection.execute(table.delete())
        connection.execute(table.insert(), rows)


def _create_schedules() -> None:
    """Creates schedules. Cron knows whole seconds: each fires every second, all in one transaction."""
    DBOS.apply_schedules(
        [
            {
                "schedule_name": f"s{index}",
                "workflow_fn": fire_scheduled,
                "schedule": "* * * * * *",
                "context": index,
                "queue_name": QUEUE,
            }
            for index in range(TASK.schedules)
        ]
    )


if __name__ == "__main__":
    main()
