"""What ``paceline check`` finds wrong about jobs in a store of either engine, in the same words."""

from __future__ import annotations

POSTINGS = "promise 8: the postings do not add up to what is held or spent on a meter ({})"
NO_MEASUREMENT = "promise 8: a posting is of no measurement (hold {})"
RELEASES = "promise 8: a sliding meter's releases do not add up to what is spent on it ({})"
UNEQUAL_CLOSE = "promise 8: a hold is not closed on exactly what it held (hold {})"
OWNERS_HOLD = "promise 8: a measurement has ended and its owner's hold is open, or the other way round (measurement {})"
SLOT = "promise 8: a measurement's slot is held and its line is closed, or the other way round (measurement {})"
COUNTS = "promise 11: a job's counts or sums are not those of its measurements (job {})"
REMOVAL = "promise 10: a job on its way out is not finished, or more of it is gone than was removed (job {})"
EMPTY_JOB = "promise 10: a job has no measurements (job {})"
LINE = "promise 10: a queued measurement's owner is not in the line ({})"
ATLAS_IDS = "promise 9: a measurement runs and has no id at RIPE, or fewer than definitions (measurement {})"
