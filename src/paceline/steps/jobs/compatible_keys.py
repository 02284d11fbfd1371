"""Tokens in the form of a RIPE key: some of RIPE's clients take nothing but a UUID.

The key is computed from the stored token, so nothing more has to be kept, and it ends with the token.
"""

from __future__ import annotations

import hmac
import re
from uuid import UUID

from paceline.core.users import Token, TokenUser, User
from paceline.ports import Store
from paceline.steps.access import TOKEN_ID_CHARS, user_of_token

_UUID = re.compile(r"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")
_MAC_BYTES = 10
"""Length of the code: 80 bits are enough, because wrong keys are slowed down."""
GRANT_S = 600
_TOKEN_ID = re.compile(rf"[0-9a-f]{{{TOKEN_ID_CHARS}}}")


def is_uuid(text: str) -> bool:
    return _UUID.fullmatch(text) is not None


def uuid_of(token: Token, *, secret_key: bytes) -> str:
    assert _TOKEN_ID.fullmatch(token.id), "ids of tokens are hexadecimal"
    mac = hmac.digest(secret_key, b"ripe key" + token.digest, "sha256")[:_MAC_BYTES]
    return str(UUID(hex=token.id + mac.hex()))


def authenticate_uuid(store: Store, text: str, *, secret_key: bytes, now_ms: int) -> TokenUser | None:
    """Return the token's user, or None."""
    given = text.lower().replace("-", "")
    found = store.token(given[:TOKEN_ID_CHARS])
    if found is None or found[1].disabled or found[0].has_expired(now_ms):
        return None
    expected = uuid_of(found[0], secret_key=secret_key).replace("-", "")
    return user_of_token(*found) if hmac.compare_digest(given, expected) else None


def grant_page(user: User, path: str, *, secret_key: bytes, now_ms: int) -> str:
    """Return a grant for the link to the next page of one list: some clients follow the link without their key."""
    until_s = now_ms // 1_000 + GRANT_S
    return f"{user.id}.{until_s}.{_page_mac(user.id, until_s, path, secret_key)}"


def granted_user(store: Store, text: str, path: str, *, secret_key: bytes, now_ms: int) -> User | None:
    """Return the user whom a grant names; None if it is forged, for another list, or has expired."""
    name, _, rest = text.rpartition(".")[0].rpartition(".")
    mac = text.rpartition(".")[2]
    if not (rest.isascii() and rest.isdigit() and len(rest) <= 12) or int(rest) * 1_000 < now_ms:
        return None
    if not hmac.compare_digest(mac.encode(), _page_mac(name, int(rest), path, secret_key).encode()):
        return None
    user = store.user(name)
    return None if user is None or user.disabled else user


def _page_mac(user_id: str, until_s: int, path: str, secret_key: bytes) -> str:
    text = f"ripe page\0{user_id}\0{until_s}\0{path.removesuffix('/')}"
    return hmac.digest(secret_key, text.encode(), "sha256")[:16].hex()


def token_of(store: Store, secret: str) -> Token | None:
    """Return the token of a secret that was authenticated, in either of its forms."""
    parts = secret.split("_", 2)
    token_id = secret.lower().replace("-", "")[:TOKEN_ID_CHARS] if is_uuid(secret) else parts[1]
    found = store.token(token_id)
    return None if found is None else found[0]
