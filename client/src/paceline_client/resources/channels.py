"""Channels and silences of a user, and the alerts that were told."""

from __future__ import annotations

from paceline_client.answers import IfChanged, Json, Nothing, Page
from paceline_client.calls import Call, Pages, Resource, Transport, given, listing, operation
from paceline_client.durations import DurationLike
from paceline_client.models.alerts import Alert, Channel, Silence, Trial
from paceline_client.models.states import ChannelKind

_USER = "/v1/users/{user}"
_CHANNEL = _USER + "/channels/{channel}"
TEST_S = 40.0
"""How long a service may take to answer a test message."""


class Channels(Resource[Transport]):
    """Channels of a user. ``user`` is ``me``, or for admins any user."""

    @operation
    def put(
        self,
        channel: str,
        *,
        kind: ChannelKind,
        url: str,
        default: bool | None = None,
        user: str = "me",
        if_match: str | None = None,
        if_none_match: str | None = None,
    ) -> Call[Channel]:
        """Creates the channel or replaces it. ``url="***"`` keeps the stored one."""
        headers = {"If-Match": if_match, "If-None-Match": if_none_match}
        body = given(kind=kind, url=url, default=default)
        return Call("PUT", _CHANNEL, Json(Channel), {"user": user, "channel": channel}, headers=headers, body=body)

    @operation
    def get(self, channel: str, *, user: str = "me") -> Call[Channel]:
        """Returns the channel, without its URL."""
        return Call("GET", _CHANNEL, Json(Channel), {"user": user, "channel": channel})

    @operation
    def get_if_changed(self, channel: str, *, if_none_match: str, user: str = "me") -> Call[Channel | None]:
        """Returns the channel, or None if it still has this ETag."""
        headers = {"If-None-Match": if_none_match}
        return Call("GET", _CHANNEL, IfChanged(Channel), {"user": user, "channel": channel}, headers=headers)

    @operation
    def remove(self, channel: str, *, user: str = "me") -> Call[None]:
        """Removes the channel; alerts of monitors that name it go to the default channels."""
        return Call("DELETE", _CHANNEL, Nothing(), {"user": user, "channel": channel})

    @listing
    def list(self, *, user: str = "me", limit: int | None = None) -> Pages[Channel]:
        """Lists the user's channels in order of id."""
        return Pages(Call("GET", f"{_USER}/channels", Json(Page[Channel]), {"user": user}), limit)

    @operation
    def test(self, channel: str, *, user: str = "me") -> Call[Trial]:
        """Sends one message through the channel now and returns the result."""
        places = {"user": user, "channel": channel}
        return Call("POST", f"{_CHANNEL}/test", Json(Trial), places, wait_s=TEST_S)


class Silences(Resource[Transport]):
    """Silences of a user. ``client.monitors.silence`` begins one for a single monitor."""

    @operation
    def add(self, tag: str, *, lasting: DurationLike, reason: str = "", user: str = "me") -> Call[Silence]:
        """Holds back the alerts of all monitors with the tag for this time; their runs go on."""
        body = given(tag=tag, reason=reason) | {"for": lasting}
        return Call("POST", f"{_USER}/silences", Json(Silence), {"user": user}, body=body)

    @listing
    def list(self, *, user: str = "me", limit: int | None = None) -> Pages[Silence]:
        """Lists the user's silences in force."""
        return Pages(Call("GET", f"{_USER}/silences", Json(Page[Silence]), {"user": user}), limit)

    @operation
    def end(self, silence: str, *, user: str = "me") -> Call[None]:
        """Ends a silence early. A failure that it held back, and that still lasts, is told."""
        places = {"user": user, "silence_id": silence}
        return Call("DELETE", f"{_USER}/silences/{{silence_id}}", Nothing(), places)


class Alerts(Resource[Transport]):
    """Alerts that a user was told."""

    @listing
    def list(self, *, user: str = "me", limit: int | None = None) -> Pages[Alert]:
        """Lists the user's alerts, newest first."""
        return Pages(Call("GET", f"{_USER}/alerts", Json(Page[Alert]), {"user": user}), limit)
