"""Users and their tokens."""

from __future__ import annotations

import secrets
from typing import TypeVar

import msgspec

from paceline.ports import Token, UserEdit
from paceline.shells.api.answers import Answer, empty_answer, json_answer
from paceline.shells.api.auth import owner_of
from paceline.shells.api.documents import NewTokenBody, NewUser, NewUserBody, TokenMade, UserPatchBody
from paceline.shells.api.pages import Page, make_cursor, page_query, position_of
from paceline.shells.api.parts import Call, Parts
from paceline.steps import access
from paceline.steps.report import token_view, user_view

T = TypeVar("T")


async def add_user(call: Call) -> Answer:
    body: NewUserBody = call.body
    parts = call.parts
    user, made = await parts.write(
        lambda: access.add_user(
            parts.store,
            body.id,
            role=body.role,
            daily_credits=body.daily_credits,
            token_bytes=secrets.token_bytes(access.TOKEN_BYTES),
            secret_key=parts.system.secret_key,
            now_ms=parts.now_ms(),
        )
    )
    return json_answer(201, NewUser(user.id, made.secret), (b"location", f"/v1/users/{user.id}".encode()))


async def list_users(call: Call) -> Answer:
    query = page_query(call.query_string, limit_max=call.parts.system.settings.page_max)
    after = str(position_of(query.cursor, "users", ""))
    users = call.parts.store.users(after=after, limit=query.limit + 1)
    cursor = make_cursor("users", users[query.limit - 1].id) if len(users) > query.limit else None
    return json_answer(200, Page([user_view(user) for user in users[: query.limit]], cursor))


async def show_user(call: Call) -> Answer:
    return json_answer(200, user_view(access.get_user(call.parts.store, call.owner)))


async def edit_user(call: Call) -> Answer:
    body: UserPatchBody = call.body
    parts, owner = call.parts, call.owner
    edit = UserEdit(role=_given(body.role), daily_credits=_given(body.daily_credits), disabled=_given(body.disabled))
    user = await parts.write(lambda: access.edit_user(parts.store, owner, edit, now_ms=parts.now_ms()))
    _tell_all(parts)
    return json_answer(200, user_view(user))


async def remove_user(call: Call) -> Answer:
    parts, owner = call.parts, call.owner
    await parts.write(lambda: access.remove_user(parts.store, owner, now_ms=parts.now_ms()))
    _tell_all(parts)
    return empty_answer(204)


async def add_token(call: Call) -> Answer:
    body: NewTokenBody = call.body
    parts, owner = call.parts, call.owner
    made = await parts.write(lambda: _add_token(parts, owner, body.label))
    view = token_view(made.token)
    path = f"/v1/users/{owner}/tokens/{view.id}".encode()
    return json_answer(201, TokenMade(view.id, view.label, view.created_at, made.secret), (b"location", path))


async def list_tokens(call: Call) -> Answer:
    owner = access.get_user(call.parts.store, call.owner).id
    query = page_query(call.query_string, limit_max=call.parts.system.settings.page_max)
    scope = f"tokens {owner}"
    after = str(position_of(query.cursor, scope, ""))
    tokens = sorted((token for token in call.parts.store.tokens(owner) if token.id > after), key=_token_id)
    cursor = make_cursor(scope, tokens[query.limit - 1].id) if len(tokens) > query.limit else None
    return json_answer(200, Page([token_view(token) for token in tokens[: query.limit]], cursor))


async def revoke_token(call: Call) -> Answer:
    parts, owner, token_id = call.parts, owner_of(call.user, call.params["user"]), call.params["token_id"]
    await parts.write(lambda: access.revoke_token(parts.store, owner, token_id))
    parts.recent.forget()
    return empty_answer(204)


def _add_token(parts: Parts, owner: str, label: str) -> access.NewToken:
    return access.add_token(
        parts.store,
        owner,
        label=label,
        token_bytes=secrets.token_bytes(access.TOKEN_BYTES),
        secret_key=parts.system.secret_key,
        now_ms=parts.now_ms(),
    )


def _tell_all(parts: Parts) -> None:
    """Tokens may count no more, entries may have begun or ceased to rest, and held runs may be free again."""
    parts.recent.forget()
    parts.hooks.wake()
    parts.hooks.arrivals.notify()
    parts.hooks.wake_jobs()


def _token_id(token: Token) -> str:
    return token.id


def _given(value: T | msgspec.UnsetType) -> T | None:
    return None if isinstance(value, msgspec.UnsetType) else value
