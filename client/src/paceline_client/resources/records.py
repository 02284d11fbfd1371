"""A batch's records, its days with their runs, and dead letters."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Sequence

from paceline_client.answers import IfChanged, Json, Nothing, Opened, Page, Reply, decode
from paceline_client.calls import Call, Pages, Resource, Stream, Transport, given, listing, operation
from paceline_client.durations import DateLike, date_text
from paceline_client.lines import Lines, Progress
from paceline_client.models import batches
from paceline_client.models.states import BatchRunState, EndState
from paceline_client.models.why import Why

SLOW_S = 3_600.0
"""Extra time for a plan or an import: a million records take minutes."""
_BATCH = "/v1/batches/{batch}"
_RECORDS = f"{_BATCH}/records"
_DAY = f"{_BATCH}/days/{{date}}"


class Records(Resource[Transport]):
    """Records of a batch. For admins."""

    @operation
    def put(self, batch: str, records: Iterable[batches.RecordDocument]) -> Call[batches.RecordsPut]:
        """Puts records in one request; the answer has a disposition for each. For many, see ``load``."""
        items = [given(**record) for record in records]
        return Call("PUT", _RECORDS, Json(batches.RecordsPut), {"batch": batch}, body={"items": items})

    @operation
    def why(self, batch: str, record: str) -> Call[Why]:
        """Explains why the record did not run today: by its run of the day, or why there is none."""
        return Call("GET", f"{_RECORDS}/{{record}}/why", Json(Why), {"batch": batch, "record": record})

    @operation
    def load(
        self,
        batch: str,
        records: Iterable[batches.RecordDocument] | AsyncIterable[batches.RecordDocument],
        *,
        progress: Progress | None = None,
    ) -> Call[batches.RecordsPut]:
        """Puts any number of records as a stream, in bounded memory; the answer counts them and names the refused ones.

        Records that were put stay, even if the rest never arrives. ``progress`` is called with how many were handed
        over. A source that can be read again, such as a list, is sent again after a lost connection; a generator is
        not.
        """
        lines = Lines(records, progress)
        return Call("PUT", _RECORDS, Json(batches.RecordsPut), {"batch": batch}, lines=lines, wait_s=SLOW_S)

    @operation
    def get(self, batch: str, record: str) -> Call[batches.Record]:
        """Returns the record."""
        return Call("GET", f"{_RECORDS}/{{record}}", Json(batches.Record), {"batch": batch, "record": record})

    @operation
    def remove(self, batch: str, record: str) -> Call[None]:
        """Removes the record; it no longer runs, not even today."""
        return Call("DELETE", f"{_RECORDS}/{{record}}", Nothing(), {"batch": batch, "record": record})

    @listing
    def list(
        self, batch: str, *, provider: str | None = None, active: bool | None = None, limit: int | None = None
    ) -> Pages[batches.Record]:
        """Lists the batch's records in order of id; of one provider, or only active or inactive ones."""
        query = {"provider": provider, "active": None if active is None else str(active).lower()}
        return Pages(Call("GET", _RECORDS, Json(Page[batches.Record]), {"batch": batch}, query), limit)


