"""Channels of users: put, read and removed. Their URLs are sealed before the store sees them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from paceline.core.alerts.channel import CHANNELS_PER_USER_MAX, Channel, ChannelBody, check_channel
from paceline.core.ids import id_problem
from paceline.core.monitors.checks import HIDDEN
from paceline.errors import FieldProblem, InvalidInput, LimitReached, NotFound
from paceline.ports import Store, Vault
from paceline.ports.items import ItemStore
from paceline.steps.alerts.owner import since_ms as user_since_ms
from paceline.steps.collection import Collection

CHANNELS = Collection("channel", Channel)
"""Channels by ``user/id``."""
KnownChannels = dict[str, frozenset[str]]
"""Names of channels by their user."""


class ChannelPut(NamedTuple):
    """The stored channel, and whether it is new."""

    id: str
    channel: Channel
    created: bool


def put_channel(
    store: Store,
    vault: Vault,
    user: str,
    channel_id: str,
    body: ChannelBody,
    *,
    now_ms: int,
    judge: Callable[[Channel | None], None] = lambda _: None,
) -> ChannelPut:
    """Create the channel or replace it. A URL given as it is shown (hidden) keeps the stored one.

    ``judge`` is called with the stored channel, and may raise; the new channel replaces only that one. Concurrent puts
    may exceed the limit on a user's channels.
    """
    if problem := id_problem(channel_id, "/id"):
        raise InvalidInput.of(problem)
    check_channel(body)
    created_ms = user_since_ms(store, user)
    made = False

    def decide(stored: Channel | None) -> Channel:
        nonlocal made
        known = stored if stored is not None and stored.created_ms >= created_ms else None
        made = known is None
        judge(known)
        if known is None:
            _refuse_more(store, user)
        channel = Channel(body.kind, _sealed(body, known, vault), body.default, now_ms, now_ms)
        if known is None:
            return channel
        kept = replace(channel, created_ms=known.created_ms, updated_ms=known.updated_ms)
        return kept if kept == known else replace(kept, updated_ms=now_ms)

    stored = CHANNELS.edit(store, _key(user, channel_id), decide)
    assert stored is not None
    return ChannelPut(channel_id, stored, made)


def get_channel(store: Store, user: str, channel_id: str) -> Channel:
    found = CHANNELS.get(store, _key(user, channel_id))
    if found is None or found.created_ms < user_since_ms(store, user):
        raise no_channel(user, channel_id)
    return found


def channels_of(store: ItemStore, user: str, *, since_ms: int) -> dict[str, Channel]:
    """Return the user's channels in order of id; none from before ``since_ms``, when the user was made."""
    page = CHANNELS.page(store, prefix=_key(user, ""), limit=2 * CHANNELS_PER_USER_MAX)
    return {
        found.key.removeprefix(_key(user, "")): found.value
        for found in page
        if found.value is not None and found.value.created_ms >= since_ms
    }


def remove_channel(store: Store, user: str, channel_id: str) -> None:
    """Remove the channel. Monitors may name it: their alerts then go to the user's default channels."""
    get_channel(store, user, channel_id)
    CHANNELS.delete(store, _key(user, channel_id))


def remove_channels(store: ItemStore, user: str) -> None:
    """Remove all channels of a user who is being removed."""
    for found in list(CHANNELS.walk(store, prefix=_key(user, ""))):
        CHANNELS.delete(store, found.key)


def require_channels(
    store: Store,
    user: str,
    names: Sequence[str],
    *,
    pointer: str,
    known: KnownChannels | None = None,
    before: Sequence[str] = (),
) -> None:
    """Raise InvalidInput unless the user has a channel of each name. A missing user is judged elsewhere.

    ``known`` remembers users' channels, so that many definitions of one request read them once. ``before``: channels
    that the definition names already; one that was removed since does not prevent other edits.
    """
    if set(names) <= set(before):
        return
    known = {} if known is None else known
    if user not in known:
        found = store.user(user)
        if found is None:
            return
        known[user] = frozenset(channels_of(store, user, since_ms=found.created_ms))
    problems = [
        FieldProblem(f"{pointer}/{index}", f"there is no channel {name!r}; put it first")
        for index, name in enumerate(names)
        if name not in known[user] and name not in before
    ]
    if problems:
        raise InvalidInput.of(*problems)


def no_channel(user: str, channel_id: str) -> NotFound:
    return NotFound(f"User {user!r} has no channel {channel_id[:128]!r}.")


def _key(user: str, channel_id: str) -> str:
    return f"{user}/{channel_id}"


def _refuse_more(store: ItemStore, user: str) -> None:
    if len(CHANNELS.page(store, prefix=_key(user, ""), limit=CHANNELS_PER_USER_MAX)) >= CHANNELS_PER_USER_MAX:
        raise LimitReached(
            f"User {user!r} has {CHANNELS_PER_USER_MAX} channels, the most there may be. Remove some first."
        )


def _sealed(body: ChannelBody, stored: Channel | None, vault: Vault) -> str:
    if body.url != HIDDEN:
        return vault.seal(body.url)
    if stored is None or stored.kind != body.kind:
        raise InvalidInput.of(FieldProblem("/url", f'no URL of this kind is stored for "{HIDDEN}" to keep'))
    return stored.url
