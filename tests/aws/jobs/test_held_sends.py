"""AWS answers the intent of a send too late: the send is not made late, and is then made once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from paceline.adapters.aws.client.connect import Clients
from paceline.core.jobs.values import StoredMeasurement
from paceline.core.leases import SEND_LEASE_MS, SEND_MS_MAX
from paceline.shells.aws_lambda import jobs
from paceline.simulators.ripe_atlas import AtlasSimulator
from tests.aws.functions.test_jobs import add_account
from tests.aws.support.fault_proxy import FaultProxy, Faults, fault_proxy
from tests.aws.support.lambda_stage import Context, lambda_stage
from tests.aws.support.ministack import Emulator
from tests.aws.support.world_stage import Processes, open_stage
from tests.shells.support.job_daemons import QUICK, TAG, document, wait_for

pytestmark = [pytest.mark.aws, pytest.mark.slow]

HOLD_S = (SEND_LEASE_MS - SEND_MS_MAX) / 1_000 + 1
HELD = Faults(hold=1.0, hold_s=HOLD_S, only=frozenset({"TransactWriteItems"}), meant="intent_ms")


@pytest.fixture
def proxy(aws: Emulator) -> Iterator[FaultProxy]:
    with fault_proxy(aws.url, seed=1) as made:
        yield made


def hold_one(proxy: FaultProxy) -> None:
    """Of one intent the reply is held; those that follow are answered at once."""
    wait_for(lambda: proxy.hits["hold"] >= 1, lambda: proxy.requests, within_s=60)
    proxy.faults = replace(HELD, hold=0.0)


def assert_sent_once_and_not_late(atlas: AtlasSimulator, item: StoredMeasurement) -> None:
    audit = atlas.audit(marker=TAG)
    assert (audit["doubled"], len(audit["measurements"])) == ({}, 1)
    assert item.attempt == 2, "the first was held for too long and not made"


def test_worker_with_a_late_confirmation_of_its_intent_sends_once_and_not_late(
    tmp_path: Path, proxy: FaultProxy, clients: Clients, prefix: str
) -> None:
    with open_stage(tmp_path, proxy.url, clients, prefix) as stage:
        stage.user("ann", daily_credits=10_000)
        stage.accounts("lab", concurrent=10, daily_credits=10_000)
        with closing(Processes(stage, workers=2)) as processes:
            proxy.faults = HELD
            job = stage.submit("ann", 1)
            hold_one(proxy)
            wait_for(lambda: stage.job(job).finished, stage.log, within_s=120)
            processes.stop()
        assert stage.log().count("its sender was held up") == 1
        assert_sent_once_and_not_late(stage.atlas, stage.store.measurements(job.number, after=-1, limit=1)[0])


def test_function_with_a_late_confirmation_of_its_intent_sends_once_and_not_late(proxy: FaultProxy) -> None:
    settings = {"PACELINE_ATLAS_EVERY": "1s", "PACELINE_ATLAS_SETTLE": "1s", "AWS_ENDPOINT_URL": proxy.url}
    with AtlasSimulator(QUICK) as atlas, lambda_stage(PACELINE_ATLAS_URL=atlas.base_url, **settings) as stage:
        add_account(stage, atlas)
        status, answer = stage.rest("POST", "/v1/jobs", document(1))
        assert status == 202, answer
        proxy.faults = HELD
        other = threading.Thread(target=hold_one, args=(proxy,))
        other.start()
        jobs.dispatch({}, Context())
        other.join()
        job = stage.store.job(answer["job"])
        assert_sent_once_and_not_late(atlas, stage.store.measurements(job.number, after=-1, limit=1)[0])
        assert atlas.defects == []
