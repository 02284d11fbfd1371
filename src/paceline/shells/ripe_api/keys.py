"""Finds the key of a RIPE client in header or query; here the key is a Paceline token."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping

from paceline.core.scopes import ScopeKind
from paceline.core.users import TokenUser, User
from paceline.errors import Unauthenticated
from paceline.shells.api.http.auth import check_scope, identify
from paceline.shells.api.http.context import ApiContext
from paceline.steps.jobs.compatible_keys import authenticate_uuid, grant_page, granted_user, is_uuid

GRANT = "continue"
_SCHEMES = (b"key", b"bearer", b"token")


def find_user(
    api: ApiContext, headers: Mapping[bytes, bytes], query: Mapping[str, str], *, page: str | None, address: str
) -> User | None:
    """Returns the user of the key; None if no key was sent.

    Raises Unauthenticated for a wrong key, and counts it like the rest of the API. Raises OutOfScope for a token with a
    scope, unless the scope is ``read`` and the request only reads.

    ``page``: the path, if the request only reads; then the grant in a link is accepted instead of a key.
    """
    secret = find_secret(headers, query)
    if not secret:
        return None if page is None or GRANT not in query else _granted(api, query, page)
    now_ms, secret_key = api.now_ms(), api.system.secret_key
    user = authenticate_uuid(api.store, secret, secret_key=secret_key, now_ms=now_ms) if is_uuid(secret) else None
    if user is None:
        user = _identify(api, secret, address=address, now_ms=now_ms)
    covers: tuple[ScopeKind, ...] = () if page is None else ("read",)
    check_scope(user, covers)
    return user


def _identify(api: ApiContext, secret: str, *, address: str, now_ms: int) -> TokenUser:
    return identify(
        api.store,
        {b"authorization": b"Bearer " + secret.encode("utf-8", "replace")},
        secret_key=api.system.secret_key,
        tokens=api.tokens,
        wrong_tokens=api.wrong_tokens,
        address=address,
        now_ms=now_ms,
    )


def page_grant(api: ApiContext, user: User | None, headers: Mapping[bytes, bytes], *, path: str) -> str:
    """Returns the grant for a link if the key was in the query, else an empty text.

    The key itself is never repeated.
    """
    if user is None or b"authorization" in headers:
        return ""
    return grant_page(user, path, secret_key=api.system.secret_key, now_ms=api.now_ms())


def _granted(api: ApiContext, query: Mapping[str, str], path: str) -> User:
    user = granted_user(api.store, query[GRANT], path, secret_key=api.system.secret_key, now_ms=api.now_ms())
    if user is None:
        raise Unauthenticated("This link has expired. Ask for the list again, with your key.")
    return user


def find_secret(headers: Mapping[bytes, bytes], query: Mapping[str, str]) -> str:
    """Returns the key: from the header, else from the query.

    Parts of the clients that have no key setting use Basic.
    """
    scheme, _, credentials = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() in _SCHEMES:
        return credentials.strip().decode("latin-1")
    if scheme.lower() == b"basic":
        return _password(credentials.strip())
    return query.get("key", "").strip()


def _password(credentials: bytes) -> str:
    """Returns the password of Basic credentials; if they cannot be read, "?", which is a wrong key."""
    try:
        name, _, password = b64decode(credentials, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "?"
    return (password or name).strip() or "?"
