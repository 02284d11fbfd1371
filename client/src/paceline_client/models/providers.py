"""Providers, and how their answers are judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypedDict

from paceline_client.answers import Model
from paceline_client.durations import Duration, DurationLike
from paceline_client.models.states import HttpMethod, ProviderKind, RecordOrder, StandingState, UnknownRule


class RetryPolicy(Model, frozen=True):
    """Pauses grow from ``base`` to ``cap``."""

    max_attempts: int
    base: Duration
    cap: Duration


class Breaker(Model, frozen=True):
    """Closes the provider for a while after this many bad calls in a row."""

    failures: int
    open_for: Duration


class Standing(Model, frozen=True):
    """Current state of a provider. ``waiting`` is counted up to 1000."""

    state: StandingState
    reason: str
    waiting: int
    in_flight: int
    failures: int
    closed_until: datetime | None
    next_due: datetime | None


class Expect(Model, frozen=True):
    """Status codes, and classes such as "4xx", listed by the outcome that they mean."""

    done: tuple[int | str, ...] = ()
    failed: tuple[int | str, ...] = ()
    retry: tuple[int | str, ...] = ()


class ExpectDocument(TypedDict, total=False):
    """Status codes, and classes such as "4xx", listed by the outcome that they mean.

    For codes in no list, 2xx is done, 429 and 5xx are retried, and all others are failed.
    """

    done: Sequence[int | str]
    failed: Sequence[int | str]
    retry: Sequence[int | str]


class Provider(Model, frozen=True):
    """A provider as it is stored, and its state. ``etag`` is None in lists.

    ``latency_ms``: the mean of its newest successful calls, in lists with figures.
    """

    id: str
    kind: ProviderKind
    base_url: str
    headers: dict[str, str]
    method: HttpMethod | None
    max_in_flight: int
    rate: str | None
    timeout: Duration
    expect: Expect | None
    retry: RetryPolicy
    breaker: Breaker
    unknown: UnknownRule
    look_up: str | None
    verify_tls: bool
    order: RecordOrder
    paused: bool
    standing: Standing
    revision: int
    created_at: datetime
    updated_at: datetime
    latency_ms: float | None = None
    etag: str | None = None


class RetryDocument(TypedDict, total=False):
    """Pauses grow from ``base`` to ``cap``."""

    max_attempts: int
    base: DurationLike
    cap: DurationLike


class BreakerDocument(TypedDict, total=False):
    """Closes the provider for a while after this many bad calls in a row."""

    failures: int
    open_for: DurationLike


class ProviderDefinition(TypedDict, total=False):
    """A provider to put, or the fields that an edit changes.

    None is the default. Kind ``http`` needs a ``base_url``.
    """

    kind: ProviderKind
    base_url: str
    headers: Mapping[str, str]
    method: HttpMethod | None
    max_in_flight: int
    rate: str | None
    timeout: DurationLike
    expect: ExpectDocument | None
    retry: RetryDocument
    breaker: BreakerDocument
    unknown: UnknownRule
    look_up: str | None
    verify_tls: bool
    order: RecordOrder
    paused: bool
