"""Sessions of the dashboard: a person signs in once with a token, and the browser keeps a cookie instead.

A session has its token's rights and no more: it has the token's scope, and ends when the token is revoked or expires,
or its user is disabled. The cookie is stored as a keyed hash, as tokens are.
"""

from __future__ import annotations

import msgspec

from paceline.core.users import TokenUser
from paceline.ports import Store
from paceline.steps.access import digest, user_of_token
from paceline.steps.collection import Collection

SESSION_BYTES = 32
SESSION_MS = 14 * 86_400_000
"""Length of a session: a person signs in again after two weeks."""
SESSIONS_MAX = 20
"""Maximum number of sessions of one token; a further one ends the oldest."""


class Session(msgspec.Struct, frozen=True):
    created_ms: int
    expires_ms: int


SESSIONS = Collection("session", Session)


def begin_session(store: Store, secret: str, *, session_bytes: bytes, secret_key: bytes, now_ms: int) -> str:
    """Begin a session of a token that was checked. Return the cookie's value."""
    assert len(session_bytes) == SESSION_BYTES
    token_id = secret.split("_", 2)[1]
    cookie = f"ps_{token_id}_{session_bytes.hex()}"
    _end_oldest(store, token_id)
    session = Session(now_ms, now_ms + SESSION_MS)
    SESSIONS.put(store, _key(cookie, secret_key), session, expires_ms=session.expires_ms)
    return cookie


def user_of_session(store: Store, secret: str, *, secret_key: bytes, now_ms: int) -> TokenUser | None:
    """Return the user of the session's token; None if the session or the token is over.

    ``secret``: the cookie's value.
    """
    if not (key := _key(secret, secret_key)):
        return None
    session = SESSIONS.get(store, key)
    found = store.token(key.partition("/")[0]) if session is not None else None
    if session is None or session.expires_ms <= now_ms or found is None:
        return None
    token, user = found
    return None if user.disabled or token.has_expired(now_ms) else user_of_token(token, user)


def end_session(store: Store, cookie: str, *, secret_key: bytes) -> None:
    """End the session, if there is one."""
    if key := _key(cookie, secret_key):
        SESSIONS.delete(store, key)


def _key(cookie: str, secret_key: bytes) -> str:
    """Return the item's key: the token's id, so that its sessions are together, and the hash of the cookie."""
    parts = cookie.split("_", 2)
    if len(parts) != 3 or parts[0] != "ps" or not parts[1].isalnum() or not parts[1].isascii() or len(parts[1]) > 64:
        return ""
    return f"{parts[1]}/{digest(cookie, secret_key).hex()}"


def _end_oldest(store: Store, token_id: str) -> None:
    found = SESSIONS.page(store, prefix=f"{token_id}/", limit=SESSIONS_MAX + 1)
    known = sorted((one for one in found if one.value), key=lambda one: one.value.created_ms if one.value else 0)
    for one in known[: max(0, len(known) - SESSIONS_MAX + 1)]:
        SESSIONS.delete(store, one.key)
