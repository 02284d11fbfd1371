"""Routes of users and their tokens."""

from __future__ import annotations

import secrets
from typing import TypeVar

import msgspec

from paceline.core.scopes import worker_provider
from paceline.core.users import UserEdit
from paceline.errors import AlreadyExists, Forbidden, LimitReached
from paceline.shells.api.documents import NewTokenBody, NewUser, NewUserBody, TokenMade, UserPatchBody
from paceline.shells.api.http.answers import ApiAnswer, empty_answer, json_answer
from paceline.shells.api.http.auth import owner_of, require_admin
from paceline.shells.api.http.context import ApiCall, ApiContext
from paceline.shells.api.http.pages import page_by_id
from paceline.shells.api.http.route import RouteGroup
from paceline.shells.cursors import position_of
from paceline.shells.lists import first_of
from paceline.steps import access
from paceline.steps.views.report import TokenView, UserView, token_view, user_view

T = TypeVar("T")
USERS = RouteGroup("Users")
_USER = "/v1/users/{user}"


@USERS.post("/v1/users", {201: NewUser}, access="admin", body=NewUserBody, problems=(AlreadyExists,))
async def add_user(call: ApiCall) -> ApiAnswer:
    """Adds a user with a first token, which is shown only this once."""
    body: NewUserBody = call.body
    api = call.api
    user, made = await api.write(
        lambda: access.add_user(
            api.store,
            body.id,
            role=body.role,
            daily_credits=body.daily_credits,
            token_bytes=secrets.token_bytes(access.TOKEN_BYTES),
            secret_key=api.system.secret_key,
            now_ms=api.now_ms(),
        )
    )
    return json_answer(201, NewUser(user.id, made.secret), (b"location", f"/v1/users/{user.id}".encode()))


@USERS.get_page("/v1/users", UserView, access="admin")
async def list_users(call: ApiCall) -> ApiAnswer:
    """All users in order of id."""
    api = call.api
    asked = call.page()
    users = await api.read(api.store.users, after=position_of(asked.cursor, "users", ""), limit=asked.limit + 1)
    page = first_of(users, asked, "users", at=lambda user: user.id, view=user_view)
    return json_answer(200, page)


@USERS.get(_USER, UserView)
async def show_user(call: ApiCall) -> ApiAnswer:
    """The user; `me` is the token's own user."""
    return json_answer(200, user_view(await call.api.read(access.get_user, call.api.store, call.owner)))


@USERS.patch(_USER, UserView, access="admin", body=UserPatchBody)
async def edit_user(call: ApiCall) -> ApiAnswer:
    """Changes role or daily credits; disables or enables the user."""
    body: UserPatchBody = call.body
    api, owner = call.api, call.owner
    edit = UserEdit(role=_given(body.role), daily_credits=_given(body.daily_credits), disabled=_given(body.disabled))
    user = await api.write(lambda: access.edit_user(api.store, owner, edit, now_ms=api.now_ms()))
    _tell_all(api)
    return json_answer(200, user_view(user))


@USERS.delete(_USER, access="admin")
async def remove_user(call: ApiCall) -> ApiAnswer:
    """Removes the user with all tokens and monitors."""
    api, owner = call.api, call.owner
    await api.write(lambda: access.remove_user(api.store, owner, now_ms=api.now_ms()))
    _tell_all(api)
    return empty_answer(204)


@USERS.post(
    f"{_USER}/tokens", {201: TokenMade}, body=NewTokenBody, body_needed=False, problems=(LimitReached, Forbidden)
)
async def add_token(call: ApiCall) -> ApiAnswer:
    """Makes a token, which is shown only this once."""
    body: NewTokenBody = call.body
    api, owner = call.api, call.owner
    scope = _given(body.scope) or ""
    if worker_provider(scope) is not None:
        require_admin(call.user)  # workers see the contents of batches
    made = await api.write(lambda: _add_token(api, owner, body.label, scope, _given(body.expires)))
    view = token_view(made.token)
    path = f"/v1/users/{owner}/tokens/{view.id}".encode()
    answer = TokenMade(view.id, view.label, view.scope, view.expires, view.created_at, made.secret)
    return json_answer(201, answer, (b"location", path))


@USERS.get_page(f"{_USER}/tokens", TokenView)
async def list_tokens(call: ApiCall) -> ApiAnswer:
    """The user's tokens, without their secrets."""
    views = await call.api.read(_token_views, call.api, call.owner)
    return json_answer(200, page_by_id(views, call.page(), f"tokens {call.owner}"))


@USERS.delete(f"{_USER}/tokens/{{token_id}}")
async def revoke_token(call: ApiCall) -> ApiAnswer:
    """Revokes a token; the next request with it is refused."""
    api, owner, token_id = call.api, owner_of(call.user, call.params["user"]), call.params["token_id"]
    await api.write(lambda: access.revoke_token(api.store, owner, token_id))
    api.tokens.forget()
    return empty_answer(204)


def _add_token(api: ApiContext, owner: str, label: str, scope: str, expires: str | None) -> access.NewToken:
    return access.add_token(
        api.store,
        owner,
        label=label,
        token_bytes=secrets.token_bytes(access.TOKEN_BYTES),
        secret_key=api.system.secret_key,
        now_ms=api.now_ms(),
        scope=scope,
        expires=expires,
    )


def _tell_all(api: ApiContext) -> None:
    """Tells everything that depends on users: cached tokens, paused entries, held runs and jobs."""
    api.tokens.forget()
    api.hooks.wake()
    api.hooks.arrivals.notify()
    api.hooks.wake_jobs()


def _token_views(api: ApiContext, owner: str) -> list[TokenView]:
    """Returns the user's tokens in order of id."""
    tokens = api.store.tokens(access.get_user(api.store, owner).id)
    return [token_view(token) for token in sorted(tokens, key=lambda token: token.id)]


def _given(value: T | msgspec.UnsetType) -> T | None:
    return None if isinstance(value, msgspec.UnsetType) else value
