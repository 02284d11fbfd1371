"""Explains a run, or why something did not run: reads the reasons from the store or over REST, and prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paceline.errors import InvalidInput
from paceline.shells.cli.call import CliCall, owner_id
from paceline.shells.cli.output import TextFields, emit
from paceline.steps.batches.batches import get_batch
from paceline.steps.monitors.define import get_monitor
from paceline.steps.views.job_report import find_job
from paceline.steps.why.runs import explain_run
from paceline.steps.why.view import LinkView, WhyView
from paceline.steps.why.why_not import explain_job, explain_monitor, explain_record

if TYPE_CHECKING:
    from paceline.wiring import System


def of_run(call: CliCall, run: str) -> WhyView:
    return call.answer(
        lambda at: explain_run(at.store, run, viewer=None, now_ms=at.clock.now_ms()),
        lambda remote: remote.get("/v1/runs/{run}/why", WhyView, run=run),
    )


def of_monitor(call: CliCall, monitor_id: str, user: str | None) -> WhyView:
    def on_store(at: System) -> WhyView:
        monitor = get_monitor(at.store, owner_id(at, user), monitor_id)
        return explain_monitor(at.store, monitor, now_ms=at.clock.now_ms())

    path = "/v1/users/{user}/monitors/{id}/why"
    return call.answer(on_store, lambda remote: remote.get(path, WhyView, user=remote.owner(user), id=monitor_id))


def of_record(call: CliCall, text: str) -> WhyView:
    batch_id, slash, record_id = text.partition("/")
    if not slash or not record_id:
        raise InvalidInput("--record takes BATCH/RECORD, for example nightly/order-1.")

    def on_store(at: System) -> WhyView:
        batch = get_batch(at.store, batch_id)
        return explain_record(at.store, batch, record_id, now_ms=at.clock.now_ms())

    path = "/v1/batches/{batch}/records/{record}/why"
    return call.answer(on_store, lambda remote: remote.get(path, WhyView, batch=batch_id, record=record_id))


def of_job(call: CliCall, job_id: str) -> WhyView:
    def on_store(at: System) -> WhyView:
        job = find_job(at.store, None, job_id)
        return explain_job(at.store, job, viewer=None, now_ms=at.clock.now_ms())

    return call.answer(on_store, lambda remote: remote.get("/v1/jobs/{job}/why", WhyView, job=job_id))


def show(call: CliCall, view: WhyView) -> None:
    """Prints the run and its chain of reasons."""
    links = [part for link in view.chain for part in ("", TextFields(_fields(link)))]
    emit(call, view, TextFields([("run", view.run), ("state", view.state), *_starts(view)]), *links)


def _starts(view: WhyView) -> list[tuple[str, str]]:
    if view.eta is None:
        return []
    first, last = view.eta.from_, view.eta.to
    return [("starts", first)] if first == last else [("starts from", first), ("starts by", last)]


def _fields(link: LinkView) -> list[tuple[str, str]]:
    times = [(word, at) for word, at in (("since", link.since), ("until", link.until)) if at is not None]
    return [(link.link, link.text), *times, ("change", link.change)]
