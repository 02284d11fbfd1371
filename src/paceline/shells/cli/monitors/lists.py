"""Lists of ``paceline monitor list``: filtered and sorted, from the store or over REST."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, NamedTuple

from paceline.core.monitors.lists.query import parse_query
from paceline.shells.cli.monitors.over_rest import MONITORS_PATH
from paceline.shells.cli.options import PageOptions, flag, option
from paceline.shells.lists import ListPage, list_monitors
from paceline.steps.views.report import MonitorView

if TYPE_CHECKING:
    from paceline.shells.cli.remote import Remote
    from paceline.wiring import System

Page = ListPage[MonitorView]
PAGES_MAX = 10_000


class ListOptions(NamedTuple):
    """Filters and order of ``monitor list``; None for an option that was not given."""

    tag: Annotated[str | None, option("TAG", "Only those with this tag.")] = None
    health: Annotated[str | None, option("ok|failing|late|paused|new", "Only those with this health.")] = None
    kind: Annotated[str | None, option("http|tcp|dns|tls|outgoing", "Only those with this kind of check.")] = None
    search: Annotated[str | None, option("TEXT", "Part of the id or of the address; case does not matter.")] = None
    sort: Annotated[str | None, option("id|health|next_due", "Order of the list. [default: id]")] = None
    all_users: Annotated[bool, flag("--all-users", "The monitors of all users.")] = False

    def asked(self) -> dict[str, str | None]:
        """Returns the filters under their names in the API."""
        return {"tag": self.tag, "health": self.health, "kind": self.kind, "q": self.search, "sort": self.sort}


def list_on_store(
    system: System, owner: str | None, filters: ListOptions, page: PageOptions
) -> tuple[str | None, Page]:
    """Returns the owner (None: all users) and a page of the monitors."""
    query = parse_query(owner=owner, **filters.asked())
    return owner, _filled(lambda part: list_monitors(system, query, part), page)


def list_over_rest(
    remote: Remote, owner: str | None, filters: ListOptions, page: PageOptions
) -> tuple[str | None, Page]:
    path, names = ("/v1/monitors", {}) if owner is None else (MONITORS_PATH, {"user": owner})
    asked = filters.asked()
    return owner, _filled(lambda part: remote.page(path, MonitorView, part, query=asked, **names), page)


def again(owner: str | None, filters: ListOptions) -> str:
    """Returns the options that continue the list."""
    given = [f"--{name} {shlex.quote(value)}" for name, value in filters._asdict().items() if isinstance(value, str)]
    return " ".join(["--all-users" if owner is None else f"--user {owner}", *given])


def _filled(read: Callable[[PageOptions], Page], page: PageOptions) -> Page:
    """Reads further pages while they are short, up to the limit."""
    found, cursor = list[MonitorView](), page.cursor
    for _ in range(PAGES_MAX):
        part = read(PageOptions(page.limit - len(found), cursor))
        found, cursor = [*found, *part.items], part.next_cursor
        if cursor is None or len(found) == page.limit:
            break
    return ListPage(found, cursor)
