"""Who is asking: the bearer token, looked up in the store, and the brake on guessing."""

from __future__ import annotations

import ipaddress
import math
import threading
from collections import OrderedDict
from collections.abc import Mapping

from paceline.errors import Forbidden, Throttled, Unauthenticated
from paceline.ports import Store, User
from paceline.steps.access import authenticate, no_user

ADDRESSES_MAX = 10_000
MINUTE_MS = 60_000
SECRET_CHARS_MAX = 512


class Recent:
    """Tokens that were right a moment ago, so that a busy client's token is not looked up for each of its requests.

    A change through this API counts from its answer on (``forget``); one by another process after ``KEPT_MS``.
    """

    KEPT_MS = 10
    SECRETS_MAX = 1_000

    def __init__(self) -> None:
        self._users: dict[str, tuple[User, int]] = {}

    def user(self, secret: str, *, now_ms: int) -> User | None:
        user, seen_ms = self._users.get(secret, (None, 0))
        return user if 0 <= now_ms - seen_ms < self.KEPT_MS else None

    def keep(self, secret: str, user: User, *, now_ms: int) -> None:
        if len(self._users) >= self.SECRETS_MAX:
            self._users.clear()
        self._users[secret] = (user, now_ms)

    def forget(self) -> None:
        self._users.clear()


class Brake:
    """A bucket of wrong tokens for each address. It only ever slows down who sends wrong ones."""

    def __init__(self, *, per_minute: int) -> None:
        self._per_minute = per_minute
        self._buckets: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._lock = threading.Lock()

    def count(self, address: str, *, now_ms: int) -> int | None:
        """One more wrong token: None while there is room, else the seconds until there is again."""
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
    recent: Recent,
    brake: Brake,
    address: str,
    now_ms: int,
) -> User:
    """The user whose token it is. A right token is taken whatever else came from its address."""
    scheme, _, credentials = headers.get(b"authorization", b"").partition(b" ")
    secret = credentials.strip().decode("latin-1")
    if scheme.lower() != b"bearer" or not secret:
        raise Unauthenticated('Send the header "Authorization: Bearer <token>".')
    user = recent.user(secret, now_ms=now_ms)
    if user is None and len(secret) <= SECRET_CHARS_MAX:
        user = authenticate(store, secret, secret_key=secret_key)
        if user is not None:
            recent.keep(secret, user, now_ms=now_ms)
    if user is not None:
        return user
    if (seconds := brake.count(address, now_ms=now_ms)) is not None:
        raise Throttled("Too many wrong tokens from your address. Wait, and use a valid one.", retry_after_s=seconds)
    raise Unauthenticated(
        "This token is not valid: wrong, revoked, or its user is disabled. Ask an admin for a new one."
    )


def secret_of(headers: Mapping[bytes, bytes]) -> str:
    """The token that was sent, of a request that was let in."""
    return headers.get(b"authorization", b"").partition(b" ")[2].strip().decode("latin-1")


def require_admin(user: User) -> None:
    if user.role != "admin":
        raise Forbidden("This needs the token of an admin.")


def owner_of(user: User, asked: str) -> str:
    """Whose things are meant. Somebody else's do not exist, unless an admin asks."""
    if asked in ("me", user.id):
        return user.id
    if user.role == "admin":
        return asked
    raise no_user(asked)


def viewer_of(user: User) -> str | None:
    """Whose runs this user may see; None: everybody's."""
    return None if user.role == "admin" else user.id


def _network(address: str) -> str:
    """An IPv6 client has at least 2**64 addresses of its own, so they count as one."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address
