"""Facts about meters, jobs, measurements and postings, for `paceline verify`.

Items of the ledger come in no order, so all of them are kept in memory. A user's own line is in the measurement: what
it holds and, after its end, how that was closed.
"""

from __future__ import annotations

from collections.abc import Iterator

from paceline.adapters.aws.client.items import Item
from paceline.adapters.aws.client.tables import ITEMS
from paceline.adapters.aws.jobs.meters import postings_in
from paceline.adapters.aws.jobs.parts import JobParts
from paceline.adapters.aws.jobs.read import atlas_of, measurement_in
from paceline.adapters.aws.jobs.verify import JobLedgerItems, read_books
from paceline.core.jobs.accounts import WINDOWS, meter_name
from paceline.core.jobs.cost import credits_per_result
from paceline.core.jobs.measurement import kinds_of, targets_of
from paceline.core.jobs.names import INDEX_BITS, INDEX_MASK
from paceline.core.jobs.transitions import ENDED
from paceline.core.verify.facts import Fact, JobFact, MeasurementFact, MeterFact, PostingFact


def job_facts(store: JobParts) -> Iterator[Fact]:
    """Yield accounts' meters and users' days, then the jobs, each with its measurements and their postings."""
    database = store.db
    books = read_books(database)
    users = database.scan(ITEMS, filtered="begins_with(#pk, :user)", user="user#")
    known = {item["number"]: item for item in users}
    yield from _meters(books)
    for (owner, day), item in books.days.items():
        user = known.get(owner, {"id": "", "daily_credits": 0})
        pots = (item["held"], item["spent"], 0, item.get("opened_spent", 0))
        yield MeterFact(_day_name(owner, day), "day", user["daily_credits"], *pots, user=user["id"])
    rows: dict[int, list[Item]] = {}
    for row in books.rows.values():
        rows.setdefault(row["handle"] >> INDEX_BITS, []).append(row)
    for number, job in sorted(books.jobs.items()):
        yield _job(job, known[job["owner"]]["id"] if job["owner"] in known else "")
        for row in sorted(rows.get(number, ()), key=lambda one: int(one["handle"])):
            yield _measurement(row)
            yield from _postings(books, job, row)


def _meters(books: JobLedgerItems) -> Iterator[Fact]:
    for name, account in books.accounts.items():
        quoted = str(account["pk"].partition("#")[2])
        for meter, window in WINDOWS.items():
            released = sum(one.get(meter, 0) for one in books.releases.get(quoted, ()))
            yield MeterFact(
                *(meter_name(name, meter), window, account[f"{meter}_limit"]),
                *(account[f"{meter}_held"], account[f"{meter}_spent"]),
                *(account[f"{meter}_opened_held"], account[f"{meter}_opened_spent"]),
                released=released if window == "sliding" else None,
            )


def _day_name(owner: int, day: int) -> str:
    return f"user/{owner}/credits@{day}"


def _job(item: Item, user: str) -> JobFact:
    names = ("measurements", "open", "done", "failed", "cancelled", "reserved", "settled", "refunded", "created_ms")
    kept = {name: item[name] for name in names}
    finished_ms, purged = item.get("finished_ms"), bool(item["purged"])
    more = {
        "owner": item["owner"],
        "user": user,
        "digest": bool(item["digest"]),
        "key": item.get("idempotency") is not None,
    }
    return JobFact(item["number"], item["name"], finished_ms=finished_ms, purged=purged, **kept, **more)


def _measurement(row: Item) -> MeasurementFact:
    measurement = measurement_in(row)
    prices: tuple[int, ...] = ()
    if row.get("settled"):
        prices = tuple(credits_per_result(measurement, one) for one in measurement.definitions)
    atlas = atlas_of(row)
    return MeasurementFact(
        job=row["handle"] >> INDEX_BITS,
        index=row["handle"] & INDEX_MASK,
        state=row["state"],
        attempt=row["attempt"],
        credits=row["credits"],
        slot=bool(row["slot"]),
        account=row.get("account", ""),
        intent_ms=row.get("intent_ms"),
        ended_ms=row.get("ended_ms"),
        settled=row.get("settled"),
        statuses=tuple(one.status or 0 for one in atlas),
        delivered=tuple(one.delivered for one in atlas),
        prices=prices,
        reason=row.get("reason", ""),
        needs=(row["concurrent"], row["daily_results"], row["daily_credits"]),
        types=tuple(sorted(kinds_of(measurement))),
        targets=tuple(sorted(targets_of(measurement))),
    )


def _postings(books: JobLedgerItems, job: Item, row: Item) -> Iterator[Fact]:
    handle, name = row["handle"], _day_name(job["owner"], job["day"])
    at = (handle >> INDEX_BITS, handle & INDEX_MASK)
    yield PostingFact(*at, 0, name, "hold", row["credits"])
    if row["state"] in ENDED:
        yield PostingFact(*at, 0, name, "settle", row["settled"])
        yield PostingFact(*at, 0, name, "refund", row["credits"] - row["settled"])
    for attempt in range(1, row["attempt"] + 1):
        for item in (books.holds.get((handle, attempt)), books.closes.get((handle, attempt))):
            for one in postings_in(item) if item else ():
                yield PostingFact(*at, attempt, one.meter, one.kind, one.amount, one.at_ms)
