"""Accounts at RIPE Atlas and their keys."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Unpack

from paceline_client.answers import IfChanged, Json, Nothing, Page
from paceline_client.calls import Call, Pages, Plan, Resource, Transport, given, listing, operation
from paceline_client.models.accounts import Account, AccountDefinition, AddedKey, Key
from paceline_client.resources.editing import guarded_edit

_ACCOUNT = "/v1/accounts/{account}"
_KEY = f"{_ACCOUNT}/keys/{{key_id}}"
TRIAL_S = 120.0
"""Extra time for adding a key, because it is tried at RIPE first."""


class Accounts(Resource[Transport]):
    """Accounts whose quotas are spent. For admins."""

    @operation
    def put(
        self,
        account: str,
        *,
        if_match: str | None = None,
        if_none_match: str | None = None,
        **fields: Unpack[AccountDefinition],
    ) -> Call[Account]:
        """Creates the account or replaces its limits. Fields that are left out get their defaults."""
        headers = {"If-Match": if_match, "If-None-Match": if_none_match}
        return Call("PUT", _ACCOUNT, Json(Account), {"account": account}, headers=headers, body=given(**fields))

    @operation
    def get(self, account: str) -> Call[Account]:
        """Returns the account with usage, state, reason and keys."""
        return Call("GET", _ACCOUNT, Json(Account), {"account": account})

    @operation
    def get_if_changed(self, account: str, *, if_none_match: str) -> Call[Account | None]:
        """Returns the account, or None if its limits still have this ETag."""
        headers = {"If-None-Match": if_none_match}
        return Call("GET", _ACCOUNT, IfChanged(Account), {"account": account}, headers=headers)

    @operation
    def edit(self, account: str, change: Callable[[Account], AccountDefinition]) -> Plan[Account]:
        """Reads the account, puts the changes of ``change``, and repeats both if somebody else was faster.

        ``change`` gets the account and returns the limits to change, such as ``{"enabled": False}``.
        """
        read, put = Accounts.get.describe(self, account), partial(Accounts.put.describe, self, account)
        return guarded_edit(read, put, AccountDefinition, change)

    @listing
    def list(self, *, limit: int | None = None) -> Pages[Account]:
        """Lists all accounts in order of id, with usage, state and reason."""
        return Pages(Call("GET", "/v1/accounts", Json(Page[Account])), limit)


class Keys(Resource[Transport]):
    """Keys of an account. For admins."""

    @operation
    def add(self, account: str, key: str, *, label: str = "", check: bool = True) -> Call[AddedKey]:
        """Tries the key at RIPE and adds it. ``check=False``: adds it untried."""
        query = {"check": None if check else "false"}
        body = {"key": key, "label": label}
        path = f"{_ACCOUNT}/keys"
        return Call("POST", path, Json(AddedKey), {"account": account}, query, body=body, wait_s=TRIAL_S)

    @operation
    def get(self, account: str, key_id: str) -> Call[Key]:
        """Returns the key without its secret."""
        return Call("GET", _KEY, Json(Key), {"account": account, "key_id": key_id})

    @operation
    def enable(self, account: str, key_id: str) -> Call[Key]:
        """Enables the key; it is tried again, also after a quarantine."""
        places = {"account": account, "key_id": key_id}
        return Call("PATCH", _KEY, Json(Key), places, body={"enabled": True}, repeatable=True)

    @operation
    def disable(self, account: str, key_id: str) -> Call[Key]:
        """Disables the key."""
        places = {"account": account, "key_id": key_id}
        return Call("PATCH", _KEY, Json(Key), places, body={"enabled": False}, repeatable=True)

    @operation
    def remove(self, account: str, key_id: str) -> Call[None]:
        """Removes the key with its sealed secret."""
        return Call("DELETE", _KEY, Nothing(), {"account": account, "key_id": key_id})
