"""How tests run: hypothesis profiles, temporary files, and files whose tests run in one process.

Hypothesis runs the same examples each time, so that a red build is red again; more of them on demand.

Files of tests lie in memory where there is room for them: no test pulls the plug, so a disk would only take its time.
``PYTEST_DEBUG_TEMPROOT`` names another folder.

Tests are dealt out one by one to as many processes as are asked for, but for files whose tests share something that
takes long to make.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]

settings.register_profile("quick", max_examples=15, deadline=None, derandomize=True)
settings.register_profile("house", max_examples=100, deadline=None, derandomize=True)
settings.register_profile(
    "deep", max_examples=2_000, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile(os.environ.get("PACELINE_TEST_PROFILE", "house"))

# Ignored in what runs in the background or after nohup, and so in every process that a test starts and then signals.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

os.environ.pop("COLUMNS", None)  # set by the runner of tests; commands would fit their tables to it

MEMORY = Path("/dev/shm")  # noqa: S108  pytest makes a folder of its own in it
MEMORY_BYTES_MIN = 4 * 1024**3
"""A container has 64 MB by default, too little; and the folder must allow executables, which some tests make."""


def there_is_room() -> bool:
    if not (MEMORY.is_dir() and os.access(MEMORY, os.W_OK)):
        return False
    told = os.statvfs(MEMORY)
    return told.f_bavail * told.f_frsize >= MEMORY_BYTES_MIN and not told.f_flag & os.ST_NOEXEC


if there_is_room():
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

TOGETHER = frozenset(
    {
        "tests/aws/functions/test_deployed.py",  # the package of the functions
        "tests/aws/functions/test_privileges.py",  # all that every function asks of AWS
        "tests/shells/ripe_api/test_blaeu.py",  # a daemon, and programs that sleep
        "tests/shells/ripe_api/test_clients.py",  # a daemon, and programs of others
        "tests/test_site.py",  # the site
    }
)


class Dealer(LoadGroupScheduling):  # type: ignore[misc]  # it is Any to mypy
    """By file, as the mark ``xdist_group`` cannot: since pytest 9.2 it has no effect."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if file in TOGETHER else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Dealer:
    return Dealer(config, log)
