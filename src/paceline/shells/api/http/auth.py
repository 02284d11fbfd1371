"""Authentication: looks the bearer token up in the store and limits guessing."""

from __future__ import annotations

import ipaddress
import math
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from paceline.core.scopes import ScopeKind, scope_kind, worker_provider
from paceline.core.users import TokenUser, User, no_user
from paceline.errors import Forbidden, OutOfScope, Throttled, Unauthenticated
from paceline.ports import Store
from paceline.steps.access import authenticate
from paceline.steps.sessions import user_of_session

ADDRESSES_MAX = 10_000
MINUTE_MS = 60_000
SECRET_CHARS_MAX = 512
OWN_PAGE = b"x-paceline-page"
"""Header of the dashboard's script. Before a browser sends it for another site, it asks us, and we refuse."""


class TokenCache:
    """Cache of valid tokens, so that the token of a busy client is not looked up for each request.

    Changes made through this API count from their answer on (``forget``), changes by other processes after ``KEPT_MS``.
    """

    KEPT_MS = 10
    SECRETS_MAX = 1_000

    def __init__(self) -> None:
        self._users: dict[str, tuple[TokenUser, int]] = {}
        self.version = 0
        """Increased by each ``forget``. Callers read it before they read the store."""

    def user(self, secret: str, *, now_ms: int) -> TokenUser | None:
        user, seen_ms = self._users.get(secret, (None, 0))
        if user is None or not 0 <= now_ms - seen_ms < self.KEPT_MS:
            return None
        return user if user.expires_ms is None or now_ms < user.expires_ms else None

    def keep(self, secret: str, user: TokenUser, *, now_ms: int, version: int) -> None:
        """Caches the user, unless ``forget`` was called since ``version``: the read may be older than the change."""
        users = self._users
        if version != self.version:
            return
        if len(users) >= self.SECRETS_MAX:
            users.clear()
        users[secret] = (user, now_ms)

    def forget(self) -> None:
        self.version += 1
        self._users = {}  # a thread inside ``keep`` writes into the old dict


class WrongTokenLimit:
    """Token bucket of wrong tokens for each address. Only clients that send wrong tokens are slowed down."""

    def __init__(self, *, per_minute: int) -> None:
        self._per_minute = per_minute
        self._buckets: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._lock = threading.Lock()

    def count(self, address: str, *, now_ms: int) -> int | None:
        """Counts a wrong token. Returns None while there is room, else the seconds until there is room again."""
        with self._lock:
            return self._count(address, now_ms=now_ms)

    def _count(self, address: str, *, now_ms: int) -> int | None:
        key = _network(address)
        left, since_ms = self._buckets.pop(key, (float(self._per_minute), now_ms))
        left = min(self._per_minute, left + max(0, now_ms - since_ms) * self._per_minute / MINUTE_MS)
        full = left < 1
        self._buckets[key] = (left if full else left - 1, now_ms)
        if len(self._buckets) > ADDRESSES_MAX:
            self._buckets.popitem(last=False)
        return math.ceil((1 - left) * MINUTE_MS / self._per_minute / 1_000) if full else None


def identify(
    store: Store,
    headers: Mapping[bytes, bytes],
    *,
    secret_key: bytes,
    tokens: TokenCache,
    wrong_tokens: WrongTokenLimit,
    address: str,
    now_ms: int,
    by_cookie: bool = False,
) -> TokenUser:
    """Returns the user of the token. A valid token is accepted, no matter how many wrong ones came from its address.

    ``by_cookie``: a request without the header may use the cookie of a session instead.
    """
    scheme, _, credentials = headers.get(b"authorization", b"").partition(b" ")
    secret = credentials.strip().decode("latin-1")
    by_session = by_cookie and not scheme
    if by_session:
        secret = session_of(headers)
    elif scheme.lower() != b"bearer":
        secret = ""
    if not secret:
        raise Unauthenticated('Send the header "Authorization: Bearer <token>".')
    user = tokens.user(secret, now_ms=now_ms)
    if user is None and len(secret) <= SECRET_CHARS_MAX:
        version = tokens.version
        check = user_of_session if by_session else authenticate
        user = check(store, secret, secret_key=secret_key, now_ms=now_ms)
        if user is not None:
            tokens.keep(secret, user, now_ms=now_ms, version=version)
    if user is not None:
        return user
    if (seconds := wrong_tokens.count(address, now_ms=now_ms)) is not None:
        raise Throttled("Too many wrong tokens from your address. Wait, and use a valid one.", retry_after_s=seconds)
    raise Unauthenticated(
        "This token is wrong, revoked or expired, or its user is disabled. Ask an admin for a new one."
    )


