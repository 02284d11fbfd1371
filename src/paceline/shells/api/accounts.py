"""Accounts and their keys. What is changed here counts from the next decision on; a key's secret is never shown."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Literal
from urllib.parse import quote

from paceline.errors import RevisionMismatch
from paceline.ports import AccountSpec, Atlas
from paceline.shells.api.answers import Answer, empty_answer, json_answer
from paceline.shells.api.documents import KeyPatchBody, NewKeyBody
from paceline.shells.api.etags import NO_GUARD, check_guard, etag_of, guard_of
from paceline.shells.api.jobs import truth
from paceline.shells.api.monitors import TRIES_MAX
from paceline.shells.api.pages import Page, make_cursor, page_query, position_of, query
from paceline.shells.api.parts import Call
from paceline.steps import accounts
from paceline.steps.account_report import (
    AccountView,
    account_view,
    account_views,
    added_key_view,
    find_key_view,
    key_view,
)


async def put_account(call: Call) -> Answer:
    parts, account_id = call.parts, call.params["account"]
    done = await parts.write(lambda: _put_now(call, account_id))
    parts.hooks.wake_jobs()
    view = await _view(call)
    if done != "created":
        return json_answer(200, view, _etag(view))
    return json_answer(201, view, _etag(view), (b"location", f"/v1/accounts/{quote(account_id, safe='')}".encode()))


async def show_account(call: Call) -> Answer:
    view = await _view(call)
    return json_answer(200, view, _etag(view))


async def list_accounts(call: Call) -> Answer:
    parts = call.parts
    asked = page_query(call.query_string, limit_max=parts.system.settings.page_max)
    after = str(position_of(asked.cursor, "accounts", ""))
    views = await asyncio.to_thread(account_views, parts.store, now_ms=parts.now_ms())
    found = [view for view in views if view.id > after]
    cursor = make_cursor("accounts", found[asked.limit - 1].id) if len(found) > asked.limit else None
    return json_answer(200, Page(found[: asked.limit], cursor))


async def add_key(call: Call) -> Answer:
    body: NewKeyBody = call.body
    parts, account_id = call.parts, call.params["account"]

    def add(atlas: Atlas | None) -> accounts.CheckedKey:
        return accounts.check_and_add_key(
            parts.store,
            parts.system.vault,
            atlas,
            account_id,
            body.key,
            label=body.label,
            now_ms=parts.now_ms(),
        )

    if truth(query(call.query_string, "check"), "check", default=True):
        key, unverified = await parts.reads.ask(call.user.id, add)
    else:
        key, unverified = await parts.write(lambda: add(None))
    parts.hooks.wake_jobs()
    path = f"/v1/accounts/{quote(account_id, safe='')}/keys/{key.id}"
    return json_answer(201, added_key_view(key, unverified), (b"location", path.encode()))


async def show_key(call: Call) -> Answer:
    return json_answer(200, find_key_view(call.parts.store, call.params["account"], call.params["key_id"]))


async def edit_key(call: Call) -> Answer:
    body: KeyPatchBody = call.body
    parts, account_id, key_id = call.parts, call.params["account"], call.params["key_id"]
    key = await parts.write(lambda: accounts.set_key_enabled(parts.store, account_id, key_id, enabled=body.enabled))
    parts.hooks.wake_jobs()
    return json_answer(200, key_view(key))


async def remove_key(call: Call) -> Answer:
    parts, account_id, key_id = call.parts, call.params["account"], call.params["key_id"]
    await parts.write(lambda: accounts.remove_key(parts.store, account_id, key_id))
    parts.hooks.wake_jobs()
    return empty_answer(204)


def _put_now(call: Call, account_id: str) -> Literal["created", "replaced", "unchanged"]:
    """In the writing thread. The guard is judged on what is there now, and written only onto that."""
    parts, guard = call.parts, guard_of(call.headers)
    if guard is NO_GUARD:
        return accounts.put_account(parts.store, account_id, call.body)
    for _ in range(TRIES_MAX):
        seen = accounts.see_account(parts.store, account_id, now_ms=parts.now_ms())
        check_guard(guard, seen.spec, account_id, word="account")
        with suppress(RevisionMismatch):
            return accounts.put_account(parts.store, account_id, call.body, seen=seen)
    raise RevisionMismatch(f"Account {account_id!r} is being changed by others all the time. Try again.")


def _etag(view: AccountView) -> tuple[bytes, bytes]:
    spec = AccountSpec(view.concurrent, view.daily_results, view.daily_credits, view.enabled)
    return b"etag", etag_of(spec).encode()


async def _view(call: Call) -> AccountView:
    parts = call.parts
    return await asyncio.to_thread(account_view, parts.store, call.params["account"], now_ms=parts.now_ms())
