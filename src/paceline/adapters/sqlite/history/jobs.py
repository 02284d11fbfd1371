"""Meters, jobs, measurements and postings as facts, for `paceline verify`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from operator import itemgetter
from typing import Any

from paceline.adapters.sqlite.database import Connection
from paceline.core.jobs.cost import credits_per_result
from paceline.core.jobs.measurement import kinds_of, parse_stored_measurement, targets_of
from paceline.core.jobs.names import ATTEMPT_BITS, INDEX_BITS, INDEX_MASK
from paceline.core.verify.facts import Fact, JobFact, MeasurementFact, MeterFact, PostingFact

_METERS = """
SELECT meter.name, "window", coalesce(user.daily_credits, "limit"), held, spent, opened_held, opened_spent,
       iif("window" = 'sliding', (SELECT coalesce(sum(amount), 0) FROM release WHERE meter = meter.id), NULL),
       coalesce(user.name, '')
FROM meter LEFT JOIN user ON meter.name GLOB 'user/' || user.id || '/*' ORDER BY meter.id"""
_EXPIRIES = """
SELECT meter.name, amount, at_ms FROM posting LEFT JOIN meter ON meter.id = posting.meter WHERE hold < 0"""
_JOBS = """
SELECT job.id << 28, 0, job.id, job.name, measurements, open, done, failed, cancelled, reserved, settled, refunded,
       job.created_ms, finished_ms, purged > 0, job.owner, coalesce(user.name, ''), digest <> '',
       idempotency IS NOT NULL
FROM job LEFT JOIN user ON user.id = job.owner ORDER BY job.id"""
_MEASUREMENTS = """
SELECT measurement.id << 14, 1, measurement.id, state, attempt, measurement.credits, slot, account.name, intent_ms,
       ended_ms, settled, body, measurement.reason, measurement.concurrent, measurement.daily_results,
       measurement.daily_credits
FROM measurement LEFT JOIN account ON account.id = measurement.account ORDER BY measurement.id"""
_POSTINGS = """
SELECT hold, 2, coalesce(meter.name, '?' || posting.meter), kind, amount, at_ms
FROM posting LEFT JOIN meter ON meter.id = posting.meter WHERE hold >= 0 ORDER BY hold, posting.meter, kind"""
Row = tuple[Any, ...]


def read_facts(db: Connection) -> Iterator[Fact]:
    """Yield meters and expiries, then jobs, measurements and postings merged in order of their keys."""
    for row in db.execute(_METERS):
        yield MeterFact(*row)
    for meter, amount, at_ms in db.execute(_EXPIRIES):
        yield PostingFact(-1, 0, 0, meter, "expire", amount, at_ms)
    parts: list[Iterable[Row]] = [db.execute(text) for text in (_JOBS, _MEASUREMENTS, _POSTINGS)]
    for row in merge(*parts, key=itemgetter(0, 1)):
        kind = row[1]
        if kind == 0:
            yield JobFact(
                **dict(
                    zip(
                        JobFact.__struct_fields__,
                        (*row[2:14], bool(row[14]), *row[15:17], bool(row[17]), bool(row[18])),
                        strict=True,
                    )
                )
            )
        elif kind == 1:
            yield _measurement(db, row[2:])
        else:
            hold, _, meter, move, amount, at_ms = row
            handle, attempt = hold >> ATTEMPT_BITS, hold & (1 << ATTEMPT_BITS) - 1
            yield PostingFact(handle >> INDEX_BITS, handle & INDEX_MASK, attempt, meter, move, amount, at_ms)


def _measurement(db: Connection, row: Row) -> MeasurementFact:
    handle, state, attempt, credits_max, slot, account, intent_ms, ended_ms, settled, body, reason, *needs = row
    atlas = db.execute(
        "SELECT coalesce(status, 0), delivered FROM atlas_measurement WHERE measurement = ? ORDER BY definition",
        (handle,),
    ).fetchall()
    measurement = parse_stored_measurement(body)
    prices: tuple[int, ...] = ()
    if settled:
        prices = tuple(credits_per_result(measurement, one) for one in measurement.definitions)
    return MeasurementFact(
        *(handle >> INDEX_BITS, handle & INDEX_MASK, state, attempt, credits_max, bool(slot), account or ""),
        *(intent_ms, ended_ms, settled, tuple(row[0] for row in atlas), tuple(row[1] for row in atlas), prices, reason),
        *(tuple(needs), tuple(sorted(kinds_of(measurement))), tuple(sorted(targets_of(measurement)))),
    )
