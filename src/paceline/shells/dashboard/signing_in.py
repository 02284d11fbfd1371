"""Sessions: a token is exchanged for a cookie that scripts cannot read and other sites cannot use."""

from __future__ import annotations

import secrets
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from paceline.core.scopes import scope_kind
from paceline.core.users import TokenUser
from paceline.errors import Forbidden, OutOfScope, Throttled, Unauthenticated
from paceline.shells.api.http.answers import ApiAnswer, Header, empty_answer, json_answer
from paceline.shells.api.http.auth import SECRET_CHARS_MAX, cookie_name, from_own_page, session_of
from paceline.shells.api.http.context import ApiCall
from paceline.shells.api.http.pages import query
from paceline.shells.api.http.route import Route, RouteGroup
from paceline.shells.dashboard.rendering import html
from paceline.steps import sessions
from paceline.steps.access import authenticate

SESSIONS = RouteGroup("Dashboard")
_SESSION = "/ui/session"


class SignInBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    token: Annotated[str, msgspec.Meta(min_length=1, max_length=SECRET_CHARS_MAX)]


class SignedIn(msgspec.Struct, frozen=True):
    """The signed-in user. ``scope`` says what the token may do; None: all that its user may."""

    user: str | None = None
    role: str | None = None
    scope: str | None = None


@Route(SESSIONS, "GET", "/ui/sign-in", {200: "text/html"}, access="open", query=("next",))
async def show_form(call: ApiCall) -> ApiAnswer:
    """Shows the form that takes a token."""
    return form(query(call.query_string, "next").get("next", "/"))


def form(wanted: str) -> ApiAnswer:
    """Returns the form. ``wanted`` is the page to go to afterwards, if its address is on this server."""
    return html("sign_in.html", {"next": wanted if _is_own(wanted) else "/"})


@Route(SESSIONS, "POST", _SESSION, {200: SignedIn}, access="open", body=SignInBody)
async def sign_in(call: ApiCall) -> ApiAnswer:
    """Signs in: exchanges a token for a cookie."""
    api = call.api
    if not from_own_page(call.headers):
        raise Forbidden("Only the sign-in page may send this. Programs send their token with each request.")
    token, key, now_ms = call.body.token.strip(), api.system.secret_key, api.now_ms()
    user = await api.read(authenticate, api.store, token, secret_key=key, now_ms=now_ms)
    if user is None:
        raise _wrong_token(call)
    if scope_kind(user.scope) not in (None, "read"):
        raise OutOfScope(f"This token is for {user.scope!r} only: it cannot sign in here. Use one without a scope.")
    made = secrets.token_bytes(sessions.SESSION_BYTES)
    cookie = await api.write(
        lambda: sessions.begin_session(api.store, token, session_bytes=made, secret_key=key, now_ms=now_ms)
    )
    return json_answer(200, _signed_in(user), _cookie(call, cookie, max_age_s=sessions.SESSION_MS // 1_000))


@Route(SESSIONS, "GET", _SESSION, {200: SignedIn}, access="open")
async def show_session(call: ApiCall) -> ApiAnswer:
    """Shows who is signed in; null if nobody is."""
    api, cookie, now_ms = call.api, session_of(call.headers), call.api.now_ms()
    user = None
    if cookie and from_own_page(call.headers):
        key = api.system.secret_key
        user = await api.read(sessions.user_of_session, api.store, cookie, secret_key=key, now_ms=now_ms)
    return json_answer(200, SignedIn() if user is None else _signed_in(user))


@Route(SESSIONS, "DELETE", _SESSION, {204: None}, scopes=("read",))
async def sign_out(call: ApiCall) -> ApiAnswer:
    """Signs out: ends the session, but does not revoke the token."""
    api, cookie, key = call.api, session_of(call.headers), call.api.system.secret_key
    await api.write(lambda: sessions.end_session(api.store, cookie, secret_key=key))
    api.tokens.forget()
    return empty_answer(204, _cookie(call, "", max_age_s=0))


def _signed_in(user: TokenUser) -> SignedIn:
    return SignedIn(user.id, user.role, user.scope or None)


def _wrong_token(call: ApiCall) -> Throttled | Unauthenticated:
    wait_s = call.api.wrong_tokens.count("sign-in", now_ms=call.api.now_ms())
    if wait_s is not None:
        return Throttled("Too many wrong tokens. Wait, and use a valid one.", retry_after_s=wait_s)
    return Unauthenticated("This token is wrong, revoked or expired, or its user is disabled. Ask an admin for one.")


def _cookie(call: ApiCall, value: str, *, max_age_s: int) -> Header:
    # A proxy that ends TLS sends the header. A client that forges it only harms itself: its browser drops the cookie.
    over_tls = "https" in (call.scheme, call.headers.get(b"x-forwarded-proto", b"").decode("latin-1"))
    secure = "; Secure" if over_tls else ""
    name = cookie_name(call.headers)
    return b"set-cookie", f"{name}={value}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite=Strict{secure}".encode()


def _is_own(address: str) -> bool:
    """True for an address on this server, so that a link to the form cannot lead to another site."""
    parts = urlsplit(address)
    own = not parts.scheme and not parts.netloc and address.startswith("/")
    return own and not address.startswith("//") and "\\" not in address and address.isprintable()
