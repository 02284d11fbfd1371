"""The invariants of jobs for ``paceline check``: all sums are computed again from every item of the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import Item
from paceline.adapters.aws.client.tables import LEDGER
from paceline.adapters.aws.jobs.keys import LINE, row_place
from paceline.adapters.aws.jobs.meters import meter_of, postings_in
from paceline.adapters.aws.jobs.parts import JobParts
from paceline.core.jobs import findings
from paceline.core.jobs.accounts import WINDOWS, meter_name
from paceline.core.jobs.findings import MeterFacts, StateSums
from paceline.core.jobs.meters import Balance, add_up, used
from paceline.core.jobs.names import INDEX_BITS
from paceline.core.jobs.transitions import ENDED

Attempt = tuple[int, int]
"""A handle and an attempt, which name a hold."""


class JobLedgerItems(NamedTuple):
    """All items of the ledger about jobs."""

    accounts: dict[str, Item]
    releases: dict[str, list[Item]]
    slots: set[tuple[str, int]]
    jobs: dict[int, Item]
    rows: dict[int, Item]
    holds: dict[Attempt, Item]
    closes: dict[Attempt, Item]
    days: dict[tuple[int, int], Item]
    turns: dict[int, Item]
    submitting: set[int]
    line: Item


def verify(store: JobParts) -> list[str]:
    """Return problems. Others may write while it reads, so it reads twice and returns those that it saw both times."""
    found = problems(read_books(store.db))
    if not found:
        return []
    again = set(problems(read_books(store.db)))
    return [problem for problem in found if problem in again]


def problems(books: JobLedgerItems) -> list[str]:
    checks = (_meters, _days, _holds, _rows, _jobs, _line)
    return [problem for check in checks for problem in check(books)]


def read_books(database: DynamoDatabase) -> JobLedgerItems:
    books = JobLedgerItems({}, {}, set(), {}, {}, {}, {}, {}, {}, set(), {})
    for item in database.scan(LEDGER):
        _sort_in(books, item)
    found = database.get(LEDGER, LINE)
    return books._replace(line=found or {})


def _sort_in(books: JobLedgerItems, item: Item) -> None:
    kind, *parts = item["pk"].split("#")
    match kind, item["sk"].partition("#")[0]:
        case "account", "-":
            books.accounts[item["name"]] = item
        case "account", "until":
            books.releases.setdefault(parts[0], []).append(item)
        case "account", "slot":
            books.slots.add((parts[0], int(item["sk"].partition("#")[2])))
        case "job", "-":
            books.jobs[item["number"]] = item
        case "job", _:
            books.rows[item["handle"]] = item
        case "posting", _:
            kinds = books.holds if item["sk"].endswith("hold") else books.closes
            kinds[item["handle"], item["attempt"]] = item
        case "credits", _:
            books.days[item["owner"], int(parts[1])] = item
        case "turn", _:
            books.turns[item["owner"]] = item
        case "submitting", _:
            books.submitting.add(item["number"])
        case _:
            pass


def _meters(books: JobLedgerItems) -> Iterator[str]:
    items = [*books.holds.values(), *books.closes.values()]
    sums = add_up([posting for item in items for posting in postings_in(item)]).balances
    for name, account in books.accounts.items():
        for meter in WINDOWS:
            full = meter_name(name, meter)
            stored = Balance(account[f"{meter}_held"], account[f"{meter}_spent"])
            opened = Balance(account[f"{meter}_opened_held"], account[f"{meter}_opened_spent"])
            released = sum(one.get(meter, 0) for one in books.releases.get(_quoted(account), ()))
            facts = MeterFacts(full, WINDOWS[meter], stored, opened, sums.get(full, Balance()), released)
            yield from map(str, findings.meter_findings(facts))
            now = meter_of(account, meter)
            if account[f"{meter}_free"] != now.limit - used(now):
                yield f"promise 8: what is free on a meter is not what is left of its limit ({full})"
    for handle, attempt in books.holds | books.closes:
        if handle not in books.rows:
            yield findings.NO_MEASUREMENT.format(f"{handle}/{attempt}")


def _days(books: JobLedgerItems) -> Iterator[str]:
    sums: dict[tuple[int, int], Counter[str]] = {key: Counter() for key in books.days}
    for job in books.jobs.values():
        day = sums.setdefault((job["owner"], job["day"]), Counter())
        day["held"] += job["reserved"] - job["settled"] - job["refunded"]
        day["spent"] += job["settled"]
        day["jobs"] += 1
    for key, found in sums.items():
        item = books.days.get(key, {})
        has = [item.get(name) for name in ("held", "spent", "used", "jobs")]
        spent = found["spent"] + item.get("opened_spent", 0)
        if has != [found["held"], spent, found["held"] + spent, found["jobs"]]:
            yield f"promise 8: the jobs do not add up to what is held or spent on a meter (user {key[0]}, day {key[1]})"


def _holds(books: JobLedgerItems) -> Iterator[str]:
    for key, close in books.closes.items():
        hold = books.holds.get(key)
        whole = hold is not None and all(
            hold[f"{meter}_hold"] == close[f"{meter}_settle"] + close[f"{meter}_refund"] for meter in WINDOWS
        )
        if not whole:
            yield findings.UNEQUAL_CLOSE.format(f"{key[0]}/{key[1]}")
    held = {(row["handle"], row["attempt"]) for row in books.rows.values() if row["slot"]}
    for handle, attempt in sorted(held ^ (books.holds.keys() - books.closes.keys())):
        yield findings.SLOT.format(f"{handle}/{attempt}")
    shown = {(_quoted(books.accounts[row["account"]]), row["handle"]) for row in books.rows.values() if _answered(row)}
    for account, handle in sorted(shown ^ books.slots):
        yield f"promise 8: a slot is held and not noted on its account, or the other way round ({account}, {handle})"


def _rows(books: JobLedgerItems) -> Iterator[str]:
    for handle, row in books.rows.items():
        if handle >> INDEX_BITS not in books.jobs and handle >> INDEX_BITS not in books.submitting:
            yield f"promise 10: a measurement is of no job (measurement {handle})"
        ended = row["state"] in ENDED
        if ended != ("ended_ms" in row) or ended != ("settled" in row):
            yield findings.OWNERS_HOLD.format(handle)
        if ended and not 0 <= row["settled"] <= row["credits"]:
            yield f"promise 8: a measurement was settled on more than was held (measurement {handle})"
        if (row["state"] == "ongoing" or _was_sent(row)) and len(row.get("atlas", ())) != row["concurrent"]:
            yield findings.ATLAS_IDS.format(handle)
        if row_place(row) != (row.get("shard"), row.get("at")):
            yield f"promise 10: a measurement is not where it is looked for (measurement {handle})"


def _jobs(books: JobLedgerItems) -> Iterator[str]:
    sums: dict[int, list[StateSums]] = {}
    for row in books.rows.values():
        one = StateSums(row["state"], 1, row["concurrent"], row["credits"], row.get("settled", 0), row["slot"])
        sums.setdefault(row["handle"] >> INDEX_BITS, []).append(one)
    for number, job in books.jobs.items():
        yield from map(str, findings.job_findings(job["name"], job, sums.get(number, ())))


def _line(books: JobLedgerItems) -> Iterator[str]:
    real = [row for row in books.rows.values() if row["handle"] >> INDEX_BITS in books.jobs]
    queued = Counter(row["owner"] for row in real if row["state"] == "queued")
    for owner in queued.keys() | books.turns.keys():
        turn = books.turns.get(owner, {})
        if turn.get("queued", 0) != queued[owner] or (queued[owner] and turn.get("shard") != "turn"):
            yield findings.LINE.format(f"user {owner}, or with another count")
    if sum(row["state"] == "sending" for row in real) != books.line.get("sending", 0):
        yield "promise 6: as many are not being sent as are counted"


def _answered(row: Item) -> bool:
    return bool(row["slot"]) and "atlas" in row and row["state"] not in {"sending", "unknown"}


def _was_sent(row: Item) -> bool:
    return row["state"] in {"done", "failed"} and "account" in row


def _quoted(account: Item) -> str:
    """Return the account's name as it is written in keys."""
    return str(account["pk"].partition("#")[2])
