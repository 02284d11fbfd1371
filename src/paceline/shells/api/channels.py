"""Routes of a user's channels and silences, and of the alerts that were told."""

from __future__ import annotations

import secrets
from urllib.parse import quote

from paceline.core.alerts.channel import ChannelBody
from paceline.core.alerts.silence import Silence, SilenceBody, TagSilenceBody, monitor_silence, tag_silence
from paceline.errors import LimitReached
from paceline.shells import lists
from paceline.shells.api.http.answers import ApiAnswer, empty_answer, json_answer
from paceline.shells.api.http.context import ApiCall
from paceline.shells.api.http.etags import check_guard, etag_header, guard_of, not_modified
from paceline.shells.api.http.pages import page_by_id
from paceline.shells.api.http.route import READ_HEADERS, RouteGroup
from paceline.shells.channel_test import send_test_message
from paceline.steps.alerts import channels, silences
from paceline.steps.monitors.define import get_monitor
from paceline.steps.views import alert_report
from paceline.steps.views.alert_report import AlertView, ChannelView, SilenceView, TrialView

CHANNELS = RouteGroup("Channels")
_USER = "/v1/users/{user}"
_CHANNEL = f"{_USER}/channels/{{channel}}"
_SILENCE = f"{_USER}/silences/{{silence_id}}"


@CHANNELS.put(_CHANNEL, ChannelView, body=ChannelBody, problems=(LimitReached,))
async def put_channel(call: ApiCall) -> ApiAnswer:
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


@CHANNELS.get(_CHANNEL, ChannelView, headers=READ_HEADERS)
async def show_channel(call: ApiCall) -> ApiAnswer:
    """The channel, without its URL."""
    channel_id = call.params["channel"]
    found = await call.api.read(channels.get_channel, call.api.store, call.owner, channel_id)
    view = alert_report.channel_view(channel_id, found)
    return not_modified(call.headers, found) or json_answer(200, view, etag_header(found))


@CHANNELS.delete(_CHANNEL)
async def remove_channel(call: ApiCall) -> ApiAnswer:
    """Removes the channel; alerts of monitors that name it go to the default channels."""
    api, owner, channel_id = call.api, call.owner, call.params["channel"]
    await api.write(lambda: channels.remove_channel(api.store, owner, channel_id))
    return empty_answer(204)


@CHANNELS.get_page(f"{_USER}/channels", ChannelView)
async def list_channels(call: ApiCall) -> ApiAnswer:
    """The user's channels in order of id."""
    views = await call.api.work(alert_report.channel_views, call.api.store, call.owner)
    return json_answer(200, page_by_id(views, call.page(), f"channels {call.owner}"))


@CHANNELS.post(f"{_CHANNEL}/test", TrialView, waits=True)
async def send_test(call: ApiCall) -> ApiAnswer:
    """Sends one message through the channel now and answers with the result."""
    api, owner, channel_id = call.api, call.owner, call.params["channel"]
    own = ((api.system.settings.host, api.system.settings.port),)
    return json_answer(200, await api.trial(send_test_message, api.system, owner, channel_id, own=own))


@CHANNELS.get_page(f"{_USER}/alerts", AlertView)
async def list_alerts(call: ApiCall) -> ApiAnswer:
    """The user's alerts with their channels, newest first."""
    return json_answer(200, await call.api.listed(call.page(), lists.list_alerts, call.owner))


@CHANNELS.post(f"{_USER}/monitors/{{id}}/silence", {201: SilenceView}, body=SilenceBody, problems=(LimitReached,))
async def silence_monitor(call: ApiCall) -> ApiAnswer:
    """Holds back the alerts of a monitor for a time; its runs go on."""
    api = call.api
    monitor = await api.read(get_monitor, api.store, call.owner, call.params["id"])
    return await _silence(call, monitor_silence(call.body, monitor.id, now_ms=api.now_ms()))


@CHANNELS.post(f"{_USER}/silences", {201: SilenceView}, body=TagSilenceBody, problems=(LimitReached,))
async def silence_tag(call: ApiCall) -> ApiAnswer:
    """Holds back the alerts of all monitors with a tag for a time; their runs go on."""
    return await _silence(call, tag_silence(call.body, now_ms=call.api.now_ms()))


@CHANNELS.get_page(f"{_USER}/silences", SilenceView)
async def list_silences(call: ApiCall) -> ApiAnswer:
    """The user's silences in force, in order of id."""
    api = call.api
    views = await api.work(alert_report.silence_views, api.store, call.owner, now_ms=api.now_ms())
    return json_answer(200, page_by_id(views, call.page(), f"silences {call.owner}"))


@CHANNELS.delete(_SILENCE)
async def end_silence(call: ApiCall) -> ApiAnswer:
    """Ends a silence early. A failure that it held back is told if it still lasts."""
    api, owner, silence_id = call.api, call.owner, call.params["silence_id"]
    await api.write(lambda: silences.end_silence(api.store, owner, silence_id, now_ms=api.now_ms()))
    return empty_answer(204)


async def _silence(call: ApiCall, silence: Silence) -> ApiAnswer:
    api, owner = call.api, call.owner
    added = await api.write(
        lambda: silences.add_silence(api.store, owner, silence, chance_id=secrets.token_hex(silences.ID_DIGITS // 2))
    )
    view = alert_report.silence_view(added)
    return json_answer(201, view, (b"location", f"/v1/users/{owner}/silences/{view.id}".encode()))
