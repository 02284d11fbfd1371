"""Silences of monitors and tags: begun, listed and ended early."""

from __future__ import annotations

from msgspec.structs import replace

from paceline.core.alerts.silence import SILENCES_PER_USER_MAX, NamedSilence, Silence
from paceline.errors import LimitReached, NotFound
from paceline.ports import Store
from paceline.ports.items import ItemStore
from paceline.steps.alerts.owner import since_ms as user_since_ms
from paceline.steps.collection import Collection

SILENCES = Collection("silence", Silence)
"""Silences by ``user/id``. The purge deletes those that are over."""
ID_DIGITS = 12
HELD_MAX = 1_000
"""Number of the user's newest alerts that are searched for those held back by a silence that is ended early."""
KEPT_MS = 60_000
"""Shortest time for which a silence is kept after its end: clocks differ."""


def add_silence(store: Store, user: str, silence: Silence, *, chance_id: str) -> NamedSilence:
    """Begin a silence. ``chance_id``: hexadecimal digits drawn by the caller."""
    user_since_ms(store, user)
    page = SILENCES.page(store, prefix=_key(user, ""), limit=SILENCES_PER_USER_MAX)
    open_ = [one for one in page if one.value is not None and one.value.until_ms > silence.from_ms]
    if len(open_) >= SILENCES_PER_USER_MAX:
        raise LimitReached(
            f"User {user!r} has {SILENCES_PER_USER_MAX} silences, the most there may be. End some first."
        )
    silence_id = f"s{chance_id[:ID_DIGITS]}"
    SILENCES.put(store, _key(user, silence_id), silence, expires_ms=silence.until_ms + KEPT_MS)
    return NamedSilence(silence_id, silence)


def silences_of(store: ItemStore, user: str, *, now_ms: int, since_ms: int) -> list[NamedSilence]:
    """Return the user's silences in force, in order of id; none from before ``since_ms``, when the user was made."""
    return [
        NamedSilence(found.key.removeprefix(_key(user, "")), found.value)
        for found in SILENCES.page(store, prefix=_key(user, ""), limit=2 * SILENCES_PER_USER_MAX)
        if found.value is not None and found.value.until_ms > now_ms and found.value.from_ms >= since_ms
    ]


def end_silence(store: Store, user: str, silence_id: str, *, now_ms: int) -> None:
    """End a silence now. Failures that it held back and that last are reported within the next pass."""
    found = SILENCES.get(store, _key(user, silence_id))
    since_ms = user_since_ms(store, user)
    if found is None or found.until_ms <= now_ms or found.from_ms < since_ms:
        raise NotFound(f"User {user!r} has no silence {silence_id[:128]!r}.")
    SILENCES.delete(store, _key(user, silence_id))
    recent = store.alerts(user, since_ms=since_ms, before=None, limit=HELD_MAX)
    held = [one for one in recent if one.silence == silence_id and one.next_ms is not None]
    # An alert that somebody else writes meanwhile is looked at anyway.
    store.write_alerts([replace(one, next_ms=now_ms) for one in held])


def remove_silences(store: ItemStore, user: str) -> None:
    """Remove all silences of a user who is being removed."""
    for found in list(SILENCES.walk(store, prefix=_key(user, ""))):
        SILENCES.delete(store, found.key)


def _key(user: str, silence_id: str) -> str:
    return f"{user}/{silence_id}"
