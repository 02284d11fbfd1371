"""One request of a RIPE client, as its handler sees it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeVar
from urllib.parse import quote

from starlette.types import Receive

from paceline.errors import Throttled, Unauthenticated
from paceline.ports import User
from paceline.shells.api.parts import Parts
from paceline.shells.ripe_api.keys import GRANT, page_grant
from paceline.shells.ripe_api.known_probes import KnownProbes

PATIENCE_S = 10.0
LOOK_S = 0.2
T = TypeVar("T")
_HOST = re.compile(r"[A-Za-z0-9.:\[\]_-]{1,255}")


async def patiently(act: Callable[[], Awaitable[T]]) -> T:
    """Wait for a place among the reads from RIPE for a while: clients of RIPE's end at 429, after they have paid."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await act()
        except Throttled:
            if time.monotonic() >= until_s:
                raise
        await asyncio.sleep(LOOK_S)


class Call(NamedTuple):
    """``part`` is what the path names: an id, a type, or nothing. ``user`` None: no key was sent."""

    parts: Parts
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
        """Whose measurements are meant; Unauthenticated without a key."""
        if self.user is None:
            raise Unauthenticated('Send your token as the key: the header "Authorization: Key <token>".')
        return self.user.id

    @property
    def owner_or_nobody(self) -> str:
        """Without a key there is nothing to be seen, and no error: some parts of RIPE's clients send none."""
        return "" if self.user is None else self.user.id

    @property
    def base_url(self) -> str:
        """As the client called us; it follows links by their path alone."""
        host = self.headers.get(b"host", b"").decode("latin-1")
        return f"{self.scheme}://{host}" if _HOST.fullmatch(host) else ""

    def page_url(self, page: int) -> str:
        """A key that came in the query does not go into a link; what stands for it does, for a while."""
        query = {name: value for name, value in self.query.items() if name not in ("page", "key", GRANT)}
        query["page"] = str(page)
        if grant := page_grant(self.parts, self.user, self.headers, path=self.path):
            query[GRANT] = grant
        text = "&".join(f"{quote(name)}={quote(value, safe=',')}" for name, value in query.items())
        return f"{self.base_url}{self.path}?{text}"
