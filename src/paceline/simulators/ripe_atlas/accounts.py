"""Permissions: accounts with their limits, and keys with their grants."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from paceline.simulators.ripe_atlas.messages import NO_SUCH_KEY, AtlasRequest, ErrorAnswer
from paceline.simulators.ripe_atlas.model import Model

CREATE = "measurements.create_measurement"
LIST = "measurements.list_measurements"
STOP = "measurements.stop_measurement"
UPDATE = "measurements.update_measurement"
NON_PUBLIC = "measurements.get_non_public_results"
CREDITS = "credits.get_credit_info"
LIST_KEYS = "keys.list_keys"
GET_KEY = "keys.get_key"

PERMISSIONS = {
    CREATE: "Schedule a new measurement",
    LIST: "List your measurements",
    STOP: "Stop a measurement",
    UPDATE: "Update an existing measurement",
    NON_PUBLIC: "Download results of a non-public measurement",
    CREDITS: "Get information about your credits",
    LIST_KEYS: "List your API keys",
    GET_KEY: "Get information about an API key",
}
#: Permissions of a key that creates, follows and stops measurements for others.
POOL_PERMISSIONS = (CREATE, LIST, STOP, NON_PUBLIC, CREDITS)
UNKNOWN_KEY = "The provided API key does not exist"
_NAMESPACE = uuid.UUID("5f0c3a52-0d0b-5c39-9f0e-2f1a6b1f7c11")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one account; RIPE raises them for some."""

    concurrent: int = 100
    daily_results: int = 100_000
    daily_credits: int = 1_000_000
    probes: int = 1_000
    results_per_s: int = 50


class SimulatedGrant(msgspec.Struct, frozen=True):
    """A permission; with ``target`` None it covers everything of the account."""

    permission: str
    target: int | str | None = None


@dataclass(slots=True)
class SimulatedAccount:
    """An account; ``pays_for`` names the accounts that may bill it."""

    name: str
    limits: Limits = field(default_factory=Limits)
    balance: int = 10_000_000
    http_allowed: bool = False
    forbidden_types: set[str] = field(default_factory=set)
    pays_for: set[str] = field(default_factory=set)

    @property
    def email(self) -> str:
        return f"{self.name}@example.org"


@dataclass(slots=True)
class SimulatedKey:
    uuid: str
    account: str
    label: str
    created_ms: int
    grants: tuple[SimulatedGrant, ...]
    enabled: bool = True
    valid_to_ms: int | None = None

    def may(self, permission: str, target: int | str | None = None) -> bool:
        return any(one.permission == permission and one.target in (None, target) for one in self.grants)


class Registry:
    """Accounts by name, keys by secret."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.accounts: dict[str, SimulatedAccount] = {}
        self.keys: dict[str, SimulatedKey] = {}

    def add_account(self, account: SimulatedAccount) -> SimulatedAccount:
        """Add an account, or replace the one of that name; its keys and measurements stay."""
        self.accounts[account.name] = account
        return account

    def add_key(
        self,
        account: str,
        *,
        now_ms: int,
        label: str = "",
        grants: Iterable[SimulatedGrant | str] = POOL_PERMISSIONS,
        secret: str = "",
    ) -> SimulatedKey:
        """Add a key. Without a secret, it gets one computed from the seed, the account and the number of keys."""
        if account not in self.accounts:
            raise KeyError(account)
        given = tuple(one if isinstance(one, SimulatedGrant) else SimulatedGrant(one) for one in grants)
        drawn = secret or str(uuid.uuid5(_NAMESPACE, f"{self._model.seed}/{account}/{len(self.keys)}"))
        self.keys[drawn] = SimulatedKey(drawn, account, label or f"key {len(self.keys) + 1}", now_ms, given)
        return self.keys[drawn]

    def key_of(self, request: AtlasRequest, now_ms: int) -> SimulatedKey | None:
        """Return the key of a request, None if it has none. Refuses a key that is unknown, expired or disabled."""
        scheme, _, header = request.headers.get("authorization", "").partition(" ")
        secret = header.strip() if scheme.lower() == "key" else request.query.get("key", "")
        if not secret:
            return None
        key = self.keys.get(secret)
        if key is None:
            raise _refused_key(self._model.unknown_key_status, UNKNOWN_KEY)
        if key.valid_to_ms is not None and now_ms >= key.valid_to_ms:
            raise _refused_key(401, "The provided API key has expired")
        if not key.enabled:
            raise _refused_key(403, "The provided API key is not enabled")
        return key

    def require(self, key: SimulatedKey | None, permission: str, target: int | str | None = None) -> SimulatedKey:
        """Return the key if it has the permission, else refuse.

        Permissions are checked before the target is looked up.
        """
        if key is None:
            raise _refused_key(401, "Authentication credentials were not provided.")
        if not key.may(permission, target):
            raise _refused_key(403, "You do not have permission to perform this action.")
        return key


def _refused_key(status: int, detail: str) -> ErrorAnswer:
    return ErrorAnswer(status, detail, code=NO_SUCH_KEY, reason=f"key_{status}")
