"""Places of a host's monitors on the circle of an interval: the next points of the host's own sequence.

The points of a host are its base plus 0, 1/2, 1/4, 3/4, 1/8 and so on: however many there are, two neighbours are less
than two ideal gaps apart. Bases of hosts that come one after the other are a golden angle apart, so that the points of
many hosts together are spread as well. A host's note holds its base and how many of its monitors have come.

Notes are hints, and bounded: they stand in SHARDS items for each interval, of NOTES_MAX hosts each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from zlib import crc32

import msgspec

SHARDS = 16
NOTES_MAX = 512
PARTS = 1 << 16
_GOLDEN = 40_503
"""Golden angle, in parts of 65,536."""


class HostNote(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Place of a host's first monitor, in parts of the circle, and how many of its monitors have come."""

    base: int = 0
    made: int = 0


class HostNotes(msgspec.Struct, frozen=True, array_like=True):
    """Notes of the hosts of one shard, by a hash of their names; the first is the oldest."""

    born: int = 0
    """``Circle.born`` of the circle that the notes belong to: notes of an earlier circle say nothing."""
    notes: dict[int, HostNote] = {}


Notes = Mapping[str, HostNote]
"""Notes by the name of the host; a host that is missing has no note yet."""


def shard_of(host: str) -> int:
    return _hash(host) % SHARDS


def notes_in(shard: HostNotes | None, hosts: Iterable[str], *, born: int) -> dict[str, HostNote]:
    """Return the notes that a shard has of these hosts, if they are of the circle that was born then."""
    if shard is None or shard.born != born:
        return {}
    return {host: note for host in hosts if (note := shard.notes.get(_hash(host))) is not None}


def base_of(number: int) -> int:
    """Return the place of a new host's first monitor, by how many hosts came before."""
    return number * _GOLDEN % PARTS


def point_of(note: HostNote, index: int) -> int:
    """Return the place of a host's monitor, in parts. ``index``: its number after the monitors that have come."""
    return (note.base + inverse(note.made + index)) % PARTS


def after_come(shard: HostNotes | None, come: Mapping[str, HostNote], *, born: int) -> HostNotes:
    """Return the shard with these notes replaced or added. If they are too many, it forgets the older half."""
    notes = dict(shard.notes) if shard is not None and shard.born == born else {}
    for host, note in come.items():
        notes[_hash(host)] = note
    if len(notes) > NOTES_MAX:
        notes = dict(list(notes.items())[len(notes) - NOTES_MAX // 2 :])
    return HostNotes(born, notes)


def inverse(number: int) -> int:
    """Return the bits of the number mirrored, in parts of 65,536: 0, 1/2, 1/4, 3/4, 1/8 and so on."""
    return int(f"{number % PARTS:016b}"[::-1], 2)


def _hash(host: str) -> int:
    return crc32(host.encode("utf-8", "surrogatepass"))
