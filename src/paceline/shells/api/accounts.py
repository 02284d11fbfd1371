"""Routes of accounts and their keys. A change counts from the next decision on; a key's secret is never shown."""

from __future__ import annotations

from typing import Literal
from urllib.parse import quote

from paceline.core.jobs.values import AccountSpec
from paceline.errors import AlreadyExists, AtlasUnavailable
from paceline.ports import Atlas
from paceline.shells.api.documents import KeyPatchBody, NewKeyBody
from paceline.shells.api.http.answers import ApiAnswer, empty_answer, json_answer
from paceline.shells.api.http.context import ApiCall
from paceline.shells.api.http.etags import NO_GUARD, check_guard, etag_header, guard_of, not_modified
from paceline.shells.api.http.pages import page_by_id, query, truth
from paceline.shells.api.http.route import READ_HEADERS, RouteGroup
from paceline.steps.edit import edit, unless_changed
from paceline.steps.jobs import accounts
from paceline.steps.views import account_report

ACCOUNTS = RouteGroup("Accounts", access="admin")
_ACCOUNT = "/v1/accounts/{account}"
_KEY = f"{_ACCOUNT}/keys/{{key_id}}"


@ACCOUNTS.put(_ACCOUNT, account_report.AccountView, document="AccountSpec")
async def put_account(call: ApiCall) -> ApiAnswer:
    """Creates the account (201) or replaces its limits (200)."""
    api, account_id = call.api, call.params["account"]
    done = await api.write(lambda: _put_now(call, account_id))
    api.hooks.wake_jobs()
    view = await _view(call)
    if done != "created":
        return json_answer(200, view, etag_header(_spec(view)))
    return json_answer(
        201, view, etag_header(_spec(view)), (b"location", f"/v1/accounts/{quote(account_id, safe='')}".encode())
    )


@ACCOUNTS.get_page("/v1/accounts", account_report.AccountView)
async def list_accounts(call: ApiCall) -> ApiAnswer:
    """All accounts in order of id, with usage, state and reason."""
    views = await call.api.work(account_report.account_views, call.api.store, now_ms=call.api.now_ms())
    return json_answer(200, page_by_id(views, call.page(), "accounts"))


@ACCOUNTS.get(_ACCOUNT, account_report.AccountView, headers=READ_HEADERS)
async def show_account(call: ApiCall) -> ApiAnswer:
    """The account with usage, state, reason and keys."""
    view = await _view(call)
    return not_modified(call.headers, _spec(view)) or json_answer(200, view, etag_header(_spec(view)))


@ACCOUNTS.post(
    f"{_ACCOUNT}/keys",
    {201: account_report.AddedKeyView},
    body=NewKeyBody,
    query=("check",),
    waits=True,
    problems=(AlreadyExists, AtlasUnavailable),
)
async def add_key(call: ApiCall) -> ApiAnswer:
    """Tries the key at RIPE and adds it; its secret is never shown."""
    body: NewKeyBody = call.body
    api, account_id = call.api, call.params["account"]

    def add(atlas: Atlas | None) -> accounts.CheckedKey:
        return accounts.check_and_add_key(
            api.store,
            api.system.vault,
            atlas,
            account_id,
            body.key,
            label=body.label,
            now_ms=api.now_ms(),
        )

    if truth(query(call.query_string, "check"), "check", default=True):
        key, unverified = await api.reads.ask(call.user.id, add)
    else:
        key, unverified = await api.write(lambda: add(None))
    api.hooks.wake_jobs()
    path = f"/v1/accounts/{quote(account_id, safe='')}/keys/{key.id}"
    return json_answer(201, account_report.added_key_view(key, unverified), (b"location", path.encode()))


@ACCOUNTS.get(_KEY, account_report.KeyView)
async def show_key(call: ApiCall) -> ApiAnswer:
    """The key without its secret."""
    account_id, key_id = call.params["account"], call.params["key_id"]
    return json_answer(200, await call.api.read(account_report.find_key_view, call.api.store, account_id, key_id))


@ACCOUNTS.patch(_KEY, account_report.KeyView, body=KeyPatchBody)
async def edit_key(call: ApiCall) -> ApiAnswer:
    """Disables or enables the key; an enabled key is tried again."""
    body: KeyPatchBody = call.body
    api, account_id, key_id = call.api, call.params["account"], call.params["key_id"]
    key = await api.write(lambda: accounts.set_key_enabled(api.store, account_id, key_id, enabled=body.enabled))
    api.hooks.wake_jobs()
    return json_answer(200, account_report.key_view(key))


@ACCOUNTS.delete(_KEY)
async def remove_key(call: ApiCall) -> ApiAnswer:
    """Removes the key with its sealed secret."""
    api, account_id, key_id = call.api, call.params["account"], call.params["key_id"]
    await api.write(lambda: accounts.remove_key(api.store, account_id, key_id))
    api.hooks.wake_jobs()
    return empty_answer(204)


def _put_now(call: ApiCall, account_id: str) -> Literal["created", "replaced", "unchanged"]:
    """Puts the account if the stored one satisfies the conditional headers. Runs in a writing thread."""
    api, guard = call.api, guard_of(call.headers)
    if guard is NO_GUARD:
        return accounts.put_account(api.store, account_id, call.body)

    def attempt() -> Literal["created", "replaced", "unchanged"] | None:
        seen = accounts.see_account(api.store, account_id, now_ms=api.now_ms())
        check_guard(guard, seen.spec, account_id, word="account")
        return unless_changed(lambda: accounts.put_account(api.store, account_id, call.body, seen=seen))

    return edit(f"Account {account_id!r}", attempt)


def _spec(view: account_report.AccountView) -> AccountSpec:
    return AccountSpec(view.concurrent, view.daily_results, view.daily_credits, view.enabled)


async def _view(call: ApiCall) -> account_report.AccountView:
    api = call.api
    return await api.work(account_report.account_view, api.store, call.params["account"], now_ms=api.now_ms())
