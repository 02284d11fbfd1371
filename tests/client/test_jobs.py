"""A job from submission to results, with a daemon and a RIPE Atlas simulator that take a few seconds for it."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.simulators.ripe_atlas import AtlasSimulator
from paceline_client import JobFinished, OverBudget
from paceline_client.models.jobs import Cost, Counts, JobStatus
from paceline_client.progress import bar_line, progress_of
from tests.client.support.both import Connect
from tests.client.support.scripted import Say, ScriptedServer
from tests.shells.support.daemons import free_port, start_daemon
from tests.shells.support.job_daemons import QUICK, Stage, document, stop

STATUS: dict[str, Any] = {
    "job": "j1", "title": "", "user": "ann", "state": "running", "finished": False, "success": False, "webhook": None,
    "created_at": "2026-11-15T00:00:00Z", "started_at": None, "cancelled_at": None, "finished_at": None,
    "counts": {"ongoing": 1, "done": 3, "failed": 1}, "cost": {"reserved": 1, "settled": 0, "refunded": 0},
    "waiting": None, "place": None, "eta": None, "reason": "", "measurements": [],
}  # fmt: skip
DONE = STATUS | {"state": "finished", "finished": True, "counts": {"done": 4, "failed": 1}}


@pytest.fixture
def ann(tmp_path: Path, connect: Connect) -> Iterator[Any]:
    with AtlasSimulator(model=QUICK) as atlas:
        stage = Stage(tmp_path, atlas)
        stage.accounts("lab")
        port = free_port()
        daemon = start_daemon(tmp_path, port, **stage.settings)
        try:
            yield connect(f"http://127.0.0.1:{port}", stage.token)
        finally:
            stop(daemon)


@pytest.mark.slow
def test_job_is_quoted_submitted_waited_for_and_its_results_are_read(ann: Any) -> None:
    work: Any = document(2)
    assert ann.jobs.quote(work).fits
    job = ann.jobs.submit(work, idempotency_key="once")
    assert job.accepted.measurements == 2
    assert ann.jobs.submit(work, idempotency_key="once").accepted.again
    seen: list[JobStatus] = []
    ended = job.wait(timeout="90s", progress=seen.append)
    assert (ended.finished, ended.success, ended.counts.done, len(ended.measurements)) == (True, True, 2, 2)
    assert seen[-1].finished
    results = job.results().to_list()
    assert {one.measurement for one in results if one.result} == {0, 1}
    frame = job.results().to_pandas()
    assert len(frame) == len(results)
    assert {one.target for one in job.results_by_target()} == {"192.0.2.1", "192.0.2.2"}
    assert [one.job for one in ann.jobs.list()] == [job.id]
    with pytest.raises(JobFinished):
        job.cancel()
    large: Any = document(400)
    for one in large["measurements"]:
        one["probes"] = [{"requested": 500, "type": "area", "value": "WW"}]
    with pytest.raises(OverBudget) as caught:
        ann.jobs.submit(large)
    problem = caught.value
    assert problem.cost is not None
    assert problem.credits_left is not None
    assert problem.cost > problem.credits_left
    assert problem.resets_at is not None
    assert problem.resets_at.tzinfo is not None


def test_waiting_ends_with_a_time_out_and_the_job_goes_on(connect: Connect) -> None:
    with ScriptedServer([Say(200, STATUS)]) as server:
        job = connect(server.url, "t").jobs.open("j1")
        with pytest.raises(TimeoutError, match="4 of 5"):
            job.wait(timeout=0.2, progress=False)
        assert {one.method for one in server.requests} == {"GET"}
        assert server.requests[0].path == "/v1/jobs/j1?measurements=false"


def test_waiting_in_a_terminal_draws_a_line_and_elsewhere_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    status = JobStatus(**STATUS | {"counts": Counts(ongoing=1, done=3, failed=1), "cost": Cost(1, 0, 0)})
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    terminal, pipe = Terminal(), io.StringIO()
    for file in (terminal, pipe):
        with progress_of(None, "j1", file) as show:
            show(status)
    assert (
        terminal.getvalue() == f"\rj1 [{'#' * 24}{'.' * 6}] 4/5 running, 1 failed\n" == f"\r{bar_line('j1', status)}\n"
    )
    assert pipe.getvalue() == ""
    monkeypatch.undo()
    with progress_of(None, "j1", terminal) as show:
        show(status)
    assert "4/5" in terminal.getvalue().splitlines()[-1], "tqdm is installed here"
    with progress_of(False, "j1", terminal) as show:
        show(status)


def test_wait_polls_until_the_job_has_finished(connect: Connect) -> None:
    with ScriptedServer([Say(200, STATUS), Say(200, DONE)]) as server:
        ended = connect(server.url, "t").jobs.open("j1").wait(timeout=30)
        assert ended.finished
        assert [one.path for one in server.requests][-1] == "/v1/jobs/j1"
