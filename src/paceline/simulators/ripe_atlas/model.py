"""How this RIPE Atlas behaves where the real one is slow, lagging or unreliable, and what it is set to."""

from __future__ import annotations

import msgspec

SECOND_MS = 1_000
MINUTE_MS = 60_000
HOUR_MS = 3_600_000
DAY_MS = 86_400_000


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults are what RIPE documents, or what others saw; where neither is known, the harsher guess."""

    seed: int = 1
    #: Results are charged in batches, so many ms apart; 0 charges at once. RIPE says every four to six hours.
    charge_every_ms: int = 4 * HOUR_MS
    #: Lists show the world as it was so long ago; a measurement by its id is shown as it is.
    index_lag_ms: int = 5 * SECOND_MS
    #: Of the probes asked for, those that are given the work; and of these, those that ever answer.
    scheduled_share: float = 0.98
    answering_share: float = 0.94
    #: From the request to Scheduled and to Ongoing, and from there to Stopped for a one-off.
    schedule_after_ms: int = 2 * SECOND_MS
    start_after_ms: int = 5 * SECOND_MS
    one_off_ms: int = 589 * SECOND_MS
    #: From a round's start to each probe's result: the soonest, and less than the latest.
    result_after_ms: int = 3 * SECOND_MS
    result_before_ms: int = 10 * SECOND_MS
    #: Measurements that run against one target at once, everybody's together.
    target_cap: int = 25
    #: What an unknown key is answered. Older texts of RIPE say 403.
    unknown_key_status: int = 401
    #: Whether ``credits_per_result`` of a one-off already has the factor 2.
    one_off_factor_shown: bool = False
    probes: int = 10_000
    first_id: int = 1_000_001
    #: What of a description (or tag) marks a measurement as somebody's own; the first group is the marker.
    marker: str = r"^\[([^\]]+)\]"
