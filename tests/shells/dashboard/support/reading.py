"""The text of a page as a person reads it, without a browser."""

from __future__ import annotations

import re
from html import unescape

from tests.shells.api.conftest import Client


def view_of(client: Client, path: str) -> str:
    """The HTML of the page's own part, without the frame."""
    answer = client("GET", path)
    assert answer.status == 200, (path, answer.body)
    return answer.body.decode().partition('<div id="view">')[2].partition('<div class="bulk toast"')[0]


def text_of(client: Client, path: str) -> str:
    """The text of the page's own part, in one line."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", view_of(client, path))).split())
