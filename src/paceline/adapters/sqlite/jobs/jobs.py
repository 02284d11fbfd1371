"""Jobs and their measurements: admitted in one transaction, read, cancelled, finished."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from paceline.adapters.sqlite import alerts
from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.jobs import ledger
from paceline.adapters.sqlite.kept_counts import add
from paceline.core.alerts.events import job_finished
from paceline.core.jobs.admission import after_admission, budget_of, refuse_submission, reserved_of
from paceline.core.jobs.compatible.measurements import place_in_block, stride_of
from paceline.core.jobs.cost import Cost
from paceline.core.jobs.measurement import MeasurementState, encode_measurement, parse_stored_measurement
from paceline.core.jobs.meters import day_name
from paceline.core.jobs.names import ATTEMPT_BITS, INDEX_BITS, INDEX_MASK, handle_of, job_name, key_id
from paceline.core.jobs.transitions import CANCELLED, ENDED, LIVE, count_definitions, wanted_states
from paceline.core.jobs.upkeep import LEFT_BEHIND_MAX
from paceline.core.jobs.values import (
    Admitted,
    Already,
    AtlasMeasurement,
    Budget,
    OverCredits,
    PendingWebhook,
    StoredJob,
    StoredMeasurement,
    Submission,
)
from paceline.core.try_turns import DuePosition

_JOB = """SELECT job.name, job.id, coalesce(user.name, ''), title, webhook, digest, job.created_ms, measurements, open,
                 done, job.failed, cancelled, reserved, settled, refunded, started_ms, cancelled_ms,
                 finished_ms
          FROM job LEFT JOIN user ON user.id = job.owner"""
_COLUMNS = """SELECT measurement.id, attempt, job.name,
                     coalesce((SELECT name FROM user WHERE user.id = measurement.owner), ''), state, body, credits,
                     results, concurrent, daily_credits, daily_results, reason, next_ms, lookups, stopping,
                     (SELECT name FROM account WHERE account.id = measurement.account), "key", intent_ms, answered_ms,
                     ended_ms, measurement.settled, passed_ms, numbered + (measurement.id & 16383) * stride, slot"""
SELECT = f"{_COLUMNS} FROM measurement JOIN job ON job.id = measurement.id >> 14"


def submit(db: Connection, item: Submission, *, now_ms: int) -> Admitted | Already | OverCredits | None:
    row = db.execute("SELECT id, daily_credits FROM user WHERE name = ? AND disabled = 0", (item.owner,)).fetchone()
    if row is None:
        return None
    owner, limit = row
    before = _submitted_before(db, owner, item.idempotency_key)
    now = _budget(db, owner, limit, now_ms=now_ms)
    total = reserved_of(item)
    if (refused := refuse_submission(item.digest, total, now, before)) is not None:
        return refused
    meter = ledger.ensure_meter(db, _meter_name(owner, now_ms), window="day", limit=limit)
    number = _insert_job(db, item, owner=owner, meter=meter, reserved=total, now_ms=now_ms)
    _insert_measurements(db, item, number, owner)
    # Fast path of ``core.jobs.meters.take`` for each measurement: all fit because their sum fits.
    first = handle_of(number, 0)
    db.executemany(
        "INSERT INTO posting (hold, meter, kind, amount, at_ms) VALUES (?, ?, 'hold', ?, ?)",
        [(handle << ATTEMPT_BITS, meter, cost.credits, now_ms) for handle, cost in enumerate(item.costs, first)],
    )
    db.execute("UPDATE meter SET held = held + ? WHERE id = ?", (total, meter))
    join_turn(db, owner)
    found = by_number(db, number)
    assert found is not None
    return Admitted(found, after_admission(now, total))


def submitted_as(db: Connection, owner: str, idempotency_key: str) -> StoredJob | None:
    row = db.execute("SELECT id FROM user WHERE name = ?", (owner,)).fetchone()
    return _submitted_before(db, row[0], idempotency_key) if row else None


def budget(db: Connection, owner: str, *, now_ms: int) -> Budget | None:
    row = db.execute("SELECT id, daily_credits FROM user WHERE name = ?", (owner,)).fetchone()
    return _budget(db, *row, now_ms=now_ms) if row else None


def job(db: Connection, name: str) -> StoredJob | None:
    row = db.execute(f"{_JOB} WHERE job.name = ? AND purged = 0", (name,)).fetchone()
    return stored_job(row) if row else None


def by_number(db: Connection, number: int) -> StoredJob | None:
    row = db.execute(f"{_JOB} WHERE job.id = ?", (number,)).fetchone()
    return stored_job(row) if row else None


def jobs(db: Connection, owner: str | None, *, before: int | None, limit: int) -> list[StoredJob]:
    below = 1 << 62 if before is None else before
    if owner is None:
        rows = db.execute(f"{_JOB} WHERE job.id < ? AND purged = 0 ORDER BY job.id DESC LIMIT ?", (below, limit))
    else:
        rows = db.execute(
            f"""{_JOB} WHERE user.name = ? AND job.owner = user.id AND job.id < ? AND purged = 0
                ORDER BY job.id DESC LIMIT ?""",
            (owner, below, limit),
        )
    return [stored_job(row) for row in rows.fetchall()]


def counts(db: Connection, number: int) -> dict[MeasurementState, int]:
    rows = db.execute(
        "SELECT state, count(*) FROM measurement WHERE id >= ? AND id < ? GROUP BY state",
        (handle_of(number, 0), handle_of(number + 1, 0)),
    )
    return dict(rows.fetchall())


def measurements(db: Connection, number: int, *, after: int, limit: int) -> list[StoredMeasurement]:
    rows = db.execute(
        f"{SELECT} WHERE measurement.id > ? AND measurement.id < ? ORDER BY measurement.id LIMIT ?",
        (handle_of(number, 0) + after, handle_of(number + 1, 0), limit),
    )
    return [stored_measurement(db, row) for row in rows.fetchall()]


def measurement(db: Connection, handle: int) -> StoredMeasurement | None:
    row = db.execute(f"{SELECT} WHERE measurement.id = ?", (handle,)).fetchone()
    return stored_measurement(db, row) if row else None


def handle_of_number(db: Connection, number: int) -> tuple[int, int] | None:
    row = db.execute(
        """SELECT id, numbered, stride, measurements FROM job
           WHERE numbered <= ? AND purged = 0 ORDER BY numbered DESC LIMIT 1""",
        (number,),
    ).fetchone()
    return place_in_block(number, *row) if row else None


def measurements_of(
    db: Connection, owner: str, *, states: Sequence[MeasurementState], before: int | None, limit: int
) -> list[StoredMeasurement]:
    wanted = wanted_states(states)
    rows = db.execute(
        # CROSS: job by job from the newest, until the page is full. The job's own counts say whether its measurements
        # need to be read.
        f"""{_COLUMNS} FROM job CROSS JOIN measurement
            WHERE job.owner = (SELECT id FROM user WHERE name = :owner) AND job.id <= :below >> 14 AND purged = 0
              AND (:done AND job.done > 0 OR :failed AND job.failed > 0 OR :cancelled AND job.cancelled > 0
                   OR :live AND open > 0)
              AND measurement.id >= job.id << 14 AND measurement.id < min(job.id + 1 << 14, :below)
              AND state IN (SELECT value FROM json_each(:states))
            ORDER BY job.id DESC, measurement.id DESC LIMIT :limit""",  # noqa: S608  a fixed text
        {
            "owner": owner,
            "below": 1 << 62 if before is None else before,
            **{state: int(state in wanted) for state in ENDED},
            "live": int(bool(wanted & LIVE)),
            "states": _json(wanted),
            "limit": limit,
        },
    ).fetchall()
    return [stored_measurement(db, row) for row in rows]


def count_of(db: Connection, owner: str, *, states: Sequence[MeasurementState]) -> int:
    sums = db.execute(
        """SELECT coalesce(sum(definitions), 0), coalesce(sum(definitions_done), 0),
                  coalesce(sum(definitions_failed), 0), coalesce(sum(definitions_cancelled), 0)
           FROM job WHERE owner = (SELECT id FROM user WHERE name = ?) AND purged = 0""",
        (owner,),
    ).fetchone()
    wanted = wanted_states(states)
    names = ("definitions", "definitions_done", "definitions_failed", "definitions_cancelled")
    counted, are_more = count_definitions(dict(zip(names, sums, strict=True)), wanted)
    if not are_more:
        return counted
    live = db.execute(
        """SELECT coalesce(sum(concurrent), 0) FROM job CROSS JOIN measurement
           WHERE job.owner = (SELECT id FROM user WHERE name = ?) AND finished_ms IS NULL
             AND measurement.id >= job.id << 14 AND measurement.id < job.id + 1 << 14
             AND ended_ms IS NULL AND state IN (SELECT value FROM json_each(?))""",
        (owner, _json(wanted)),
    ).get
    return counted + int(live)


def cancel(db: Connection, number: int, *, now_ms: int) -> bool:
    db.execute("UPDATE job SET cancelled_ms = coalesce(cancelled_ms, ?) WHERE id = ? AND open > 0", (now_ms, number))
    if not db.changes():
        return False
    _cancel_range(db, number, handle_of(number, 0), handle_of(number + 1, 0), now_ms=now_ms)
    return True


def cancel_one(db: Connection, handle: int, *, now_ms: int) -> bool:
    row = db.execute("SELECT 1 FROM measurement WHERE id = ? AND ended_ms IS NULL", (handle,)).fetchone()
    if row is None:
        return False
    _cancel_range(db, handle >> INDEX_BITS, handle, handle + 1, now_ms=now_ms)
    return True


def cancel_left_behind(db: Connection, *, now_ms: int) -> None:
    """Cancel jobs of users who were removed: nobody can see or pay for them any more."""
    rows = db.execute(
        """SELECT id FROM job WHERE open > 0 AND cancelled_ms IS NULL
           AND NOT EXISTS (SELECT 1 FROM user WHERE user.id = job.owner) LIMIT ?""",
        (LEFT_BEHIND_MAX,),
    ).fetchall()
    for (number,) in rows:
        cancel(db, number, now_ms=now_ms)


def finish(db: Connection, *, now_ms: int, limit: int) -> list[StoredJob]:
    cancel_left_behind(db, now_ms=now_ms)
    rows = db.execute("SELECT id FROM job WHERE open = 0 AND finished_ms IS NULL ORDER BY id LIMIT ?", (limit,))
    numbers = [row[0] for row in rows.fetchall()]
    for number in numbers:
        # The webhook, if the job has one, is called at once.
        db.execute(
            "UPDATE job SET finished_ms = ?1, hook_ms = iif(webhook IS NULL, NULL, ?1) WHERE id = ?2", (now_ms, number)
        )
    found = [one for number in numbers if (one := by_number(db, number)) is not None]
    alerts.add(db, [alert for job in found if (alert := job_finished(job, now_ms=now_ms)) is not None])
    return found


def due_webhooks(
    db: Connection, *, now_ms: int, limit: int, after: DuePosition[int] | None = None
) -> list[DuePosition[int]]:
    if after is None:
        rows = db.execute(
            "SELECT hook_ms, id FROM job WHERE hook_ms <= ? ORDER BY hook_ms, id LIMIT ?", (now_ms, limit)
        )
    else:
        rows = db.execute(
            """SELECT hook_ms, id FROM job WHERE hook_ms <= ? AND (hook_ms, id) > (?, ?)
               ORDER BY hook_ms, id LIMIT ?""",
            (now_ms, *after, limit),
        )
    return [DuePosition(*row) for row in rows]


def pending_webhooks(db: Connection, numbers: Sequence[int]) -> list[PendingWebhook]:
    rows = db.execute(
        """SELECT id, hook_tries, hook_ms FROM job
           WHERE id IN (SELECT value FROM json_each(?)) AND hook_ms IS NOT NULL""",
        (msgspec.json.encode(list(numbers)).decode(),),
    ).fetchall()
    found = [(by_number(db, number), tries, next_ms) for number, tries, next_ms in rows]
    return [PendingWebhook(job, tries, next_ms) for job, tries, next_ms in found if job is not None]


def note_webhook(db: Connection, number: int, *, tries: int, next_ms: int | None) -> bool:
    db.execute(
        """UPDATE job SET hook_ms = ?, hook_tries = hook_tries + 1
           WHERE id = ? AND hook_tries = ? AND hook_ms IS NOT NULL""",
        (next_ms, number, tries),
    )
    return db.changes() == 1


def join_turn(db: Connection, owner: int) -> None:
    """Put a user who is not in the queue of users at its end (``core.jobs.send_order.Turn``)."""
    db.execute(
        """INSERT INTO turn (owner, served) VALUES (?, (SELECT value FROM tally WHERE name = 'turns'))
           ON CONFLICT (owner) DO NOTHING""",
        (owner,),
    )


def stored_job(row: tuple[Any, ...]) -> StoredJob:
    return StoredJob(*row)


def stored_measurement(db: Connection, row: tuple[Any, ...]) -> StoredMeasurement:
    handle, attempt, job_id, owner, state, body, *cost = row[:11]
    reason, next_ms, lookups, stopping, account, key, intent_ms, answered_ms, ended_ms, settled, *rest = row[11:]
    passed_ms, number, slot = rest
    return StoredMeasurement(
        handle=handle,
        attempt=attempt,
        job=job_id,
        index=handle & INDEX_MASK,
        owner=owner,
        state=state,
        measurement=parse_stored_measurement(body),
        cost=Cost(*cost),
        reason=reason,
        next_ms=next_ms,
        lookups=lookups,
        stopping=bool(stopping),
        account=account,
        key=None if key is None else key_id(key),
        intent_ms=intent_ms,
        answered_ms=answered_ms,
        ended_ms=ended_ms,
        passed_ms=passed_ms,
        settled=settled,
        atlas=() if answered_ms is None else atlas_of(db, handle),
        number=number,
        running=bool(slot),
    )


def atlas_of(db: Connection, handle: int) -> tuple[AtlasMeasurement, ...]:
    """Return RIPE's ids of the definitions with their statuses, in order."""
    found = db.execute(
        """SELECT atlas_id, status, delivered, scheduled FROM atlas_measurement
           WHERE measurement = ? ORDER BY definition""",
        (handle,),
    )
    return tuple(AtlasMeasurement(*one) for one in found)


