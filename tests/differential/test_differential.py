"""Both stores do the same acts at the same times and must answer and stand alike.

Every run of the tests tries the same histories, so that a red run is about the change and not about chance. On demand:

``PACELINE_DIFFERENTIAL_SEED``      chooses other histories: a number, or ``new`` for one that is drawn and printed
``PACELINE_DIFFERENTIAL_EXAMPLES``  how many histories each machine tries
``PACELINE_DIFFERENTIAL_STEPS``     how many acts a history has at most
"""

from __future__ import annotations

import os
import secrets

import pytest

from tests.differential.support.history import explore
from tests.differential.support.job_rules import JobRules
from tests.differential.support.machine import Machine
from tests.differential.support.monitor_rules import MonitorRules
from tests.differential.support.worker_rules import WorkerRules

EXAMPLES = int(os.environ.get("PACELINE_DIFFERENTIAL_EXAMPLES", "5"))
STEPS = int(os.environ.get("PACELINE_DIFFERENTIAL_STEPS", "40"))
SEED = os.environ.get("PACELINE_DIFFERENTIAL_SEED", "1")
SEEDS = 1 << 32


class WholeRules(MonitorRules, WorkerRules, JobRules):
    """All acts on one pair of stores."""


MACHINES: dict[str, type[Machine]] = {
    "all": WholeRules,
    "batches": WorkerRules,
    "jobs": JobRules,
    "monitors": MonitorRules,
}

pytestmark = [pytest.mark.aws, pytest.mark.timeout(3_600)]


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_both_stores_agree_on_the_histories_of_every_run(name: str) -> None:
    explore(MACHINES[name], examples=EXAMPLES, steps=STEPS, seeded=None)


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_both_stores_agree_on_the_histories_of_a_seed(name: str) -> None:
    seed = secrets.randbelow(SEEDS) if SEED == "new" else int(SEED)
    print(f"PACELINE_DIFFERENTIAL_SEED={seed} repeats these histories")
    explore(MACHINES[name], examples=EXAMPLES, steps=STEPS, seeded=seed)
