"""Downloads a file over HTTP, with the guard on every socket, also after a redirect."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

import pycurl

from paceline.adapters.providers.authorities import find_authorities
from paceline.adapters.providers.faults import fault_words
from paceline.adapters.providers.guard import AddressGuard, Network
from paceline.adapters.providers.transfer import Transfer
from paceline.core.targets import url_problem
from paceline.errors import InvalidInput

TIMEOUT = "6h"
SILENCE_S_MAX = 60
"""A server that sends nothing for this long is given up."""
REDIRECTS_MAX = 5


def download(
    url: str, into: BinaryIO, *, allow: Sequence[Network], bytes_max: int, ca_file: Path | None = None
) -> None:
    """Write the unpacked answer of the URL into the file.

    Raises InvalidInput, with the reason, if it cannot be read.
    """
    if detail := url_problem(url):
        raise InvalidInput(f"{url[:200]} cannot be read: {detail}.")
    transfer = Transfer(AddressGuard(allow), find_authorities(ca_file), [])
    with closing(transfer.curl) as curl:
        transfer.aim(url, TIMEOUT)
        left = bytes_max

        def take(piece: bytes) -> int | None:
            nonlocal left
            left -= len(piece)
            if left < 0:
                return 0
            into.write(piece)
            return None

        curl.setopt(pycurl.WRITEFUNCTION, take)
        curl.setopt(pycurl.FOLLOWLOCATION, 1)
        curl.setopt(pycurl.MAXREDIRS, REDIRECTS_MAX)
        curl.setopt(pycurl.LOW_SPEED_LIMIT, 1)
        curl.setopt(pycurl.LOW_SPEED_TIME, SILENCE_S_MAX)
        curl.setopt(pycurl.FAILONERROR, 1)
        try:
            curl.perform()
        except pycurl.error as error:
            raise InvalidInput(f"{url[:200]} cannot be read: {_words(transfer, error.args[0], left)}.") from None


def _words(transfer: Transfer, error: int, left: int) -> str:
    if left < 0:
        return "it is too large"
    if error == pycurl.E_HTTP_RETURNED_ERROR:
        return f"it answers with status {transfer.curl.getinfo(pycurl.RESPONSE_CODE)}"
    if error == pycurl.E_TOO_MANY_REDIRECTS:
        return f"it redirects more than {REDIRECTS_MAX} times"
    return fault_words(transfer, error, timeout=TIMEOUT)
