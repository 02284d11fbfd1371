"""How far ahead one may look."""

from __future__ import annotations

HOURS_DEFAULT = 24
HOURS_MAX = 48
