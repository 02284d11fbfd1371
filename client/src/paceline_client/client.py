"""``Client`` and ``AsyncClient``: every operation of the REST API, grouped by subject."""

from __future__ import annotations

import os
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Self, TypeVar

import httpx

from paceline_client.calls import Described, Transport
from paceline_client.durations import DurationLike, seconds
from paceline_client.resources.accounts import Accounts, Keys
from paceline_client.resources.batches import Batches, Providers
from paceline_client.resources.channels import Alerts, Channels, Silences
from paceline_client.resources.jobs import Jobs
from paceline_client.resources.monitors import Monitors
from paceline_client.resources.outgoing import Outgoing, Runs
from paceline_client.resources.records import Days, DeadLetters, Records
from paceline_client.resources.service import Schedulers, Service
from paceline_client.resources.users import Tokens, Users
from paceline_client.retries import TRIES_DEFAULT, Retries
from paceline_client.transport import AsyncTransport, Connection, SyncTransport

T = TypeVar("T")
URL_DEFAULT = "http://127.0.0.1:8080"
TIMEOUT_DEFAULT = "30s"


class Operations(Service[Transport]):
    """All resources over one transport. Operations of the service itself are its own methods."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self.monitors = Monitors(transport)
        self.channels = Channels(transport)
        self.silences = Silences(transport)
        self.alerts = Alerts(transport)
        self.outgoing = Outgoing(transport)
        self.runs = Runs(transport)
        self.providers = Providers(transport)
        self.batches = Batches(transport)
        self.records = Records(transport)
        self.days = Days(transport)
        self.dead = DeadLetters(transport)
        self.jobs = Jobs(transport)
        self.accounts = Accounts(transport)
        self.keys = Keys(transport)
        self.users = Users(transport)
        self.tokens = Tokens(transport)
        self.schedulers = Schedulers(transport)

    @classmethod
    def _over(cls, transport: Transport) -> Self:
        """Returns a client over an existing transport."""
        client = cls.__new__(cls)
        Operations.__init__(client, transport)
        return client

    @property
    def connection(self) -> Connection:
        """Address of the service, token, and options."""
        return self._transport.connection


class Client(Operations[SyncTransport]):
    """A client whose methods return when the answer has come. May be shared by threads.

    ``url`` and ``token`` default to ``PACELINE_URL`` and ``PACELINE_TOKEN``. ``timeout`` is for each try of a request:
    to connect, and then between two pieces of the answer. ``tries``: how often a request is sent at most, if it is safe
    to repeat. ``ca_file``: certificates to trust instead of the usual ones. ``transport``: replaces the network, as
    ``paceline.testing`` does.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: DurationLike | float = TIMEOUT_DEFAULT,
        tries: int = TRIES_DEFAULT,
        ca_file: str | Path | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        connection = _connection(url, token, timeout=timeout, tries=tries, ca_file=ca_file)
        http = httpx.Client(**connection.options, transport=transport)
        super().__init__(SyncTransport(connection, http))

    def with_options(self, *, timeout: DurationLike | float | None = None, tries: int | None = None) -> Self:
        """Returns a client on the same connections, with another timeout or number of tries."""
        return self._over(self._transport.over(_with_options(self.connection, timeout, tries)))

    def run(self, described: Described[T]) -> T:
        """Does a call that is described elsewhere, such as one whose answer is read into other models."""
        return self._transport.run(described)

    def close(self) -> None:
        """Closes the connections."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(Operations[AsyncTransport]):
    """Like ``Client``, with coroutines and ``async for``. Belongs to one event loop."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: DurationLike | float = TIMEOUT_DEFAULT,
        tries: int = TRIES_DEFAULT,
        ca_file: str | Path | None = None,
    ) -> None:
        super().__init__(AsyncTransport(_connection(url, token, timeout=timeout, tries=tries, ca_file=ca_file)))

    @classmethod
    def over(cls, connection: Connection) -> Self:
        """Returns a client for the same service as another client's."""
        return cls._over(AsyncTransport(connection))

    def with_options(self, *, timeout: DurationLike | float | None = None, tries: int | None = None) -> Self:
        """Returns a client on the same connections, with another timeout or number of tries."""
        return self._over(self._transport.over(_with_options(self.connection, timeout, tries)))

    async def close(self) -> None:
        """Closes the connections."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _connection(
    url: str | None, token: str | None, *, timeout: DurationLike | float, tries: int, ca_file: str | Path | None
) -> Connection:
    address = url or os.environ.get("PACELINE_URL") or URL_DEFAULT
    if not address.startswith(("http://", "https://")):
        raise ValueError(f"{address!r} is no address of a service; write http://… or https://…")
    secret = token if token is not None else os.environ.get("PACELINE_TOKEN")
    if not secret:
        raise ValueError("give a token, or set PACELINE_TOKEN")
    if tries < 1:
        raise ValueError("tries is at least 1")
    return Connection(
        url=address.rstrip("/"),
        token=secret,
        timeout_s=seconds(timeout),
        verify=True if ca_file is None else ssl.create_default_context(cafile=str(ca_file)),
        retries=replace(Retries(), tries_max=tries),
    )


def _with_options(connection: Connection, timeout: DurationLike | float | None, tries: int | None) -> Connection:
    return connection.with_options(None if timeout is None else seconds(timeout), tries)
