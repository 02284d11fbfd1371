"""Channels through which a user is told: a webhook that Paceline calls itself, or a service that apprise speaks to."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import unquote, urlsplit

import msgspec

from paceline.core.monitors.checks import HIDDEN
from paceline.core.schema import shown
from paceline.core.targets import URL_CHARS_MAX, url_problem
from paceline.errors import FieldProblem, InvalidInput

ChannelKind = Literal["webhook", "apprise"]
CHANNELS_PER_USER_MAX = 50

APPRISE_SCHEMAS = frozenset(
    (
        "apprise", "apprises", "atalk", "azure", "bark", "barks", "betterstack", "bluesky", "brevo", "bsky", "bulksms",
        "bulkvs", "burstsms", "chanify", "clickatell", "clicksend", "cliq", "d7sms", "dapnet", "dingtalk", "discord",
        "emby", "embys", "enigma2", "enigma2s", "feishu", "firehydrant", "flock", "form", "forms", "freemobile",
        "gchat", "github", "goalert", "goalerts", "gotify", "gotifys", "groupme", "guilded", "hassio", "hassios",
        "httpsms", "ifttt", "ilert", "incidentio", "infobip", "jellyfin", "jellyfins", "jira", "join", "json", "jsons",
        "kakaotalk", "kavenegar", "kodi", "kodis", "kook", "kumulos", "lametric", "lametrics", "lark", "line",
        "mailersend", "mailgun", "mailto", "mailtos", "mastodon", "mastodons", "matrix", "matrixs", "misskey",
        "misskeys", "mmost", "mmosts", "msg91", "msgbird", "msteams", "ncloud", "nclouds", "nctalk", "nctalks",
        "nexmo", "notica", "noticas", "notifiarr", "notifico", "ntfy", "ntfys", "o365", "octopush", "onesignal",
        "opsgenie", "pagerduty", "pagertree", "parsep", "parseps", "pbul", "pjet", "pjets", "plivo", "postmark",
        "pover", "prowl", "psafer", "psafers", "push", "pushdeer", "pushdeers", "pushed", "pushme", "pushplus",
        "pushy", "qq", "reddit", "resend", "revolt", "ringc", "rocket", "rockets", "ryver", "schan", "sendgrid",
        "sendpulse", "ses", "seven", "sfr", "signal", "signals", "signl4", "sinch", "slack", "smsc", "smseagle",
        "smseagles", "smsmanager", "smsmgr", "smtp2go", "sns", "sparkpost", "spike", "splunk", "spugpush", "spush",
        "squadcast", "stackfield", "strmlabs", "synology", "synologys", "telesign", "telnyx", "tgram", "threema",
        "toot", "toots", "tweet", "twilio", "twist", "twitter", "viber", "victorops", "voipms", "vonage", "webex",
        "wechat", "wecombot", "whatsapp", "workflow", "workflows", "wxpusher", "wxteams", "x", "xbmc", "xbmcs",
        "xmatters", "xml", "xmls", "zcliq", "zoom", "zulip",
    )
)  # fmt: skip
"""Schemas of apprise that reach a service over the network by HTTP or SMTP.

Schemas that run programs, write to the desktop, the system log or files, or need a file of keys are left out.
"""
FORBIDDEN_OPTIONS = frozenset({"attach", "include", "keyfile", "pgp", "pgpkey", "subfile"})
"""Options of apprise URLs that name a file of the machine."""
FILE_TEMPLATES = frozenset({"msteams", "workflow", "workflows"})
"""Schemas whose option ``template`` names a file."""
_SCHEMA = re.compile(r"([a-z0-9]{1,20})://")
_PRINTABLE = re.compile(r"[!-~]+")


class ChannelBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A channel to create or replace. ``url`` "***" keeps the stored URL."""

    kind: Annotated[ChannelKind, shown("`apprise` needs Paceline's extra `apprise` to be installed on the server.")]
    url: Annotated[
        str,
        shown("Stored sealed, shown as `***`; `***` keeps the stored URL.", minLength=1, maxLength=URL_CHARS_MAX),
    ]
    default: Annotated[bool, shown("Whether the channel gets the alerts of everything that names no channels.")] = False


class Channel(msgspec.Struct, frozen=True):
    """A channel as it is stored, with its URL sealed; the key it is stored under has its user and id."""

    kind: ChannelKind
    url: str
    default: bool
    created_ms: int
    updated_ms: int


def check_channel(body: ChannelBody) -> None:
    """Raise InvalidInput with the wrong field if there is one."""
    problem = None if body.url == HIDDEN else channel_url_problem(body.kind, body.url)
    if problem is not None:
        raise InvalidInput.of(FieldProblem("/url", problem))


def channel_url_problem(kind: ChannelKind, url: str) -> str | None:
    """Return why a channel of this kind cannot have this URL, without repeating the URL; None if it can."""
    if kind == "webhook":
        return url_problem(url)
    if len(url) > URL_CHARS_MAX:
        return f"at most {URL_CHARS_MAX} characters"
    if not _PRINTABLE.fullmatch(url):
        return "spaces, control and non-ASCII characters must be percent-encoded"
    schema = _SCHEMA.match(url)
    if schema is None:
        return "not a URL of apprise; write for example mailto://user:password@example.org"
    if schema[1] not in APPRISE_SCHEMAS:
        return f"{schema[1]}:// cannot be used here: only services that are reached over the network can"
    return _option_problem(schema[1], url)


def _option_problem(schema: str, url: str) -> str | None:
    try:
        urlsplit(url)
    except ValueError:
        return "not a URL of apprise; write for example mailto://user:password@example.org"
    forbidden = _options(url) & (FORBIDDEN_OPTIONS | ({"template"} if schema in FILE_TEMPLATES else set()))
    if forbidden:
        return f"the option {min(forbidden)!r} names a file of the machine and cannot be used here"
    return None


def _options(url: str) -> set[str]:
    """Return the names of the options as apprise reads them.

    Apprise takes everything after the first question mark as options, separates them by semicolons too, and ignores
    blanks around a name. The usual rules would let a name pass that apprise knows.
    """
    pairs = re.split("[&;]", url.partition("?")[2])
    names = (unquote(pair.partition("=")[0].replace("+", " ")) for pair in pairs)
    return {name.lower().strip().lstrip("+-:").strip() for name in names}