class Days(Resource[Transport]):
    """Days of a batch. For admins."""

    @operation
    def plan(self, batch: str, date: DateLike | None = None) -> Call[batches.Planned]:
        """Plans a day, by default the running one. Planning it again changes nothing."""
        body = given(date=None if date is None else date_text(date))
        return Call(
            "POST", f"{_BATCH}/plan", Json(batches.Planned), {"batch": batch}, body=body, repeatable=True, wait_s=SLOW_S
        )

    @operation
    def preview(self, batch: str, date: DateLike | None = None) -> Call[batches.Preview]:
        """Returns how the day would be planned, by default the running one; changes nothing."""
        body, query = given(date=None if date is None else date_text(date)), {"dry_run": "true"}
        path, places = f"{_BATCH}/plan", {"batch": batch}
        return Call("POST", path, Json(batches.Preview), places, query, body=body, repeatable=True, wait_s=SLOW_S)

    @operation
    def get(self, batch: str, date: DateLike) -> Call[batches.Day]:
        """Returns the day's report: totals by state and provider, evenness, histogram."""
        return Call("GET", _DAY, Json(batches.Day), {"batch": batch, "date": date_text(date)}, wait_s=SLOW_S)

    @operation
    def get_if_changed(self, batch: str, date: DateLike, *, if_none_match: str) -> Call[batches.Day | None]:
        """Returns the day's report, or None if it still has this ETag."""
        headers, places = {"If-None-Match": if_none_match}, {"batch": batch, "date": date_text(date)}
        return Call("GET", _DAY, IfChanged(batches.Day), places, headers=headers, wait_s=SLOW_S)

    @listing
    def running(self, *, limit: int | None = None) -> Pages[batches.RunningDay]:
        """Lists the running days of all batches: the progress of each, and when it ends."""
        return Pages(Call("GET", "/v1/days", Json(Page[batches.RunningDay]), {}, wait_s=SLOW_S), limit)

    @listing
    def providers(self, batch: str, date: DateLike, *, limit: int | None = None) -> Pages[batches.ProviderDay]:
        """Lists the day's providers in order of id, each with its totals and how even its runs are."""
        places = {"batch": batch, "date": date_text(date)}
        return Pages(Call("GET", f"{_DAY}/providers", Json(Page[batches.ProviderDay]), places, wait_s=SLOW_S), limit)

    @operation
    def rerun(
        self, batch: str, date: DateLike, *, state: EndState | None = None, records: Sequence[str] | None = None
    ) -> Call[batches.Rerun]:
        """Runs the records whose runs ended in ``state``, or these ``records``, again.

        Asking again while the rerun is open changes nothing.
        """
        places, body = {"batch": batch, "date": date_text(date)}, given(state=state, records=records)
        return Call("POST", f"{_DAY}/rerun", Json(batches.Rerun), places, body=body, repeatable=True, wait_s=SLOW_S)

    @listing
    def list(self, batch: str, *, limit: int | None = None) -> Pages[batches.DaySummary]:
        """Lists the batch's days, newest first."""
        return Pages(Call("GET", f"{_BATCH}/days", Json(Page[batches.DaySummary]), {"batch": batch}), limit)

    @listing
    def runs(
        self,
        batch: str,
        date: DateLike,
        *,
        state: BatchRunState | None = None,
        provider: str | None = None,
        limit: int | None = None,
    ) -> Pages[batches.BatchRun]:
        """Lists the day's runs with their results."""
        places, query = {"batch": batch, "date": date_text(date)}, {"state": state, "provider": provider}
        return Pages(Call("GET", f"{_DAY}/runs", Json(Page[batches.BatchRun]), places, query), limit)

    @listing
    def export(
        self, batch: str, date: DateLike, *, state: BatchRunState | None = None, provider: str | None = None
    ) -> Stream[batches.BatchRun]:
        """Streams all runs of the day in one request."""
        return Stream(_export(batch, date, "ndjson", state, provider), lambda line: decode(batches.BatchRun, line))

    @listing
    def export_csv(
        self, batch: str, date: DateLike, *, state: BatchRunState | None = None, provider: str | None = None
    ) -> Stream[str]:
        """Streams the day's runs as lines of CSV; the first has the names of the columns.

        A cell may contain a line break.
        """
        return Stream(_export(batch, date, "csv", state, provider), bytes.decode)


class DeadLetters(Resource[Transport]):
    """Runs of batches that failed for good or are unknown. For admins."""

    @listing
    def list(
        self,
        *,
        provider: str | None = None,
        batch: str | None = None,
        date: DateLike | None = None,
        limit: int | None = None,
    ) -> Pages[batches.BatchRun]:
        """Lists dead letters by provider and due time."""
        query = {"provider": provider, "batch": batch, "date": None if date is None else date_text(date)}
        return Pages(Call("GET", "/v1/dead", Json(Page[batches.BatchRun]), query=query), limit)

    @operation
    def redrive(
        self,
        *,
        runs: Sequence[str] | None = None,
        provider: str | None = None,
        batch: str | None = None,
        date: DateLike | None = None,
    ) -> Call[batches.Redriven]:
        """Redrives these dead letters, in their old order and at a limited pace, each once."""
        body = _choice(runs=runs, provider=provider, batch=batch, date=date)
        return Call("POST", "/v1/dead/redrive", Json(batches.Redriven), body=body, wait_s=SLOW_S)

    @operation
    def replay(self) -> Call[batches.Replayed]:
        """Sends messages of the dead queues again, up to 1,000 of each. On AWS."""
        return Call("POST", "/v1/dead/redrive", Json(batches.Replayed), body={"queues": True}, wait_s=SLOW_S)

    @operation
    def discard(
        self,
        *,
        runs: Sequence[str] | None = None,
        provider: str | None = None,
        batch: str | None = None,
        date: DateLike | None = None,
    ) -> Call[batches.Discarded]:
        """Discards these dead letters; their results stay in their day."""
        body = _choice(runs=runs, provider=provider, batch=batch, date=date)
        return Call("POST", "/v1/dead/discard", Json(batches.Discarded), body=body, wait_s=SLOW_S)


def _export(batch: str, date: DateLike, form: str, state: str | None, provider: str | None) -> Call[Reply]:
    places, query = {"batch": batch, "date": date_text(date)}, {"format": form, "state": state, "provider": provider}
    answer = Opened(batches.BatchRun if form == "ndjson" else str)
    return Call("GET", f"{_DAY}/export", answer, places, query, streamed=True, wait_s=SLOW_S)


def _choice(
    *, runs: Sequence[str] | None, provider: str | None, batch: str | None, date: DateLike | None
) -> dict[str, object]:
    return given(runs=runs, provider=provider, batch=batch, date=None if date is None else date_text(date))
