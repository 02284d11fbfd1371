"""The seeded worlds, brief enough for an emulator, and the two engines that they are told on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from paceline.adapters.aws import tables
from paceline.adapters.aws.store import AwsStore
from tests.aws.ministack import fresh_prefix, shared_clients
from tests.world.batch_world import BatchWorld
from tests.world.job_world import JobWorld
from tests.world.seeded import SECOND_MS, Opener, Seeded
from tests.world.world import World


class BriefWorld(World):
    """Looked at less often, and listened to for less time: each look asks all shards."""

    CHECK_EVERY, LOOK_EVERY = 10, 50
    REST_MS = (20 * SECOND_MS, 40 * SECOND_MS)


class BriefBatchWorld(BatchWorld):
    LOOK_EVERY = 60
    DAYS_TO_REST = 2


class BriefJobWorld(JobWorld):
    LOOK_EVERY = 60


