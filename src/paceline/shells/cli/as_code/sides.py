"""Sides of apply and export: the store, or another Paceline over REST."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, assert_never

import msgspec

from paceline.core.alerts.channel import ChannelBody
from paceline.core.as_code.declared import KINDS, OF_USERS, Kind, Name, defined
from paceline.core.batches.batch import batch_document
from paceline.core.batches.provider import provider_document
from paceline.core.monitors.definition import spec_document
from paceline.errors import PacelineError
from paceline.shells.api.documents import BulkAnswer
from paceline.shells.cli.imports import alone
from paceline.shells.cli.output import RemoteError
from paceline.steps import access
from paceline.steps.alerts import channels
from paceline.steps.batches import batches, deletion, providers
from paceline.steps.monitors import define
from paceline.steps.monitors.check_secrets import seal_put
from paceline.steps.views import alert_report
from paceline.steps.views.report import UserView
from paceline.steps.walk import walk

if TYPE_CHECKING:
    from paceline.core.monitors.values import PutMonitor
    from paceline.shells.cli.remote import Remote
    from paceline.wiring import System

BULK = 500
Document = dict[str, Any]
LISTS: dict[Kind, str] = {
    "provider": "/v1/providers",
    "batch": "/v1/batches",
    "channel": "/v1/users/{user}/channels",
    "monitor": "/v1/users/{user}/monitors",
}


class SideResult(NamedTuple):
    """Result of a put: its disposition, or why it was refused."""

    disposition: str = ""
    error: str = ""
    code: str = ""


class Side(Protocol):
    """Source and target of apply and export. Definitions are passed as documents."""

    def scopes(self) -> list[tuple[Kind, str]]:
        """Returns the kinds and users that may be read."""

    def there(self, kind: Kind, user: str) -> dict[str, Document]:
        """Returns definitions of one kind (and of one user, if users own them) by id, with secrets masked."""

    def put(self, puts: Sequence[tuple[Name, Document]]) -> list[SideResult]:
        """Creates or replaces definitions of one kind and user."""

    def remove(self, name: Name) -> SideResult: ...


class StoreSide:
    def __init__(self, system: System) -> None:
        self._system = system

    def scopes(self) -> list[tuple[Kind, str]]:
        users = [user.id for user in walk(self._system.store.users)]
        return _all_scopes(users, admin=True)

    def there(self, kind: Kind, user: str) -> dict[str, Document]:
        store = self._system.store
        match kind:
            case "provider":
                return {one.id: provider_document(one.spec) for one in walk(store.providers)}
            case "batch":
                return {one.id: batch_document(one.spec) for one in walk(store.batches) if one.deleting is None}
            case "channel":
                access.get_user(store, user)
                return {one.id: _shown(kind, one) for one in alert_report.channel_views(store, user)}
            case "monitor":
                access.get_user(store, user)
                return {one.id: spec_document(one.spec) for one in walk(partial(store.monitors, user))}
            case never:
                assert_never(never)

    def put(self, puts: Sequence[tuple[Name, Document]]) -> list[SideResult]:
        if puts and puts[0][0].kind == "monitor":
            return self._put_monitors(puts)
        return [_caught(partial(self._put_one, name, document)) for name, document in puts]

    def remove(self, name: Name) -> SideResult:
        return _caught(partial(self._remove, name))

    def _remove(self, name: Name) -> str:
        store, clock = self._system.store, self._system.clock
        match name.kind:
            case "provider":
                providers.remove_provider(store, name.id)
            case "batch":
                deletion.delete_all_of(store, name.id, read_ms=clock.now_ms, progress=lambda _: None)
            case "channel":
                channels.remove_channel(store, name.user, name.id)
            case "monitor":
                define.remove_monitor(store, name.user, name.id, now_ms=clock.now_ms())
            case never:
                assert_never(never)
        return "removed"

    def _put_one(self, name: Name, document: Document) -> str:
        system, now_ms = self._system, self._system.clock.now_ms()
        body = msgspec.json.encode(document)
        match name.kind:
            case "provider":
                return providers.put_provider(system.store, system.vault, name.id, body, now_ms=now_ms).disposition
            case "batch":
                return batches.put_batch(system.store, name.id, body, now_ms=now_ms).disposition
            case _:
                channel = msgspec.convert(document, ChannelBody)
                before = channels.channels_of(system.store, name.user, since_ms=0).get(name.id)
                put = channels.put_channel(system.store, system.vault, name.user, name.id, channel, now_ms=now_ms)
                return "created" if put.created else "unchanged" if put.channel == before else "replaced"

    def _put_monitors(self, puts: Sequence[tuple[Name, Document]]) -> list[SideResult]:
        system, limits = self._system, self._system.user_limits
        done: dict[Name, SideResult] = {}
        parsed: list[tuple[Name, PutMonitor]] = []
        for name, document in puts:
            try:
                put = define.parse_put(name.user, name.id, msgspec.json.encode(document), system.limits)
                parsed.append((name, seal_put(system.store, system.vault, put)))
            except PacelineError as error:
                done[name] = SideResult(error=error.detail, code=error.code)
        results = define.put_monitors(system.store, [put for _, put in parsed], **limits, now_ms=system.clock.now_ms())
        for (name, put), result in zip(parsed, results, strict=True):
            refused = define.put_error(result, put, **limits)
            done[name] = (
                SideResult(error=refused.detail, code=refused.code) if refused else SideResult(result.disposition)
            )
        return [done[name] for name, _ in puts]


class RestSide:
    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    def scopes(self) -> list[tuple[Kind, str]]:
        me = self._remote.get("/v1/users/{user}", UserView, user="me")
        if me.role != "admin":
            return _all_scopes([me.id], admin=False)
        return _all_scopes([user.id for user in self._remote.every("/v1/users", UserView)], admin=True)

    def there(self, kind: Kind, user: str) -> dict[str, Document]:
        views = self._remote.every(LISTS[kind], Document, **({"user": user} if user else {}))
        return {view["id"]: defined(kind, view) for view in views if view.get("deleting") is None}

    def put(self, puts: Sequence[tuple[Name, Document]]) -> list[SideResult]:
        if puts and puts[0][0].kind == "monitor":
            return [done for first in range(0, len(puts), BULK) for done in self._bulk(puts[first : first + BULK])]
        return [_caught(partial(self._put_one, name, document)) for name, document in puts]

    def remove(self, name: Name) -> SideResult:
        return _caught(partial(self._remove, name))

    def _remove(self, name: Name) -> str:
        path, names = _path(name)
        self._remote.ask("DELETE", path, Document, **names)  # removing a batch answers with its progress
        return "removed"

    def _put_one(self, name: Name, document: Document) -> str:
        path, names = _path(name)
        there = self._remote.find(path, Document, **names)
        put = self._remote.exchange("PUT", path, Document, body=document, **names)
        if there is None:
            return "created"
        return "unchanged" if there.view.get("updated_at") == put.view.get("updated_at") else "replaced"

    def _bulk(self, puts: Sequence[tuple[Name, Document]]) -> list[SideResult]:
        items = [{"id": name.id, **document} for name, document in puts]
        answer = self._remote.ask("PUT", LISTS["monitor"], BulkAnswer, body={"items": items}, user=puts[0][0].user)
        return [
            SideResult(one.disposition)
            if (error := alone(index, one.error)) is None
            else SideResult(error=error.detail, code=error.code)
            for index, one in enumerate(answer.items)
        ]


def _all_scopes(users: Iterable[str], *, admin: bool) -> list[tuple[Kind, str]]:
    shared: list[tuple[Kind, str]] = [(kind, "") for kind in KINDS if kind not in OF_USERS and admin]
    return shared + [(kind, user) for user in users for kind in KINDS if kind in OF_USERS]


def _path(name: Name) -> tuple[str, dict[str, Any]]:
    return f"{LISTS[name.kind]}/{{id}}", {"id": name.id} | ({"user": name.user} if name.user else {})


def _shown(kind: Kind, view: Any) -> Document:
    return defined(kind, msgspec.to_builtins(view))


def _caught(act: Callable[[], str]) -> SideResult:
    """Calls ``act``. Returns its disposition, or its error as a value."""
    try:
        return SideResult(act())
    except (PacelineError, RemoteError) as error:
        return SideResult(error=error.detail, code=error.code)
