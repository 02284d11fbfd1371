"""Long polls: a claim that finds nothing looks again, until there is something or the time is over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from paceline.errors import Unauthenticated
from paceline.shells.api.http.answers import disconnected
from paceline.shells.api.http.auth import secret_of
from paceline.shells.api.http.bodies import ClientGone
from paceline.shells.api.http.context import ApiCall
from paceline.steps.access import authenticate

POLL_S = 0.5
"""A long poll looks again after this time even without a signal: another process may make runs in the store."""
POLL_S_MIN = 0.005
"""Shortest pause between two looks, even if a run seemed claimable: another worker may have been faster."""
T = TypeVar("T")


class PollResult(NamedTuple, Generic[T]):
    """Result of one look. ``next_ms``: when there may be something to claim; None if that is unknown."""

    items: list[T]
    next_ms: int | None = None


async def poll(
    call: ApiCall, look: Callable[[], Awaitable[PollResult[T]]], give_back: Callable[..., None], *, wait_ms: int
) -> list[T]:
    """Looks again and again, until something is claimed or the time is over. Returns the claimed items."""
    arrivals, loop = call.api.hooks.arrivals, asyncio.get_running_loop()
    until_s = loop.time() + wait_ms / 1_000
    gone: asyncio.Task[None] | None = None
    try:
        while True:
            mark = arrivals.mark()
            found = await look()
            left_s = until_s - loop.time()
            if found.items or left_s <= 0 or arrivals.closed:
                if gone is not None:
                    await call.api.write(partial(_judge_again, call, partial(give_back, call.api.store, found.items)))
                return found.items
            if gone is None:
                gone = loop.create_task(disconnected(call.receive))
            await arrivals.wait(mark, timeout_s=min(_pause_s(call, found.next_ms), left_s))
            if gone.done():
                raise ClientGone
    finally:
        if gone is not None:
            gone.cancel()


def _pause_s(call: ApiCall, next_ms: int | None) -> float:
    """Returns how long a long poll waits until its next look, unless a signal comes first."""
    pause_s = max(POLL_S, call.api.system.traits.look_ms_min / 1_000)
    if next_ms is None:
        return pause_s
    return min(max((next_ms - call.api.now_ms()) / 1_000, POLL_S_MIN), pause_s)


def _judge_again(call: ApiCall, give_back: Callable[..., None]) -> None:
    """Checks the token again after a wait: if it was revoked, gives the runs back and raises Unauthenticated.

    Does the same if its user was disabled or has another role.
    """
    store = call.api.store
    secret_key, now_ms = call.api.system.secret_key, call.api.now_ms()
    user = authenticate(store, secret_of(call.headers), secret_key=secret_key, now_ms=now_ms)
    if user is not None and user.role == call.user.role:
        return
    give_back(now_ms=now_ms)
    call.api.hooks.arrivals.notify()
    raise Unauthenticated("While this request waited, its token was revoked or expired, or its user changed.")
