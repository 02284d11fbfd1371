"""``paceline channel``, ``paceline silence`` and ``paceline alert``: channels, silences, and alerts that were sent."""

from __future__ import annotations

import secrets
import sys
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import typer

from paceline.core.alerts.channel import ChannelBody, ChannelKind
from paceline.core.alerts.silence import TagSilenceBody, tag_silence
from paceline.core.monitors.checks import HIDDEN
from paceline.errors import InvalidInput, NotFound
from paceline.shells import lists
from paceline.shells.cli.call import CliCall, command, owner_id
from paceline.shells.cli.options import PageOptions, UserOption, argument, flag, option
from paceline.shells.cli.output import EXIT_FAILED, EXIT_OK, Columns, emit, emit_list, emit_page
from paceline.shells.cli.text.columns import ident, when, word, words
from paceline.steps.alerts import channels, silences
from paceline.steps.views import alert_report
from paceline.steps.views.alert_report import AlertView, ChannelView, SilenceView, TrialView

if TYPE_CHECKING:
    from paceline.shells.cli.remote import Remote
    from paceline.wiring import System

app = typer.Typer(name="channel", help="Set, test, list and remove a user's channels for alerts.")
silence_app = typer.Typer(name="silence", help="Hold back the alerts of monitors with a tag; list and end silences.")
alert_app = typer.Typer(name="alert", help="List the alerts that were sent.")

CHANNEL_COLUMNS: Columns = {
    "CHANNEL": ident("id"),
    "KIND": word("kind"),
    "DEFAULT": word("default", 1),
    "CHANGED": when("updated_at", 2),
}
SILENCE_COLUMNS: Columns = {
    "SILENCE": ident("id"),
    "OF": ident(lambda view: view.monitor or f"tag {view.tag}"),
    "UNTIL": when("until"),
    "REASON": words("reason", 1),
}
ALERT_COLUMNS: Columns = {
    "AT": when("at"),
    "EVENT": word("event"),
    "SUBJECT": ident("subject"),
    "STATE": word("state", 2),
    "TOLD": words(lambda view: ", ".join(f"{one.channel}: {one.state}" for one in view.deliveries) or view.note, 3),
    "REASON": words("reason", 1),
}
_NO_SILENCE = (
    "Nothing is silenced. To silence: paceline silence add TAG --for 2h, or paceline monitor silence ID --for 2h"
)
_NO_ALERT = "There is no alert. Who would be told: paceline channel list"
_CHANNELS = "/v1/users/{user}/channels"
_CHANNEL = f"{_CHANNELS}/{{channel}}"
_SILENCES = "/v1/users/{user}/silences"
TEST_S = 40.0
"""How long a service may take to answer a test message."""
ChannelArgument = Annotated[str, argument("ID", "The channel's id.")]
ForOption = Annotated[str, option("DURATION", "How long, such as 30m or 2h.", "--for")]
ReasonOption = Annotated[str, option("TEXT", "Why; shown in the list.")]


class ChannelOptions(NamedTuple):
    """Options of ``channel set``; None for an option that was not given."""

    url: Annotated[str | None, option("URL", "URL of a webhook or of apprise; - reads it from stdin.")] = None
    kind: Annotated[str | None, option("KIND", "webhook or apprise. [default: chosen by the URL]")] = None
    default: Annotated[
        bool | None, flag("--default/--no-default", "Whether it gets all alerts that name no channel.")
    ] = None


@command(app, "set")
def set_channel(call: CliCall, channel: ChannelArgument, *, user: UserOption = None, options: ChannelOptions) -> None:
    """Create a channel, or change the fields that the options name and keep the rest."""
    if options.url == "-":
        options = options._replace(url=sys.stdin.readline().strip())
    view = call.answer(
        lambda at: _put(at, owner_id(at, user), channel, options),
        lambda remote: _put_over_rest(remote, remote.owner(user), channel, options),
    )
    emit(call, view, f"Channel {view.id} is set. Try it: paceline channel test {view.id}")


@command(app, "list")
def list_channels(call: CliCall, *, user: UserOption = None) -> None:
    """List a user's channels; their URLs are never shown."""
    views = call.answer(
        lambda at: alert_report.channel_views(at.store, owner_id(at, user)),
        lambda remote: remote.every(_CHANNELS, ChannelView, user=remote.owner(user)),
    )
    none = "There is no channel yet. Set one: paceline channel set ID --url URL --default"
    emit_list(call, views, CHANNEL_COLUMNS, none=none)


@command(app, "test")
def send_test(call: CliCall, channel: ChannelArgument, *, user: UserOption = None) -> int:
    """Send a test message through a channel and say whether it was accepted; exits with 1 if not."""
    view = call.answer(
        lambda at: _test(at, owner_id(at, user), channel),
        lambda remote: remote.ask(
            "POST", f"{_CHANNEL}/test", TrialView, wait_s=TEST_S, user=remote.owner(user), channel=channel
        ),
    )
    emit(
        call,
        view,
        f"Channel {channel} accepted the message."
        if view.ok
        else f"Channel {channel} did not accept the message: {view.reason}",
    )
    return EXIT_OK if view.ok else EXIT_FAILED


