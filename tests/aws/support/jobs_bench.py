"""A store on the emulator that can be cut before any of its requests, and whose books can be read whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.jobs.verify import JobLedgerItems, read_books
from paceline.adapters.aws.store import AwsStore
from paceline.core.jobs.accounts import WINDOWS
from paceline.core.jobs.meters import Kind, Posting, add_up
from paceline.core.jobs.names import INDEX_BITS
from tests.aws.support.ministack import fresh_prefix, guarded_clients, make_tables, shared_clients, shared_emulator

T = TypeVar("T")
KINDS: tuple[Kind, ...] = ("hold", "settle", "refund")


class Cut(Exception):
    """The process dies here."""


class AwsBench:
    """What ``test_ledger.Bench`` of the contract is for SQLite; here a cut may come between two writes of one act."""

    def __init__(self, *, daily_credits: int = 0, url: str | None = None) -> None:
        self._stack = ExitStack()
        self._clients = self._stack.enter_context(guarded_clients(url or shared_emulator().url))
        self._daily_credits = daily_credits
        self._prefix = fresh_prefix()
        make_tables(shared_clients(), self._prefix)
        self.store = AwsStore(self._prefix, clients=self._clients)
        self.cuts = 0

    @property
    def database(self) -> DynamoDatabase:
        return self.store._database

    def other(self) -> AwsStore:
        """Opens the store as a further process."""
        store = AwsStore(self._prefix, clients=self._clients)
        self._stack.callback(store.close)
        return store

    def act(self, work: Callable[[AwsStore], T], *, cut: int | None) -> T | None:
        """Returns the result of the act; None if it was cut before the given request, and then earlier writes stay."""
        if cut is None:
            return work(self.store)
        try:
            with self._cutting(cut):
                return work(self.store)
        except Cut:
            self.store.close()
            self.store = AwsStore(self._prefix, clients=self._clients)
            self.cuts += 1
            return None

    def requests(self, work: Callable[[AwsStore], object]) -> list[str]:
        """Returns the requests that the act takes."""
        seen: list[str] = []

        def note(model: Any, **_: Any) -> None:
            seen.append(model.name)

        events = self._clients.dynamodb.meta.events
        events.register("before-call.dynamodb", note)
        try:
            work(self.store)
        finally:
            events.unregister("before-call.dynamodb", note)
        return seen

    @contextmanager
    def _cutting(self, cut: int) -> Iterator[None]:
        left = iter(range(cut))

        def stop(**_: Any) -> None:
            if next(left, None) is None:
                raise Cut

        events = self._clients.dynamodb.meta.events
        events.register("before-call.dynamodb", stop)
        try:
            yield
        finally:
            events.unregister("before-call.dynamodb", stop)

    # -- the books, in the words of core

    def books(self) -> JobLedgerItems:
        return read_books(self.database)

    def postings(self) -> list[Posting]:
        """Every line: those of accounts as they are written, those of users as their measurements carry them."""
        books = self.books()
        found = []
        for (handle, attempt), item in [*books.holds.items(), *books.closes.items()]:
            for meter in WINDOWS:
                full = f"account/{item['account']}/{meter}"
                amounts = {kind: item[f"{meter}_{kind}"] for kind in KINDS if f"{meter}_{kind}" in item}
                found += [Posting(full, f"{handle}/{attempt}", *one, 0) for one in amounts.items()]
        for handle, row in books.rows.items():
            if handle >> INDEX_BITS in books.jobs:
                lines: dict[Kind, int] = {"hold": row["credits"]}
                if "settled" in row:
                    lines |= {"settle": row["settled"], "refund": row["credits"] - row["settled"]}
                day = f"{row['owner']}@{row['day']}"
                found += [Posting(day, f"{handle}/0", *one, 0) for one in lines.items()]
        return found

    def meters(self) -> dict[str, tuple[int, int, int]]:
        """Returns limit, held and spent amounts by the name of the meter."""
        books = self.books()
        found = {
            f"account/{name}/{meter}": (item[f"{meter}_limit"], item[f"{meter}_held"], item[f"{meter}_spent"])
            for name, item in books.accounts.items()
            for meter in WINDOWS
        }
        days = {f"{owner}@{day}": item for (owner, day), item in books.days.items()}
        return found | {name: (self._daily_credits, item["held"], item["spent"]) for name, item in days.items()}

    def opened(self) -> dict[str, tuple[int, int]]:
        """By name: what removed lines added up to, held and spent; of a job that is half removed it still has them."""
        books = self.books()
        found = {
            f"account/{name}/{meter}": (item[f"{meter}_opened_held"], item[f"{meter}_opened_spent"])
            for name, item in books.accounts.items()
            for meter in WINDOWS
        }
        for (owner, day), item in books.days.items():
            jobs = {number for number, job in books.jobs.items() if (job["owner"], job["day"]) == (owner, day)}
            rows = [row for handle, row in books.rows.items() if handle >> INDEX_BITS in jobs]
            of_jobs = sum(books.jobs[number]["settled"] for number in jobs) - sum(row.get("settled", 0) for row in rows)
            found[f"{owner}@{day}"] = (0, item["opened_spent"] + of_jobs)
        return found

    def open_holds(self) -> int:
        return len(add_up(self.postings()).open_lines)

    def close(self) -> None:
        self.store.close()
        self._stack.close()
