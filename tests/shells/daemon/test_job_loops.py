"""Webhooks of real daemons, and the loops by themselves."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

import pytest
from structlog.testing import capture_logs

from paceline.adapters.sqlite.store import SqliteStore
from paceline.config import load_settings
from paceline.core.jobs.accounts import enable_key
from paceline.core.jobs.values import AccountSpec
from paceline.shells.daemon import loop as loops
from paceline.shells.daemon.jobs import Dispatcher, Follower
from paceline.shells.daemon.keeper import Keeper
from paceline.shells.daemon.loop import Loop, LoopTurn
from paceline.shells.daemon.metrics import Metrics
from paceline.simulators.ripe_atlas import AtlasSimulator, Limits
from paceline.steps.jobs.accounts import put_account_spec
from paceline.steps.jobs.dispatch import DispatchSettings
from paceline.steps.jobs.webhook import webhook_secret
from paceline.wiring import System, open_atlas
from tests.shells.support.daemons import SECRET, now_ms
from tests.shells.support.job_daemons import KEY, QUICK, Stage, stop, wait_for, worker


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with AtlasSimulator(QUICK) as atlas:
        opened = Stage(tmp_path, atlas)
        yield opened
        opened.store.close()
        assert atlas.defects == []


class Receiver:
    """A webhook's receiver on loopback: answers as it is told, and keeps what it was sent."""

    def __init__(self, *answers: int) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        answered = list(answers)
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append((dict(self.headers.items()), body))
                self.send_response(answered.pop(0) if answered else 204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/told?by=paceline"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def test_webhook_of_a_finished_job_is_signed_and_retried_after_a_failure(stage: Stage) -> None:
    stage.accounts("lab")
    with Receiver(500) as receiver, worker(stage, PACELINE_LOG_LEVEL="info") as process:
        job = stage.submit(1, webhook=receiver.url)
        stage.finished(job)
        wait_for(lambda: len(receiver.got) == 2, stage.log, within_s=60)
        time.sleep(0.5)
        stop(process)
    assert stage.store.due_webhooks(now_ms=now_ms() + 86_400_000, limit=10) == [], (
        "the webhook was called, and not again"
    )
    secret = webhook_secret(KEY, "ann")
    for number, (headers, body) in enumerate(receiver.got, start=1):
        told = json.loads(body)
        assert (told["job"], told["finished"], told["success"], told["counts"]["done"]) == (job.id, True, True, 1)
        assert (headers["Paceline-Try"], headers["Idempotency-Key"]) == (str(number), f"webhook/{job.id}")
        at, _, digest = headers["Paceline-Signature"].removeprefix("t=").partition(",v1=")
        assert abs(int(at) - time.time()) < 120
        assert hmac.compare_digest(
            digest, hmac.new(secret.encode(), at.encode() + b"." + body, hashlib.sha256).hexdigest()
        )
    assert "by=paceline" not in stage.log(), "a URL may have a secret in it"
    assert secret not in stage.log()


def test_a_webhook_reaches_no_private_address_that_is_not_allowed(stage: Stage) -> None:
    stage.accounts("lab")
    settings = {"PACELINE_OUTBOUND_ALLOW": "", "PACELINE_LOG_LEVEL": "info"}
    with Receiver() as receiver, worker(stage, **settings) as process:
        job = stage.submit(1, webhook=receiver.url)
        assert stage.finished(job).success, "RIPE's address is set by the operator"
        wait_for(lambda: "webhook_failed" in stage.log(), stage.log)
        stop(process)
    assert receiver.got == []
    assert len(stage.store.due_webhooks(now_ms=now_ms() + 86_400_000, limit=10)) == 1, "it is tried again"


class SteppingClock:
    """A wall clock that the test sets."""

    def __init__(self, ms: int) -> None:
        self.ms = ms

    def now_ms(self) -> int:
        return self.ms


def test_keeper_removes_old_jobs_and_pulls_back_sends_postponed_by_a_wrong_clock(stage: Stage) -> None:
    clock = SteppingClock(now_ms())
    system = System(load_settings(jobs_keep="2d", secret_key=SECRET), stage.store, clock)
    beats = []
    keeper = Keeper(system, Metrics(), loops=list, beat=lambda: beats.append(clock.ms))
    old = stage.submit(3)
    stage.store.cancel_job(old.number, now_ms=clock.ms)
    stage.store.finish_jobs(now_ms=clock.ms, limit=10)
    waiting = stage.submit(1)
    [item] = stage.items(waiting)
    week_ms = 7 * 86_400_000
    assert stage.store.park([(item.handle, item.attempt)], next_ms=clock.ms + week_ms, reason="a clock went wrong")
    keeper.turn()
    [waits] = stage.items(waiting)
    assert waits.next_ms == clock.ms + week_ms, "what lies ahead says nothing of the clock"
    clock.ms -= 3_600_000
    beats.clear()
    with capture_logs() as lines:
        keeper.turn()
    assert [line["by_ms"] // 60_000 for line in lines if line["event"] == "clock_set_back"] == [60]
    assert len(beats) > 1, "reading all waiting entries may take minutes and must not look like a stuck loop"
    assert stage.job(old).finished
    [moved] = stage.items(waiting)
    assert moved.next_ms == clock.ms + system.send_wait_ms_max
    clock.ms += 3_600_000 + 2 * 86_400_000 + 1_000
    with capture_logs() as lines:
        keeper.turn()
    assert "clock_set_back" not in [line["event"] for line in lines]
    assert stage.store.job(old.id) is None
    assert stage.store.job(waiting.id) is not None
    assert stage.store.verify() == []


def test_lasting_trouble_does_not_fill_the_log(stage: Stage) -> None:
    stage.accounts("lab")
    for key in stage.store.keys("lab"):
        stage.store.change_key("lab", key.id, enable_key(enabled=False))
    stage.submit(1)  # so the account is synced as often as can be
    clock = SteppingClock(now_ms())
    system = System(load_settings(atlas_url=stage.atlas.base_url, secret_key=SECRET), stage.store, clock)
    desk = DispatchSettings(site=stage.store.site("abcd1234"), secret=KEY, sending_max=1, settle_ms=1_000)
    atlas = open_atlas(system.settings)
    follower = Follower(system, atlas, desk, Metrics(), chance=lambda: 0.5, finished=lambda: None)
    with closing(atlas), capture_logs() as lines:
        for _ in range(40):
            clock.ms += 30_000
            follower.turn()
    told = [line for line in lines if line["event"] == "atlas_trouble"]
    assert 1 <= len(told) <= 3
    assert stage.atlas.audit()["requests"] == {}, "without a key nothing is asked in the account's name"


def test_a_loop_within_a_long_call_is_not_stuck_until_the_calls_own_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "STUCK_S", 0.2)
    over, asking = threading.Event(), threading.Event()

    def turn() -> LoopTurn:
        loop.beat_for(0.5)
        asking.set()
        over.wait(10)
        return LoopTurn(10)

    loop = Loop("a loop", turn, Metrics())
    loop.start()
    asking.wait(10)
    time.sleep(0.4)
    within = loop.turning
    time.sleep(0.6)
    assert (within, loop.turning) == (True, False)
    over.set()
    loop.stop()
    loop.join(10)


class Dispatching:
    """A dispatcher by itself, on a clock that stands still: only a change can make it look again."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.clock = SteppingClock(now_ms())
        system = System(load_settings(atlas_url=stage.atlas.base_url, secret_key=SECRET), stage.store, self.clock)
        desk = DispatchSettings(site=stage.store.site("abcd1234"), secret=KEY, sending_max=1, settle_ms=1_000)
        self.atlas = open_atlas(system.settings)
        self._dispatcher = Dispatcher(system, self.atlas, desk, Metrics(), chance=lambda: 0.5)
        self.tell = self._dispatcher.tell

    def close(self) -> None:
        self.atlas.close()

    def sent(self, turns: int = 3) -> int:
        """How many more measurements are at RIPE after so many turns."""
        before = len(self.stage.atlas.audit()["measurements"])
        for _ in range(turns):
            self._dispatcher.turn()
        return len(self.stage.atlas.audit()["measurements"]) - before


@pytest.fixture
def full(stage: Stage) -> Iterator[Dispatching]:
    """The one slot of the one account is taken, and two wait."""
    stage.accounts("lab", concurrent=1)
    stage.submit(3)
    with closing(Dispatching(stage)) as dispatching:
        assert (dispatching.sent(), dispatching.sent()) == (1, 0)
        yield dispatching


def test_dispatcher_with_full_accounts_looks_at_once_when_room_is_announced(full: Dispatching) -> None:
    put_account_spec(full.stage.store, "lab", AccountSpec(concurrent=2))
    full.stage.atlas.world.registry.accounts["lab"].limits = Limits(concurrent=3)
    assert full.sent() == 0, "this process announces the change, as the API does"
    full.tell()
    assert full.sent(1) == 1


def test_dispatcher_with_full_accounts_notices_writes_of_another_process(full: Dispatching) -> None:
    full.stage.atlas.world.registry.accounts["lab"].limits = Limits(concurrent=3)
    with closing(SqliteStore(str(full.stage.folder / "p.db"))) as other:
        put_account_spec(other, "lab", AccountSpec(concurrent=3))
    assert full.sent(4) == 2, "one after the other, without a pause between them"


def test_follower_announces_every_slot_that_it_frees(stage: Stage) -> None:
    """With one look a second and 30 s between looks at full accounts, four in turn would take minutes."""
    stage.accounts("lab", concurrent=1)
    job = stage.submit(4)
    with worker(stage) as process:
        stage.finished(job, within_s=60)
        stop(process)
    stage.sent_once(4)
