"""Reading of the line of measurements that wait to be sent, as far as an ETA needs it."""

from __future__ import annotations

from paceline.core.jobs.measurement import targets_of
from paceline.core.jobs.meters import NEVER_MS
from paceline.core.jobs.pool import Gate, make_pool
from paceline.core.why.send_line import LINE_EACH_MAX, LINE_USERS_MAX, PLACES_MAX, SendLine
from paceline.ports import JobStore

TARGETS_MAX = 1_000


def read_line(store: JobStore, *, now_ms: int) -> SendLine:
    """Return the users in line with their first measurements, the accounts with all releases, and RIPE's gates."""
    users = store.send_line(users_max=LINE_USERS_MAX, each_max=LINE_EACH_MAX, count_max=PLACES_MAX)
    counts = store.send_counts()
    targets = frozenset().union(*(targets_of(item.measurement) for user in users for item in user.first))
    paused, full = store.gates(sorted(targets)[:TARGETS_MAX])
    return SendLine(
        users=users,
        pool=make_pool(store.accounts(now_ms=now_ms, releases_until_ms=NEVER_MS)),
        unread=max(counts.queued - sum(user.queued for user in users), 0),
        not_queued=counts.parked + counts.unknown,
        sending=counts.sending,
        paused=None if paused is None else Gate(paused.until_ms, paused.reason),
        gated=any(one.until_ms > now_ms for one in full),
    )
