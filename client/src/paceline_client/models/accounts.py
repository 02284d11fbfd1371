"""Accounts at RIPE Atlas and their keys."""

from __future__ import annotations

from datetime import datetime
from typing import TypedDict

from paceline_client.answers import Model
from paceline_client.models.states import AccountState, KeyState


class Meter(Model, frozen=True):
    """Use of one limit: spent, held (reserved), foreign (used outside Paceline), and left."""

    spent: int
    held: int
    foreign: int
    limit: int
    left: int
    room_at: datetime | None


class Usage(Model, frozen=True):
    """Use of all limits of an account. ``balance``: None until RIPE reports it. ``balance_ends``: when it runs out."""

    concurrent: Meter
    daily_results: Meter
    daily_credits: Meter
    balance: Meter | None
    balance_ends: datetime | None


class Barred(Model, frozen=True):
    """A type of measurement that RIPE refuses to this account. It is tried again after ``until``."""

    type: str
    until: datetime
    reason: str


class Key(Model, frozen=True):
    """A key without its secret."""

    id: str
    account: str
    label: str
    last_four: str
    enabled: bool
    state: KeyState
    reason: str
    created_at: datetime


class AddedKey(Key, frozen=True):
    """A key that was just added. ``unverified``: permissions that could not be tested; None: it was not tested."""

    unverified: list[str] | None


class Account(Model, frozen=True):
    """An account at RIPE Atlas with its limits, usage and keys. ``etag`` is None in lists."""

    id: str
    concurrent: int
    daily_results: int
    daily_credits: int
    enabled: bool
    state: AccountState
    reason: str
    closed_until: datetime | None
    usage: Usage
    sends: int
    barred: list[Barred]
    keys: list[Key]
    etag: str | None = None


class AccountDefinition(TypedDict, total=False):
    """An account to put, or the fields that an edit changes."""

    concurrent: int
    daily_results: int
    daily_credits: int
    enabled: bool