@command(app, "rm")
def remove(call: CliCall, channel: ChannelArgument, *, user: UserOption = None) -> None:
    """Remove a channel; alerts of monitors that name it then go to the default channels."""
    call.answer(
        lambda at: channels.remove_channel(at.store, owner_id(at, user), channel),
        lambda remote: remote.do("DELETE", _CHANNEL, user=remote.owner(user), channel=channel),
    )
    emit(call, {"removed": channel}, f"Removed channel {channel}.")


@command(silence_app, "add")
def add_silence(
    call: CliCall,
    tag: Annotated[str, argument("TAG", "The tag of the monitors that are silenced.")],
    *,
    user: UserOption = None,
    lasting: ForOption,
    reason: ReasonOption = "",
) -> None:
    """Hold back the alerts of all monitors with a tag for a time; their runs go on."""
    body = TagSilenceBody(tag, lasting, reason)
    view = call.answer(
        lambda at: silence_now(at, user, lambda now_ms: tag_silence(body, now_ms=now_ms)),
        lambda remote: remote.ask(
            "POST", _SILENCES, SilenceView, body=msgspec.to_builtins(body), user=remote.owner(user)
        ),
    )
    emit_silence(call, view)


@command(silence_app, "list")
def list_silences(call: CliCall, *, user: UserOption = None) -> None:
    """List a user's silences in force."""
    views = call.answer(
        lambda at: alert_report.silence_views(at.store, owner_id(at, user), now_ms=at.clock.now_ms()),
        lambda remote: remote.every(_SILENCES, SilenceView, user=remote.owner(user)),
    )
    emit_list(call, views, SILENCE_COLUMNS, none=_NO_SILENCE)


@command(silence_app, "end")
def end_silence(
    call: CliCall,
    silence: Annotated[str, argument("ID", "The silence's id.")],
    *,
    user: UserOption = None,
) -> None:
    """End a silence early. A failure that it held back is sent if it still lasts."""
    call.answer(
        lambda at: silences.end_silence(at.store, owner_id(at, user), silence, now_ms=at.clock.now_ms()),
        lambda remote: remote.do("DELETE", f"{_SILENCES}/{{silence_id}}", user=remote.owner(user), silence_id=silence),
    )
    emit(call, {"ended": silence}, f"Ended silence {silence}.")


@command(alert_app, "list")
def list_alerts(call: CliCall, *, user: UserOption = None, page: PageOptions) -> None:
    """List the alerts sent to a user, with their channels, newest first."""
    listed = call.answer(
        lambda at: lists.list_alerts(at, owner_id(at, user), page),
        lambda remote: remote.page("/v1/users/{user}/alerts", AlertView, page, user=remote.owner(user)),
    )
    emit_page(call, listed, ALERT_COLUMNS, none=_NO_ALERT)


def silence_now(system: System, user: str | None, make: Any) -> SilenceView:
    """Adds the silence that ``make`` returns for the current time, and returns its view."""
    silence = make(system.clock.now_ms())
    chance_id = secrets.token_hex(silences.ID_DIGITS // 2)
    return alert_report.silence_view(
        silences.add_silence(system.store, owner_id(system, user), silence, chance_id=chance_id)
    )


def emit_silence(call: CliCall, view: SilenceView) -> None:
    what = view.monitor or f"monitors with the tag {view.tag}"
    emit(call, view, f"Silenced {what} until {view.until}. End it early: paceline silence end {view.id}")


def _put(system: System, owner: str, channel: str, options: ChannelOptions) -> ChannelView:
    try:
        there = alert_report.channel_view(channel, channels.get_channel(system.store, owner, channel))
    except NotFound:
        there = None
    body = _body(there, options)
    put = channels.put_channel(system.store, system.vault, owner, channel, body, now_ms=system.clock.now_ms())
    return alert_report.channel_view(put.id, put.channel)


def _put_over_rest(remote: Remote, owner: str, channel: str, options: ChannelOptions) -> ChannelView:
    names: dict[str, Any] = {"user": owner, "channel": channel}
    there = remote.find(_CHANNEL, ChannelView, **names)
    body = _body(there.view if there else None, options)
    return remote.ask("PUT", _CHANNEL, ChannelView, body=msgspec.to_builtins(body), **names)


def _body(there: ChannelView | None, options: ChannelOptions) -> ChannelBody:
    """Returns the body to put: the options that were given, and the existing values for the rest."""
    url, kind, default = options
    if there is None and url is None:
        raise InvalidInput("Say where the channel leads: --url URL.")
    found = kind or (_kind_of(url) if url is not None else None) or (there.kind if there else None)
    if found not in ("webhook", "apprise"):
        raise InvalidInput("--kind: webhook or apprise.")
    chosen: ChannelKind = "webhook" if found == "webhook" else "apprise"
    kept = there.default if there else False
    return ChannelBody(chosen, HIDDEN if url is None else url, kept if default is None else default)


def _kind_of(url: str) -> ChannelKind:
    return "webhook" if url.startswith(("http://", "https://")) else "apprise"


def _test(system: System, owner: str, channel: str) -> TrialView:
    from paceline.shells.channel_test import send_test_message

    return send_test_message(system, owner, channel)
