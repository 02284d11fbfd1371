"""Hypothesis runs the same examples each time, so that a red build is red again; more of them on demand."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("house", max_examples=100, deadline=None, derandomize=True)
settings.register_profile(
    "deep", max_examples=2_000, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile(os.environ.get("PACELINE_TEST_PROFILE", "house"))
