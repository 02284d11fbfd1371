"""Turns among users for tries: calls to webhooks of jobs and messages of alerts share the places of a process.

A store finds what is due by time, so one user's backlog stands before everybody else. Therefore the process that begins
tries remembers what is due by user. The memory is a hint: a record is read again before its try is written, and that
write decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Generic, NamedTuple, TypeVar

from paceline.core.monitors.places import spared_shares
from paceline.core.shares import Claimant

PLACES = 50
"""Number of tries of one kind that a process may have in flight."""
PLACES_PER_USER_MAX = 40
PAGE = 500
"""Number of positions that are read from a store at once."""
LATE_MS = 2_000
"""A record may come into the list with a time that has passed, mostly less than this."""
AGAIN_MS = 1_000
"""Pause between looks for records that came into the list before the position up to which it was read."""
STALE_MS = 60_000
"""After such a pause between two passes, nothing remembered is relied on."""
IDS_MAX = 100_000
"""Number of records that are remembered. Beyond it, a user has at most USER_IDS_MIN."""
USER_IDS_MAX, USER_IDS_MIN = 20_000, 50

K = TypeVar("K", str, int)


class DuePosition(NamedTuple, Generic[K]):
    """Position of a record in a store's list of what is due: by time, of equal times in an order of the store's own."""

    at_ms: int
    id: K


class DueTries(NamedTuple, Generic[K]):
    """A record whose tries wait for places: its user, its position in the list, and how many of its tries are due."""

    user: str
    position: DuePosition[K]
    tries: int = 1


class TryTurn(NamedTuple, Generic[K]):
    """A record whose turn it is. At most ``places`` of its tries may begin."""

    due: DueTries[K]
    places: int


class TryPlaces(NamedTuple):
    """Places of a process: how many are free, how many each user's tries hold, and how many one user may hold."""

    room: int = PLACES
    held: Mapping[str, int] = {}
    user_max: int = PLACES_PER_USER_MAX


class DueCursor(Generic[K]):
    """Positions from which a process reads the list of what is due, so that it does not read all of it in each pass.

    Records mostly come in behind the last position that was read. For those that come in late, the last LATE_MS of the
    list are read again once in AGAIN_MS, and one further page: page by page from the start to the end, and then from
    the start. So a list of 30,000 records is read again once a minute.
    """

    def __init__(self) -> None:
        self.after: DuePosition[K] | None = None
        """The next page begins behind this position; None: at the start."""
        self.again: DuePosition[K] | None = None
        """The next page of those that are read again begins behind this position."""
        self._sure: DuePosition[K] | None = None
        """Last position read that was at least LATE_MS old."""
        self._again_ms = 0

    def restart(self) -> None:
        """Read from the start of the list."""
        self.after = self.again = self._sure = None
        self._again_ms = 0

    def note(self, page: Sequence[DuePosition[K]], *, now_ms: int) -> bool:
        """Note the page that was read from ``after``. Return True if there may be a further one."""
        if page:
            self.after = page[-1]
            self._sure = next((one for one in reversed(page) if one.at_ms <= now_ms - LATE_MS), self._sure)
        return len(page) >= PAGE

    def go_back(self, *, now_ms: int) -> bool:
        """Go back by LATE_MS if it is time for that. Return True if a page from ``again`` is to be read, too."""
        if now_ms - self._again_ms < AGAIN_MS:
            return False
        self._again_ms = now_ms
        before, self.after = self.after, self._sure
        return before is not None

    def note_again(self, page: Sequence[DuePosition[K]]) -> None:
        """Note the page that was read from ``again``."""
        self.again = page[-1] if len(page) >= PAGE else None


class TryQueue(Generic[K]):
    """Records whose tries wait for places, by user, each user's by position in the list. One thread at a time uses it.

    The user who has waited longest for a turn comes first: the one that was served longest ago; a new user is behind
    all that wait.
    """

    def __init__(self) -> None:
        self.cursor: DueCursor[K] = DueCursor()
        self._users: dict[str, _UserTries[K]] = {}
        self._ids: set[K] = set()
        self._left_out: set[str] = set()
        """Users with more due than is remembered."""
        self._looked_ms = 0

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, key: object) -> bool:
        return key in self._ids

    def forget(self) -> None:
        """Forget everything. What is due is read from the store again."""
        self._users.clear()
        self._ids.clear()
        self._left_out.clear()
        self.cursor.restart()

    def begin_pass(self, *, now_ms: int) -> None:
        """Forget what cannot be relied on any more: the clock was set back, or the last pass is long ago."""
        if not 0 <= now_ms - self._looked_ms < STALE_MS:
            self.forget()
        self._looked_ms = now_ms
        if not self._ids:
            self.cursor.restart()

    def add(self, found: Iterable[DueTries[K]]) -> None:
        """Remember records that are not remembered yet, each user's up to a limit."""
        for one in found:
            if one.position.id in self._ids:
                continue
            mine = self._users.get(one.user)
            if mine is None:
                mine = self._users[one.user] = _UserTries()
            if len(mine.heap) >= (USER_IDS_MAX if len(self._ids) < IDS_MAX else USER_IDS_MIN):
                self._left_out.add(one.user)
                continue
            self._ids.add(one.position.id)
            mine.add(one)

    def choose(self, places: TryPlaces) -> list[TryTurn[K]]:
        """Remove and return the records whose turn it is. Places are shared max-min fair, as those for checks are.

        No more than the room is given away, and nobody gets more than four times the places that are left over.
        """
        if places.room <= 0:
            return []
        asked = self._asked(places)
        claimants = [Claimant(self._users[user].tries, places.held.get(user, 0)) for user in asked]
        grants = spared_shares(places.room, claimants, ceiling=places.user_max)
        return [turn for user, grant in zip(asked, grants, strict=True) if grant for turn in self._take(user, grant)]

    @property
    def is_short(self) -> bool:
        """Return True if a user with more due than was remembered has nothing in the queue any more."""
        return any(user not in self._users for user in self._left_out)

    def read_all_again(self) -> None:
        """Read the list from its start, and what is not remembered yet of it."""
        self._left_out.clear()
        self.cursor.restart()

    def _asked(self, places: TryPlaces) -> list[str]:
        """Return the first users in the queue, as many as could get a place.

        Those without a try in flight come first: once there are as many of these as there is room, the others get none.
        No more users than places have a try in flight, so this does not grow with the number of users who wait.
        """
        asked: list[str] = []
        without = 0
        for user in self._users:
            asked.append(user)
            without += not places.held.get(user)
            if without >= places.room:
                break
        return asked

    def _take(self, user: str, grant: int) -> list[TryTurn[K]]:
        mine = self._users.pop(user)
        turns = mine.take(grant)
        self._ids.difference_update(turn.due.position.id for turn in turns)
        if mine.heap:
            self._users[user] = mine  # behind all others
        return turns


class _UserTries(Generic[K]):
    """Records of one user, the longest due first, and the number of their tries."""

    def __init__(self) -> None:
        self.heap: list[tuple[DuePosition[K], DueTries[K]]] = []
        self.tries = 0

    def add(self, one: DueTries[K]) -> None:
        heappush(self.heap, (one.position, one))
        self.tries += one.tries

    def take(self, grant: int) -> list[TryTurn[K]]:
        """Remove and return the first records, until they have as many tries as are granted."""
        turns: list[TryTurn[K]] = []
        while grant > 0 and self.heap:
            one = heappop(self.heap)[1]
            turns.append(TryTurn(one, min(grant, one.tries)))
            grant -= one.tries
            self.tries -= one.tries
        return turns
