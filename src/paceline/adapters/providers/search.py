"""Search for texts in an answer's body while it arrives, so that the body need not be kept."""

from __future__ import annotations

from collections.abc import Iterable


class StreamSearch:
    """Looks for byte strings in pieces of a stream, also across the borders of pieces."""

    __slots__ = ("_missing", "_overlap", "_tail")

    def __init__(self, needles: Iterable[bytes]) -> None:
        self._missing = {needle for needle in needles if needle}
        self._overlap = max((len(needle) for needle in self._missing), default=1) - 1
        self._tail = b""

    def feed(self, piece: bytes) -> None:
        if not self._missing:
            return
        window = self._tail + piece
        self._missing = {needle for needle in self._missing if needle not in window}
        self._tail = window[-self._overlap :] if self._overlap else b""

    def found(self, needle: bytes) -> bool:
        """Return True if the stream had this byte string. The empty one is in every stream."""
        return needle not in self._missing
