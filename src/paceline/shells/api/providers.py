"""Routes of providers: put, read, pause, resume, remove."""

from __future__ import annotations

from urllib.parse import quote

from paceline.core.batches.provider import ProviderDefinition
from paceline.core.batches.values import ProviderPut
from paceline.errors import AlreadyExists
from paceline.shells import lists
from paceline.shells.api.http.answers import ApiAnswer, Header, empty_answer, json_answer
from paceline.shells.api.http.context import ApiCall, ApiContext
from paceline.shells.api.http.etags import etag_header, guard_of, not_modified, put_guarded
from paceline.shells.api.http.pages import truth
from paceline.shells.api.http.route import READ_HEADERS, RouteGroup
from paceline.shells.lists import ListPage
from paceline.steps.batches import providers
from paceline.steps.views.report import ProviderView, provider_view, with_latencies

PROVIDERS = RouteGroup("Providers", access="admin")
_PROVIDER = "/v1/providers/{provider}"


@PROVIDERS.put(_PROVIDER, ProviderView, document="ProviderSpec")
async def put_provider(call: ApiCall) -> ApiAnswer:
    """Creates the provider (201) or replaces it (200)."""
    api, provider_id = call.api, call.params["provider"]

    def put(expected: int | None) -> ProviderPut:
        vault, now_ms = api.system.vault, api.now_ms()
        return providers.put_provider(
            api.store, vault, provider_id, call.body, expected_revision=expected, now_ms=now_ms
        )

    guard = guard_of(call.headers)
    done = await api.write(
        lambda: put_guarded(guard, "provider", provider_id, read=lambda: api.store.provider(provider_id), put=put)
    )
    api.hooks.wake()
    assert done.provider is not None
    if done.disposition != "created":
        return await _shown(api, 200, done.provider)
    path = f"/v1/providers/{quote(provider_id, safe='')}"
    return await _shown(api, 201, done.provider, (b"location", path.encode()))


@PROVIDERS.get(_PROVIDER, ProviderView, headers=READ_HEADERS)
async def show_provider(call: ApiCall) -> ApiAnswer:
    """The provider with its standing."""
    provider = await call.api.read(providers.get_provider, call.api.store, call.params["provider"])
    return not_modified(call.headers, provider) or await _shown(call.api, 200, provider)


@PROVIDERS.delete(_PROVIDER, problems=(AlreadyExists,))
async def remove_provider(call: ApiCall) -> ApiAnswer:
    """Removes a provider, unless a record or a run names it."""
    api, provider_id = call.api, call.params["provider"]
    await api.write(lambda: providers.remove_provider(api.store, provider_id))
    return empty_answer(204)


@PROVIDERS.post(f"{_PROVIDER}/pause", ProviderView)
async def pause_provider(call: ApiCall) -> ApiAnswer:
    """Pauses the provider: nothing more of it starts."""
    return await _set_paused(call, paused=True)


@PROVIDERS.post(f"{_PROVIDER}/resume", ProviderView)
async def resume_provider(call: ApiCall) -> ApiAnswer:
    """Resumes the provider; it catches up at a limited pace."""
    return await _set_paused(call, paused=False)


@PROVIDERS.get_page("/v1/providers", ProviderView, query=("figures",))
async def list_providers(call: ApiCall) -> ApiAnswer:
    """All providers in order of id."""
    api, asked = call.api, call.page("figures")
    page = await api.listed(asked, lists.list_providers)
    if truth(asked.given, "figures", default=False):
        page = ListPage(await api.work(with_latencies, api.store, page.items), page.next_cursor)
    return json_answer(200, page)


async def _set_paused(call: ApiCall, *, paused: bool) -> ApiAnswer:
    api, provider_id = call.api, call.params["provider"]
    put = await api.write(
        lambda: providers.set_provider_paused(api.store, provider_id, paused=paused, now_ms=api.now_ms())
    )
    api.hooks.wake()
    assert put.provider is not None
    return await _shown(api, 200, put.provider)


async def _shown(api: ApiContext, status: int, provider: ProviderDefinition, *headers: Header) -> ApiAnswer:
    view = await api.work(provider_view, api.store, provider, now_ms=api.now_ms())
    return json_answer(status, view, etag_header(provider), *headers)
