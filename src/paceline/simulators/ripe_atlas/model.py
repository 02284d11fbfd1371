"""The settings of the simulated RIPE Atlas, above all where the real one is slow, lagging or unreliable."""

from __future__ import annotations

import msgspec

SECOND_MS = 1_000
MINUTE_MS = 60_000
HOUR_MS = 3_600_000
DAY_MS = 86_400_000


class SimulatorModel(msgspec.Struct, frozen=True, kw_only=True):
    """Settings. Defaults are RIPE's documented values, or observed ones; where neither is known, the harsher guess."""

    seed: int = 1
    #: Time between two charges of results; 0 charges at once. RIPE says every four to six hours.
    charge_every_ms: int = 4 * HOUR_MS
    #: Delay of lists behind the truth; a measurement asked for by its id is shown as it is.
    index_lag_ms: int = 5 * SECOND_MS
    #: Share of the requested probes that are scheduled; and the share of these that ever answer.
    scheduled_share: float = 0.98
    answering_share: float = 0.94
    #: From the request to Scheduled and to Ongoing; and for a one-off, from there to Stopped.
    schedule_after_ms: int = 2 * SECOND_MS
    start_after_ms: int = 5 * SECOND_MS
    one_off_ms: int = 589 * SECOND_MS
    #: From the start of a round to the result of a probe: at least, and less than.
    result_after_ms: int = 3 * SECOND_MS
    result_before_ms: int = 10 * SECOND_MS
    #: Measurements that run against one target at once, of all users together.
    target_cap: int = 25
    #: Status of the answer to an unknown key. Older texts of RIPE say 403.
    unknown_key_status: int = 401
    #: True if ``credits_per_result`` of a one-off already has the factor 2.
    one_off_factor_shown: bool = False
    probes: int = 10_000
    first_id: int = 1_000_001
    #: Pattern by which a description or tag marks a measurement; the first group is the marker.
    marker: str = r"^\[([^\]]+)\]"
