"""APScheduler 3 with its SQLAlchemy job store on SQLite."""

from __future__ import annotations

import os
import pickle
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import sqlalchemy as sa  # type: ignore[import-not-found]  # lives in the peer's own environment
from apscheduler.job import Job  # type: ignore[import-not-found]  # lives in the peer's own environment
from apscheduler.jobstores.sqlalchemy import (  # type: ignore[import-not-found]  # lives in the peer's own environment
    SQLAlchemyJobStore,
)
from apscheduler.schedulers.background import (  # type: ignore[import-not-found]  # lives in the peer's own environment
    BackgroundScheduler,
)
from apscheduler.triggers.interval import (  # type: ignore[import-not-found]  # lives in the peer's own environment
    IntervalTrigger,
)

from bench.peer_scripts.meter import Meter, answer, read_task

METERS: list[Meter] = []


def fire(index: int) -> None:
    METERS[0].fired(index)


def main() -> None:
    task = read_task()
    meter = Meter(task)
    METERS.append(meter)
    store = SQLAlchemyJobStore(engine=_engine(task.file, wal=task.variant != "default"))
    scheduler = BackgroundScheduler(
        jobstores={"default": store},
        timezone=UTC,
        job_defaults={"misfire_grace_time": None, "coalesce": False, "max_instances": 1},
    )
    scheduler.start(paused=True)
    _seed(scheduler, store, meter)
    meter.release()
    scheduler.resume()
    meter.wait()
    answer(meter.report(version=version("apscheduler")))
    os._exit(0)


def _engine(file: str, *, wal: bool) -> sa.Engine:
    """Returns an engine.

    SQLAlchemy's default is a rollback journal; a careful user would set WAL. Both sync in full.
    """
    engine = sa.create_engine(f"sqlite:///{file}")

    @sa.event.listens_for(engine, "connect")  # type: ignore[untyped-decorator]  # the peer's types are not seen here
    def _connected(connection: Any, _record: Any) -> None:
        if wal:
            connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")

    return engine


def _seed(scheduler: BackgroundScheduler, store: SQLAlchemyJobStore, meter: Meter) -> None:
    """Writes the rows that ``add_job`` would write, in one transaction: adding them is not measured."""
    every_s = meter.task.every_s
    rows = []
    for index, due_s in enumerate(meter.first_due_s):
        due = datetime.fromtimestamp(due_s, UTC)
        job = Job(
            scheduler,
            id=f"s{index}",
            func=fire,
            args=(index,),
            kwargs={},
            trigger=IntervalTrigger(seconds=every_s, start_date=due, timezone=UTC),
            executor="default",
            name="fire",
            misfire_grace_time=None,
            coalesce=False,
            max_instances=1,
            next_run_time=due,
        )
        state = pickle.dumps(job.__getstate__(), store.pickle_protocol)
        rows.append({"id": job.id, "next_run_time": due_s, "job_state": state})
    with store.engine.begin() as connection:
        connection.execute(store.jobs_t.insert(), rows)


if __name__ == "__main__":
    main()
