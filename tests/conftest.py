"""Hypothesis runs the same examples each time, so that a red build is red again; more of them on demand.

Files of tests lie in memory where there is room for them: no test pulls the plug, so a disk would only take its time.
``PYTEST_DEBUG_TEMPROOT`` names another folder.
"""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import HealthCheck, settings

settings.register_profile("house", max_examples=100, deadline=None, derandomize=True)
settings.register_profile(
    "deep", max_examples=2_000, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile(os.environ.get("PACELINE_TEST_PROFILE", "house"))

MEMORY = Path("/dev/shm")  # noqa: S108  pytest makes a folder of its own in it
MEMORY_BYTES_MIN = 4 * 1024**3
"""A container has 64 MB unless it says otherwise: too little. Nor may it be closed to programs: some tests make one."""


def there_is_room() -> bool:
    if not (MEMORY.is_dir() and os.access(MEMORY, os.W_OK)):
        return False
    told = os.statvfs(MEMORY)
    return told.f_bavail * told.f_frsize >= MEMORY_BYTES_MIN and not told.f_flag & os.ST_NOEXEC


if there_is_room():
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
