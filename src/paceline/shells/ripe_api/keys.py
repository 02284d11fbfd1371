"""Where RIPE's clients put their key; here it is a Paceline token."""

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
    """None: no key was sent. A wrong one raises Unauthenticated, and is counted as in the rest of the API.

    OutOfScope for a token that has a scope, unless it is to read and something is read.

    ``page``: the path, if it is only read; then the grant in a link will do.
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
    """The grant that a link carries if the key was in the query; empty otherwise. The key is never repeated."""
    if user is None or b"authorization" in headers:
        return ""
    return grant_page(user, path, secret_key=api.system.secret_key, now_ms=api.now_ms())


def _granted(api: ApiContext, query: Mapping[str, str], path: str) -> User:
    user = granted_user(api.store, query[GRANT], path, secret_key=api.system.secret_key, now_ms=api.now_ms())
    if user is None:
        raise Unauthenticated("This link has run out. Ask for the list again, with your key.")
    return user


def find_secret(headers: Mapping[bytes, bytes], query: Mapping[str, str]) -> str:
    """The header goes before the query. Basic serves those parts of the clients that send no key of their own."""
    scheme, _, credentials = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() in _SCHEMES:
        return credentials.strip().decode("latin-1")
    if scheme.lower() == b"basic":
        return _password(credentials.strip())
    return query.get("key", "").strip()


def _password(credentials: bytes) -> str:
    """The password of Basic credentials; "?", a wrong key, if they cannot be read."""
    try:
        name, _, password = b64decode(credentials, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "?"
    return (password or name).strip() or "?"
