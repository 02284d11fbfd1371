"""Monitors as a store keeps them: facts beside the spec as text, and a cache of parsed specs."""

from __future__ import annotations

import msgspec

from paceline.core.monitors.definition import Monitor, MonitorSpec, parse_stored_spec


class StoredMonitor(msgspec.Struct, frozen=True, gc=False):
    """A definition as it is stored; its owner and id are its key."""

    generation: int
    revision: int
    text: str
    """The spec, by ``encode_spec``: equal specs have equal texts."""
    created_ms: int
    updated_ms: int

    def monitor(self, owner: str, monitor_id: str) -> Monitor:
        spec = read_spec(self.text)
        return Monitor(owner, monitor_id, self.generation, self.revision, spec, self.created_ms, self.updated_ms)


class _Specs:
    """Cache of specs by their text: a put, the change that follows it and every claim read the same text.

    It has two halves: when the young one is full it becomes the old one, so specs in use stay.
    """

    HALF_MAX = 8_192

    def __init__(self) -> None:
        self._young: dict[str, MonitorSpec] = {}
        self._old: dict[str, MonitorSpec] = {}

    def read(self, text: str) -> MonitorSpec:
        spec = self._young.get(text)
        if spec is None:
            spec = self._old.get(text) or parse_stored_spec(text)
            self.keep(text, spec)
        return spec

    def keep(self, text: str, spec: MonitorSpec) -> None:
        if len(self._young) >= self.HALF_MAX:
            self._old, self._young = self._young, {}
        self._young[text] = spec


_specs = _Specs()
read_spec = _specs.read
"""Return the spec of a stored text, parsed once."""
keep_spec = _specs.keep
"""Remember the spec of a text that is about to be read again."""