def _json(states: Iterable[str]) -> str:
    return msgspec.json.encode(sorted(states)).decode()


def _submitted_before(db: Connection, owner: int, idempotency_key: str | None) -> StoredJob | None:
    if idempotency_key is None:
        return None
    row = db.execute(f"{_JOB} WHERE job.owner = ? AND idempotency = ?", (owner, idempotency_key)).fetchone()
    return stored_job(row) if row else None


def _budget(db: Connection, owner: int, limit: int, *, now_ms: int) -> Budget:
    row = db.execute("SELECT id FROM meter WHERE name = ?", (_meter_name(owner, now_ms),)).fetchone()
    if row is None:
        return budget_of(limit, spent=0, held=0, now_ms=now_ms)
    meter = ledger.read_meter(db, row[0], releases_until_ms=now_ms)
    return budget_of(limit, spent=meter.spent, held=meter.held, now_ms=now_ms)


def _meter_name(owner: int, now_ms: int) -> str:
    return day_name(f"user/{owner}/credits", now_ms=now_ms)


def _insert_job(db: Connection, item: Submission, *, owner: int, meter: int, reserved: int, now_ms: int) -> int:
    number = int(db.execute("SELECT coalesce(max(seq), 0) + 1 FROM sqlite_sequence WHERE name = 'job'").get)
    count, stride = len(item.job.measurements), stride_of(item.job)
    # Earlier numbers are all lower: the tally only counts up.
    numbered = db.execute(
        "UPDATE tally SET value = value + ? WHERE name = 'definitions' RETURNING value", (count * stride,)
    ).get
    db.execute(
        """INSERT INTO job (id, name, owner, meter, title, webhook, digest, idempotency, measurements, open, reserved,
                            definitions, created_ms, numbered, stride)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (
            number,
            job_name(number, now_ms=now_ms),
            owner,
            meter,
            item.job.title,
            item.job.webhook,
            item.digest,
            item.idempotency_key,
            count,
            count,
            reserved,
            sum(cost.concurrent for cost in item.costs),
            now_ms,
            numbered - count * stride,
            stride,
        ),
    )
    return number


def _insert_measurements(db: Connection, item: Submission, number: int, owner: int) -> None:
    pairs = zip(item.job.measurements, item.costs, strict=True)
    rows = [
        (
            handle,
            owner,
            encode_measurement(one).decode(),
            cost.credits,
            cost.results,
            cost.concurrent,
            cost.daily_credits,
            cost.daily_results,
        )
        for handle, (one, cost) in enumerate(pairs, handle_of(number, 0))
    ]
    db.executemany(
        """INSERT INTO measurement (id, owner, state, body, credits, results, concurrent, daily_credits, daily_results)
           VALUES (?, ?, 'queued', ?, ?, ?, ?, ?, ?)""",
        rows,
    )
    add(db, "measurements_queued", len(rows))


def _cancel_range(db: Connection, number: int, first: int, beyond: int, *, now_ms: int) -> None:
    """Cancel a range of measurements. Those not sent end and are refunded; the others are marked to be stopped.

    Fast path of ``core.jobs.transitions.cancel`` and ``core.jobs.meters.refund`` for up to ten thousand rows.
    """
    span = (first, beyond)
    db.execute("UPDATE measurement SET stopping = 1 WHERE id >= ? AND id < ? AND ended_ms IS NULL", span)
    ended, refunded, definitions = db.execute(
        """SELECT count(*), coalesce(sum(credits), 0), coalesce(sum(concurrent), 0) FROM measurement
           WHERE id >= ? AND id < ? AND state IN ('queued', 'parked')""",
        span,
    ).fetchone()
    if not ended:
        return
    meter = db.execute("SELECT meter FROM job WHERE id = ?", (number,)).get
    for kind in ("settle", "refund"):
        db.execute(
            """INSERT INTO posting (hold, meter, kind, amount, at_ms)
               SELECT id << 14, ?1, ?2, iif(?2 = 'refund', credits, 0), ?3 FROM measurement
               WHERE id >= ?4 AND id < ?5 AND state IN ('queued', 'parked')""",
            (meter, kind, now_ms, *span),
        )
    db.execute("UPDATE meter SET held = held - ? WHERE id = ?", (refunded, meter))
    db.execute(
        """UPDATE measurement SET state = 'cancelled', ended_ms = ?, settled = 0, next_ms = NULL, reason = ?
           WHERE id >= ? AND id < ? AND state IN ('queued', 'parked')""",
        (now_ms, CANCELLED, *span),
    )
    db.execute(
        """UPDATE job SET open = open - ?1, cancelled = cancelled + ?1, refunded = refunded + ?2,
                  definitions_cancelled = definitions_cancelled + ?4 WHERE id = ?3""",
        (ended, refunded, number, definitions),
    )
