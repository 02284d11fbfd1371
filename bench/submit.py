"""Submits a job of 1,000 measurements through the step: validates, prices, admits; beside bare inserts of its rows."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import count

from bench.harness import Context, Result, Round, connect, in_turns, result, transaction
from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.jobs.cost import price
from paceline.core.jobs.job import Job, JobLimits, parse_job
from paceline.core.jobs.measurement import encode_measurement
from paceline.core.users import User
from paceline.steps.jobs.submit import quote_job, submit_job

SIZE = 1_000
RATIO_MIN = 0.25
NOW_MS = 1_800_000_000_000
OWNER = "ann"
LIMITS = JobLimits()
TYPES = (
    {"type": "ping", "packets": 3},
    {"type": "traceroute", "protocol": "ICMP"},
    {"type": "dns", "query_class": "IN", "query_type": "A", "query_argument": "example.org"},
    {"type": "sslcert"},
)


def run(context: Context) -> list[Result]:
    rounds = 31 if context.full else 15
    store = SqliteStore(context.file("submit.db"), synchronous="full")
    assert store.add_user(User(OWNER, "user", 10**15, disabled=False, created_ms=NOW_MS))
    body = job_body()
    floor = Floor(context.file("floor.db"), parse_job(body, LIMITS, now_ms=NOW_MS))
    contestants: dict[str, Round] = {
        "submit": lambda: _rate(lambda: submit_job(store, OWNER, body, limits=LIMITS, now_ms=NOW_MS)),
        "price": lambda: _rate(lambda: quote_job(store, OWNER, body, limits=LIMITS, now_ms=NOW_MS)),
        "floor": lambda: _rate(floor.insert),
    }
    rates = in_turns(rounds, contestants)
    assert store.verify() == []
    rows = [
        result("validate, price, admit", SIZE, rates=rates["submit"], floor=rates["floor"], target=RATIO_MIN),
        result("validate and price alone", SIZE, rates=rates["price"], floor=rates["floor"]),
    ]
    context.say(f"submit: {rows[0]['per_s']:,.0f} measurements/s, {rows[0]['ratio_to_floor']} of the floor")
    return rows


def job_body() -> bytes:
    """Returns a job with four types and targets that all differ, like a survey of many hosts."""
    measurements = [
        {
            "definitions": [
                TYPES[number % len(TYPES)]
                | {"af": 4, "target": f"10.{number >> 8}.{number & 255}.1", "description": f"host {number}"}
            ],
            "probes": [{"requested": 10, "type": "area", "value": "WW"}],
            "is_oneoff": True,
        }
        for number in range(SIZE)
    ]
    return json.dumps({"title": "a survey", "measurements": measurements}).encode()


class Floor:
    """Inserts exactly the rows that a submission leaves behind, with as many bytes, in one commit."""

    def __init__(self, file: str, job: Job) -> None:
        self._db = connect(file)
        self._db.execute("CREATE TABLE meter (id INTEGER PRIMARY KEY, held)")
        self._db.execute("INSERT INTO meter VALUES (1, 0)")
        self._db.execute("CREATE TABLE job (id INTEGER PRIMARY KEY, name, owner, meter, title, digest, created_ms)")
        self._db.execute(
            """CREATE TABLE measurement (id INTEGER PRIMARY KEY, owner, state, body, credits, results, concurrent,
                   daily_credits, daily_results, attempt, lookups, next_ms, slot, stopping, account, key, intent_ms,
                   answered_ms, ended_ms, settled, reason)"""
        )
        self._db.execute(
            "CREATE TABLE posting (hold, meter, kind, amount, at_ms, PRIMARY KEY (hold, meter, kind)) WITHOUT ROWID"
        )
        self._numbers = count(1)
        prices = [(one, price(one, now_ms=NOW_MS)) for one in job.measurements]
        self._ready = [
            (encode_measurement(one).decode(), *(getattr(cost, name) for name in cost.__struct_fields__))
            for one, cost in prices
        ]

    def insert(self) -> None:
        number = next(self._numbers)
        first = number << 14
        measurements = [(first + index, 1, "queued", *ready) for index, ready in enumerate(self._ready)]
        postings = [(row[0] << 14, 1, "hold", row[4], NOW_MS) for row in measurements]
        with transaction(self._db):
            self._db.execute("UPDATE meter SET held = held + 1 WHERE id = 1")
            self._db.execute("INSERT INTO job VALUES (?, ?, 1, 1, 'a survey', '', ?)", (number, str(number), NOW_MS))
            self._db.executemany(
                """INSERT INTO measurement VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, NULL, 0, 0, NULL, NULL, NULL, NULL,
                                                   NULL, NULL, '')""",
                measurements,
            )
            self._db.executemany("INSERT INTO posting VALUES (?, ?, ?, ?, ?)", postings)


def _rate(work: Callable[[], object]) -> float:
    """Returns measurements per second."""
    start_s = time.perf_counter()
    work()
    return SIZE / (time.perf_counter() - start_s)
