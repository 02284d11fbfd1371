"""Seeded edits of rows behind a store's back: ``verify`` names the promise that each breaks, and misses none."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from random import Random

import apsw
import pytest

from paceline.adapters.sqlite.monitors import uptime
from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.verify.rules import Rules
from paceline.steps.history.verify import VerifyReport, verify
from tests.contract.support.fair_stage import MINUTES, live, send_all
from tests.contract.support.job_stage import add_account, admitted
from tests.contract.support.stage import DAY_MS, user
from tests.steps.history.support.batch_edits import BATCH_EDITS
from tests.steps.history.support.batch_past import live_two_days
from tests.steps.history.support.fair_edits import FAIR_EDITS
from tests.steps.history.support.job_edits import JOB_EDITS
from tests.steps.history.support.monitor_edits import MONITOR_EDITS, Edit
from tests.world.history.support.verified import SteadyJobWorld, SteadyWorld
from tests.world.support.actors import EXPIRE_MS, KEEP_MS

SEEDS = range(2)


class Past:
    """A store with a history, in a file that is copied for each edit."""

    def __init__(self, path: Path, now_ms: int, *, keep_ms: int = KEEP_MS) -> None:
        self.path = path
        self.now_ms = now_ms
        self._keep_ms = keep_ms

    def judged(self, path: Path) -> VerifyReport:
        rules = Rules(self.now_ms, keep_ms=self._keep_ms, expire_ms=EXPIRE_MS)
        with closing(SqliteStore(str(path), synchronous="normal")) as store:
            return verify(store, rules, progress=lambda _done, _total: None)

    def edited(self, path: Path, edit: Edit, seed: int) -> VerifyReport:
        shutil.copy(self.path, path)
        with closing(apsw.Connection(str(path))) as db:
            db.execute("PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON")
            edit.act(db, Random(seed))
        return self.judged(path)


@pytest.fixture(scope="module")
def monitors(tmp_path_factory: pytest.TempPathFactory) -> Past:
    folder = tmp_path_factory.mktemp("past")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uptime, "FOLD_EVERY", 5)
        with closing(SteadyWorld(5, folder)) as world:
            world.live(700)
    return Past(folder / "5.db", world.now_ms)


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> Past:
    path = tmp_path_factory.mktemp("past") / "batches.db"
    with closing(SqliteStore(str(path), synchronous="normal")) as store:
        now_ms = live_two_days(store)
    return Past(path, now_ms, keep_ms=7 * DAY_MS)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Past:
    folder = tmp_path_factory.mktemp("past")
    with closing(SteadyJobWorld(3, folder)) as world:
        world.live(250)
        (path,) = folder.glob("*.db")
    return Past(path, world.now_ms, keep_ms=7 * DAY_MS)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Past:
    path = tmp_path_factory.mktemp("past") / "shared.db"
    with closing(SqliteStore(str(path), synchronous="normal")) as store:
        store.add_user(user("ann"))
        now_ms = live(store)
        key = add_account(store)
        admitted(store, 12)
        admitted(store, 2, owner="bob")
        now_ms = max(now_ms, send_all(store, key))
    return Past(path, now_ms, keep_ms=7 * DAY_MS)


def test_verify_passes_a_history_of_fair_shares(shared: Past) -> None:
    report = shared.judged(shared.path)
    assert report.passed, report
    assert report.verdicts[-1].judged > MINUTES


@pytest.mark.parametrize("edit", FAIR_EDITS, ids=lambda edit: edit.name)
def test_edit_that_starves_a_user_is_named(edit: Edit, shared: Past, tmp_path: Path) -> None:
    report = shared.edited(tmp_path / "edited.db", edit, seed=1)
    broken = {verdict.promise for verdict in report.verdicts if not verdict.passed}
    assert edit.promises <= broken, report


def test_verify_passes_an_unedited_history_of_monitors(monitors: Past) -> None:
    report = monitors.judged(monitors.path)
    assert report.passed, report
    assert report.runs > 200


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("edit", MONITOR_EDITS, ids=lambda edit: edit.name)
def test_edit_of_a_monitor_s_rows_is_named(edit: Edit, seed: int, monitors: Past, tmp_path: Path) -> None:
    report = monitors.edited(tmp_path / "edited.db", edit, seed)
    broken = {verdict.promise for verdict in report.verdicts if not verdict.passed}
    assert edit.promises <= broken, report


def test_verify_passes_an_unedited_history_of_batches(batches: Past) -> None:
    report = batches.judged(batches.path)
    assert report.passed, report
    assert report.runs > 20


@pytest.mark.parametrize("edit", BATCH_EDITS, ids=lambda edit: edit.name)
def test_edit_of_a_batch_s_rows_is_named(edit: Edit, batches: Past, tmp_path: Path) -> None:
    report = batches.edited(tmp_path / "edited.db", edit, seed=1)
    broken = {verdict.promise for verdict in report.verdicts if not verdict.passed}
    assert edit.promises <= broken, report


def test_verify_passes_an_unedited_history_of_jobs(jobs: Past) -> None:
    report = jobs.judged(jobs.path)
    assert report.passed, report
    assert report.runs > 20


@pytest.mark.parametrize("edit", JOB_EDITS, ids=lambda edit: edit.name)
def test_edit_of_a_job_s_rows_is_named(edit: Edit, jobs: Past, tmp_path: Path) -> None:
    report = jobs.edited(tmp_path / "edited.db", edit, seed=1)
    broken = {verdict.promise for verdict in report.verdicts if not verdict.passed}
    assert edit.promises <= broken, report
