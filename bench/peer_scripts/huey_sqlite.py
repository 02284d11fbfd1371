"""Huey on SQLite. Its periodic tasks know only whole minutes, so each firing schedules its successor, as users do."""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime
from importlib.metadata import version

from huey import SqliteHuey  # type: ignore[import-not-found]  # lives in the peer's own environment

from bench.peer_scripts.meter import Meter, answer, read_task

TASK = read_task()
METER = Meter(TASK)
WORKERS = 2
huey = SqliteHuey("bench", filename=TASK.file, results=False, fsync=TASK.variant != "no fsync", timeout=30)


@huey.task()  # type: ignore[untyped-decorator]  # Huey has no types
def fire(index: int) -> None:
    METER.fired(index)
    fire.schedule(args=(index,), eta=_eta(METER.due_s(index)))


def main() -> None:
    logging.getLogger("huey").setLevel(logging.ERROR)
    _seed()
    METER.release()
    consumer = huey.create_consumer(
        workers=WORKERS, worker_type="thread", scheduler_interval=1, check_worker_health=False
    )
    consumer.start()
    METER.wait()
    answer(METER.report(version=version("huey")))
    os._exit(0)


def _eta(due_s: float) -> datetime:
    return datetime.fromtimestamp(due_s, UTC)


def _seed() -> None:
    """Writes the rows that ``schedule`` would write, in one transaction: adding them is not measured."""
    rows = []
    for index, due_s in enumerate(METER.first_due_s):
        eta = _eta(due_s).replace(tzinfo=None)
        data = huey.serialize_task(fire.task_class((index,), {}, eta=eta))
        rows.append((huey.storage.name, data, eta.timestamp()))
    with huey.storage.db(commit=True) as cursor:
        cursor.executemany("insert into schedule (queue, data, timestamp) values (?, ?, ?)", rows)


if __name__ == "__main__":
    main()
