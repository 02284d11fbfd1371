"""Providers: put, read, pause, resume, remove."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

from paceline.core.provider import ProviderDefinition
from paceline.errors import RevisionMismatch
from paceline.ports import ProviderPut
from paceline.shells.api.answers import Answer, Header, empty_answer, json_answer
from paceline.shells.api.etags import NO_GUARD, etag_of, expected_revision, guard_of, matches
from paceline.shells.api.monitors import TRIES_MAX
from paceline.shells.api.pages import Page, make_cursor, page_query, position_of
from paceline.shells.api.parts import Call, Parts
from paceline.steps import providers
from paceline.steps.report import ProviderView, provider_view


async def put_provider(call: Call) -> Answer:
    parts, provider_id = call.parts, call.params["provider"]
    put = await parts.write(lambda: _put_now(call, provider_id))
    parts.hooks.wake()
    assert put.provider is not None
    if put.disposition != "created":
        return await _shown(parts, 200, put.provider)
    path = f"/v1/providers/{quote(provider_id, safe='')}"
    return await _shown(parts, 201, put.provider, (b"location", path.encode()))


async def show_provider(call: Call) -> Answer:
    provider = providers.get_provider(call.parts.store, call.params["provider"])
    seen = guard_of(call.headers).if_none_match
    if seen is not None and matches(seen, provider, weak=True):
        return empty_answer(304, (b"etag", etag_of(provider).encode()))
    return await _shown(call.parts, 200, provider)


async def list_providers(call: Call) -> Answer:
    parts = call.parts
    query = page_query(call.query_string, limit_max=parts.system.settings.page_max)
    after = str(position_of(query.cursor, "providers", ""))
    views, more = await asyncio.to_thread(_page, parts, after=after, limit=query.limit)
    return json_answer(200, Page(views, make_cursor("providers", views[-1].id) if more else None))


async def pause_provider(call: Call) -> Answer:
    return await _set_paused(call, paused=True)


async def resume_provider(call: Call) -> Answer:
    return await _set_paused(call, paused=False)


async def remove_provider(call: Call) -> Answer:
    parts, provider_id = call.parts, call.params["provider"]
    await parts.write(lambda: providers.remove_provider(parts.store, provider_id))
    return empty_answer(204)


def _put_now(call: Call, provider_id: str) -> ProviderPut:
    """In the writing thread. The guard is judged on what is there now, and written only onto that."""
    parts, guard = call.parts, guard_of(call.headers)
    for _ in range(TRIES_MAX):
        now = parts.store.provider(provider_id) if guard is not NO_GUARD else None
        expected = expected_revision(guard, now, provider_id, word="provider")
        try:
            return providers.put_provider(
                parts.store,
                parts.system.vault,
                provider_id,
                call.body,
                expected_revision=expected,
                now_ms=parts.now_ms(),
            )
        except RevisionMismatch:
            continue
    raise RevisionMismatch(f"Provider {provider_id!r} is being changed by others all the time. Try again.")


async def _set_paused(call: Call, *, paused: bool) -> Answer:
    parts, provider_id = call.parts, call.params["provider"]
    put = await parts.write(
        lambda: providers.set_provider_paused(parts.store, provider_id, paused=paused, now_ms=parts.now_ms())
    )
    parts.hooks.wake()
    assert put.provider is not None
    return await _shown(parts, 200, put.provider)


def _page(parts: Parts, *, after: str, limit: int) -> tuple[list[ProviderView], bool]:
    found = parts.store.providers(after=after, limit=limit + 1)
    return [provider_view(parts.store, one, now_ms=parts.now_ms()) for one in found[:limit]], len(found) > limit


async def _shown(parts: Parts, status: int, provider: ProviderDefinition, *headers: Header) -> Answer:
    view = await asyncio.to_thread(provider_view, parts.store, provider, now_ms=parts.now_ms())
    return json_answer(status, view, (b"etag", etag_of(provider).encode()), *headers)
