"""Channels and silences of a user, and the alerts that were told."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from urllib.parse import quote

from paceline.core.alerts.channel import ChannelBody
from paceline.core.alerts.silence import Silence, SilenceBody, TagSilenceBody, monitor_silence, tag_silence
from paceline.errors import LimitReached, RevisionMismatch
from paceline.shells import cursors
from paceline.shells.api.http.answers import Answer, empty_answer, json_answer
from paceline.shells.api.http.context import Call
from paceline.shells.api.http.etags import check_guard, etag_header, guard_of, not_modified
from paceline.shells.api.http.pages import Page, make_cursor, page_of, page_query, position_of
from paceline.shells.api.http.route import PUT_HEADERS, READ_HEADERS, Group, Route
from paceline.shells.channel_test import send_test_message
from paceline.steps.alerts import channels, silences
from paceline.steps.monitors.define import get_monitor
from paceline.steps.views import alert_report
from paceline.steps.views.alert_report import AlertView, ChannelView, SilenceView, TrialView

CHANNELS = Group("Channels")
_USER = "/v1/users/{user}"
_CHANNEL = f"{_USER}/channels/{{channel}}"
_SILENCE = f"{_USER}/silences/{{silence_id}}"


@Route(
    CHANNELS,
    "PUT",
    _CHANNEL,
    {200: ChannelView, 201: ChannelView},
    body=ChannelBody,
    headers=PUT_HEADERS,
    problems=(LimitReached, RevisionMismatch),
)
async def put_channel(call: Call) -> Answer:
    """Creates the channel (201) or replaces it (200)."""
    api, owner, channel_id, guard = call.api, call.owner, call.params["channel"], guard_of(call.headers)

    def put_now() -> channels.ChannelPut:
        return channels.put_channel(
            api.store,
            api.system.vault,
            owner,
            channel_id,
            call.body,
            now_ms=api.now_ms(),
            judge=lambda stored: check_guard(guard, stored, channel_id, word="channel"),
        )

    put = await api.write(put_now)
    view, etag = alert_report.channel_view(put.id, put.channel), etag_header(put.channel)
    if not put.created:
        return json_answer(200, view, etag)
    path = f"/v1/users/{owner}/channels/{quote(channel_id, safe='')}"
    return json_answer(201, view, etag, (b"location", path.encode()))


@Route(CHANNELS, "GET", _CHANNEL, {200: ChannelView, 304: None}, headers=READ_HEADERS)
async def show_channel(call: Call) -> Answer:
    """The channel, without its URL."""
    channel_id = call.params["channel"]
    found = await call.api.read(channels.get_channel, call.api.store, call.owner, channel_id)
    view = alert_report.channel_view(channel_id, found)
    return not_modified(call.headers, found) or json_answer(200, view, etag_header(found))


@Route(CHANNELS, "DELETE", _CHANNEL, {204: None})
async def remove_channel(call: Call) -> Answer:
    """Removes the channel; alerts of monitors that name it go to the default channels."""
    api, owner, channel_id = call.api, call.owner, call.params["channel"]
    await api.write(lambda: channels.remove_channel(api.store, owner, channel_id))
    return empty_answer(204)


@Route(CHANNELS, "GET", f"{_USER}/channels", {200: Page[ChannelView]}, paged=True)
async def list_channels(call: Call) -> Answer:
    """The user's channels in order of id."""
    views = await call.api.work(alert_report.channel_views, call.api.store, call.owner)
    return _page(call, cursors.channels_of(call.owner), views)


@Route(CHANNELS, "POST", f"{_CHANNEL}/test", {200: TrialView}, waits=True)
async def send_test(call: Call) -> Answer:
    """Sends one message through the channel now and answers what came of it."""
    api, owner, channel_id = call.api, call.owner, call.params["channel"]
    own = ((api.system.settings.host, api.system.settings.port),)
    async with api.heavy:
        view = await api.work(send_test_message, api.system, owner, channel_id, own=own)
    return json_answer(200, view)


@Route(CHANNELS, "GET", f"{_USER}/alerts", {200: Page[AlertView]}, paged=True)
async def list_alerts(call: Call) -> Answer:
    """What the user was told through which channel, newest first."""
    api, owner = call.api, call.owner
    query = page_query(call.query_string, limit_max=api.system.settings.page_max)
    scope = cursors.alerts_of(owner)
    before = str(position_of(query.cursor, scope, ""))
    views, following = await api.work(alert_report.alert_views, api.store, owner, before=before, limit=query.limit)
    return json_answer(200, Page(views, None if following is None else make_cursor(scope, following)))


@Route(
    CHANNELS,
    "POST",
    f"{_USER}/monitors/{{id}}/silence",
    {201: SilenceView},
    body=SilenceBody,
    problems=(LimitReached,),
)
async def silence_monitor(call: Call) -> Answer:
    """Holds back the alerts of a monitor for a time; its runs go on."""
    api = call.api
    monitor = await api.read(get_monitor, api.store, call.owner, call.params["id"])
    return await _silence(call, monitor_silence(call.body, monitor.id, now_ms=api.now_ms()))


@Route(CHANNELS, "POST", f"{_USER}/silences", {201: SilenceView}, body=TagSilenceBody, problems=(LimitReached,))
async def silence_tag(call: Call) -> Answer:
    """Holds back the alerts of all monitors with a tag for a time; their runs go on."""
    return await _silence(call, tag_silence(call.body, now_ms=call.api.now_ms()))


@Route(CHANNELS, "GET", f"{_USER}/silences", {200: Page[SilenceView]}, paged=True)
async def list_silences(call: Call) -> Answer:
    """The user's silences in force, in order of id."""
    api = call.api
    views = await api.work(alert_report.silence_views, api.store, call.owner, now_ms=api.now_ms())
    return _page(call, cursors.silences_of(call.owner), views)


@Route(CHANNELS, "DELETE", _SILENCE, {204: None})
async def end_silence(call: Call) -> Answer:
    """Ends a silence early; a failure that it held back and that lasts is told."""
    api, owner, silence_id = call.api, call.owner, call.params["silence_id"]
    await api.write(lambda: silences.end_silence(api.store, owner, silence_id, now_ms=api.now_ms()))
    return empty_answer(204)


def _page(call: Call, scope: str, views: Sequence[ChannelView] | Sequence[SilenceView]) -> Answer:
    """A page of views in order of id. There are few: all of them are read."""
    query = page_query(call.query_string, limit_max=call.api.system.settings.page_max)
    after = str(position_of(query.cursor, scope, ""))
    later = [view for view in views if view.id > after]
    return json_answer(200, page_of(later, query.limit, scope, at=lambda view: view.id, view=lambda view: view))


async def _silence(call: Call, silence: Silence) -> Answer:
    api, owner = call.api, call.owner
    added = await api.write(
        lambda: silences.add_silence(api.store, owner, silence, chance_id=secrets.token_hex(silences.ID_DIGITS // 2))
    )
    view = alert_report.silence_view(added)
    return json_answer(201, view, (b"location", f"/v1/users/{owner}/silences/{view.id}".encode()))
