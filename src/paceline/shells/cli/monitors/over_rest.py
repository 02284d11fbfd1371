"""Edits of monitors over REST."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paceline.shells.cli.monitors.document import MonitorOptions, document_of, patch_of
from paceline.steps.views.report import MonitorView

if TYPE_CHECKING:
    from paceline.shells.cli.remote import Remote

MONITORS_PATH = "/v1/users/{user}/monitors"
MONITOR_PATH = f"{MONITORS_PATH}/{{id}}"


def set_over_rest(remote: Remote, owner: str, monitor_id: str, options: MonitorOptions) -> tuple[str, MonitorView]:
    """Creates the monitor if it does not exist, else edits the stored one, so that no concurrent edit is lost.

    Returns the disposition and the monitor as it is now.
    """
    from paceline.shells.cli.remote import edit

    places: dict[str, Any] = {"user": owner, "id": monitor_id}

    def attempt() -> tuple[str, MonitorView]:
        if options.names_check and remote.find(MONITOR_PATH, MonitorView, **places) is None:
            new, guard = document_of(options), {"If-None-Match": "*"}
            return "created", remote.ask("PUT", MONITOR_PATH, MonitorView, body=new, headers=guard, **places)
        there = remote.exchange("GET", MONITOR_PATH, MonitorView, **places)
        patch, guard = patch_of(options, there.view.check), {"If-Match": there.etag or "*"}
        edited = remote.exchange("PATCH", MONITOR_PATH, MonitorView, body=patch, headers=guard, **places)
        return "unchanged" if edited.etag == there.etag else "replaced", edited.view

    return edit(attempt)
