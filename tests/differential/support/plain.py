"""Answers of a store as plain values that can be compared with those of another store.

Some numbers are a store's own: handles, sequence numbers, numbers of providers and generations. Handles and the like
are left out. A generation becomes ``g1``, ``g2``, ... in the order in which the store first showed it, because monitors
are made in the same order on both stores; likewise the name of a job becomes ``j1``.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from paceline.core.jobs.values import StoredJob
from paceline.errors import PacelineError

LEFT_OUT = frozenset({"handle", "seq", "place", "lease", "file_bytes", "dead_messages"})
"""Fields whose value is a store's own. Where they matter, the machine uses them as fences and compares what follows."""
LEFT_OUT_OF = {
    "ClaimedCall": frozenset({"provider"}),
    "StoredJob": frozenset({"number"}),
    "StoredMeasurement": frozenset({"number"}),
    "SetBack": frozenset({"runs", "sends"}),
    "Order": frozenset({"target"}),
    "Claimed": frozenset({"target"}),
    "Newcomer": frozenset({"record", "provider"}),
    "ProviderDefinition": frozenset({"number"}),
    "Batch": frozenset({"number"}),
    "Day": frozenset({"number", "cursor"}),
}
"""How many rows had to be pulled back depends on which times a store writes down; what may start then is compared.
``target`` is filled in by a store that knows it already."""
RUN = re.compile(r"#(\d+)@")


class Names:
    """Names for the generations and jobs of one store."""

    def __init__(self) -> None:
        self._generations: dict[int, str] = {}
        self._jobs: dict[str, str] = {}

    def generation(self, number: int) -> str:
        return self._generations.setdefault(number, f"g{len(self._generations) + 1}")

    def plain(self, value: Any) -> Any:
        """The value in lists, dictionaries and plain values."""
        if isinstance(value, StoredJob):
            self._jobs.setdefault(value.id, f"j{len(self._jobs) + 1}")
        if isinstance(value, msgspec.Struct):
            return self._fields(value, {name: getattr(value, name) for name in value.__struct_fields__})
        if isinstance(value, tuple) and hasattr(value, "_asdict"):
            return self._fields(value, value._asdict())
        if isinstance(value, PacelineError):
            return f"raised {type(value).__name__}: {self._text(str(value))}"
        if isinstance(value, Counter):
            return {key: count for key, count in sorted(value.items()) if count}
        if isinstance(value, Mapping):
            return {self.plain(key): self.plain(item) for key, item in value.items() if key != "number"}
        if isinstance(value, list | tuple | array):
            return [self.plain(item) for item in value]
        if isinstance(value, set | frozenset):
            return sorted((self.plain(item) for item in value), key=repr)
        return self._text(value) if isinstance(value, str) else value

    def _fields(self, value: object, fields: Mapping[str, Any]) -> dict[str, Any]:
        own = LEFT_OUT | LEFT_OUT_OF.get(type(value).__name__, frozenset())
        plain: dict[str, Any] = {"": type(value).__name__}
        for name, item in fields.items():
            if name == "generation" and isinstance(item, int):
                plain[name] = self.generation(item)
            elif name not in own:
                plain[name] = self.plain(item)
        return plain

    def _text(self, text: str) -> str:
        """Ids of runs have a generation in them, and ids of jobs a number."""
        for name, other in self._jobs.items():
            text = text.replace(name, other)
        return RUN.sub(lambda found: f"#{self.generation(int(found[1]))}@", text)