def cookie_name(headers: Mapping[bytes, bytes]) -> str:
    """Returns the name of the session's cookie. It contains the port, because browsers share cookies between ports."""
    _, _, port = headers.get(b"host", b"").rpartition(b":")
    return f"paceline-{port.decode()}" if port.isdigit() else "paceline"


def session_of(headers: Mapping[bytes, bytes]) -> str:
    """Returns the value of the session's cookie, or an empty text if there is none."""
    wanted = cookie_name(headers).encode()
    for part in headers.get(b"cookie", b"").split(b";"):
        name, _, value = part.strip().partition(b"=")
        if name == wanted:
            return value.decode("latin-1")
    return ""


def from_own_page(headers: Mapping[bytes, bytes]) -> bool:
    """True if a script on one of our pages sent the request: no other site can make a browser send this header."""
    return OWN_PAGE in headers and headers.get(b"sec-fetch-site", b"same-origin") == b"same-origin"


def secret_of(headers: Mapping[bytes, bytes]) -> str:
    """Returns the token of a request that is already authenticated."""
    return headers.get(b"authorization", b"").partition(b" ")[2].strip().decode("latin-1")


def check_scope(user: TokenUser, covers: Collection[ScopeKind]) -> None:
    """Raises OutOfScope, unless the token has no scope or one of these."""
    kind = scope_kind(user.scope)
    if kind is not None and kind not in covers:
        raise OutOfScope(f"This token is for {user.scope!r} only, which does not cover this request. Use another one.")


class RunRights(NamedTuple):
    """Rights of a token: which runs it may claim, settle and extend.

    ``viewer``: only monitors' runs of this owner; None: of any owner. ``checks`` and ``calls``: whether runs of
    monitors, and of batches, are allowed at all. ``provider``: only batches' runs of this provider; None: of any
    provider.
    """

    viewer: str | None
    checks: bool
    calls: bool
    provider: str | None
    scope: str

    def out_of_scope(self, what: str) -> OutOfScope:
        return OutOfScope(f"This token is for {self.scope!r} only: {what}.")


def rights_of(user: TokenUser) -> RunRights:
    viewer = viewer_of(user)
    match scope_kind(user.scope):
        case "worker":
            return RunRights(viewer, checks=False, calls=True, provider=worker_provider(user.scope), scope=user.scope)
        case "checker":
            return RunRights(viewer, checks=True, calls=False, provider=None, scope=user.scope)
        case _:
            return RunRights(viewer, checks=True, calls=viewer is None, provider=None, scope=user.scope)


def require_admin(user: User) -> None:
    if user.role != "admin":
        raise Forbidden("This request needs an admin's token.")


def owner_of(user: User, asked: str) -> str:
    """Returns the id of the user in the request. Raises NotFound if that is another user, unless an admin asks."""
    if asked in ("me", user.id):
        return user.id
    if user.role == "admin":
        return asked
    raise no_user(asked)


def viewer_of(user: User) -> str | None:
    """Returns the owner whose runs this user may see; None: any owner."""
    return None if user.role == "admin" else user.id


def _network(address: str) -> str:
    """Returns an IPv4 address as it is, and of an IPv6 address its /64 network: one client has that many addresses."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address
