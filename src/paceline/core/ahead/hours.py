"""Limits on how far ahead a user may look."""

from __future__ import annotations

HOURS_DEFAULT = 24
HOURS_MAX = 48
