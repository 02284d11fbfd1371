"""One request of a RIPE client, as the handler gets it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeVar
from urllib.parse import quote

from starlette.types import Receive

from paceline.core.users import User
from paceline.errors import Throttled, Unauthenticated
from paceline.shells.api.http.context import ApiContext
from paceline.shells.ripe_api.keys import GRANT, page_grant
from paceline.shells.ripe_api.known_probes import KnownProbes

PLACE_WAIT_S = 10.0
LOOK_S = 0.2
T = TypeVar("T")
_HOST = re.compile(r"[A-Za-z0-9.:\[\]_-]{1,255}")


async def wait_for_place(act: Callable[[], Awaitable[T]]) -> T:
    """Retries while all places for reads from RIPE are taken: RIPE's own clients give up at a 429."""
    until_s = time.monotonic() + PLACE_WAIT_S
    while True:
        try:
            return await act()
        except Throttled:
            if time.monotonic() >= until_s:
                raise
        await asyncio.sleep(LOOK_S)


class CompatibleCall(NamedTuple):
    """A request. ``part``: the id or type in the path, or empty. ``user`` is None if no key was sent."""

    api: ApiContext
    user: User | None
    method: str
    path: str
    part: str
    scheme: str
    headers: Mapping[bytes, bytes]
    query: Mapping[str, str]
    receive: Receive
    probes: KnownProbes

    @property
    def owner(self) -> str:
        """The user's id. Raises Unauthenticated if no key was sent."""
        if self.user is None:
            raise Unauthenticated('Send your token as the key: the header "Authorization: Key <token>".')
        return self.user.id

    @property
    def owner_or_nobody(self) -> str:
        """The user's id, or empty without a key: some parts of RIPE's clients send none and expect no error."""
        return "" if self.user is None else self.user.id

    @property
    def base_url(self) -> str:
        """Scheme and host as the client sent them; empty if the host is not valid."""
        host = self.headers.get(b"host", b"").decode("latin-1")
        return f"{self.scheme}://{host}" if _HOST.fullmatch(host) else ""

    def page_url(self, page: int) -> str:
        """Returns the link to a page of the list. Instead of a key, its query has a grant that expires."""
        query = {name: value for name, value in self.query.items() if name not in ("page", "key", GRANT)}
        query["page"] = str(page)
        if grant := page_grant(self.api, self.user, self.headers, path=self.path):
            query[GRANT] = grant
        text = "&".join(f"{quote(name)}={quote(value, safe=',')}" for name, value in query.items())
        return f"{self.base_url}{self.path}?{text}"
