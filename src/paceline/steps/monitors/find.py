"""Lists of monitors with filters and an order, a page at a time. A page looks at a bounded number of monitors.

If an index of the store narrows the list down, only those monitors are looked at. Otherwise monitors are looked at in
the order of the list; a page that has looked at LOOKS_MAX of them ends there, with what it has found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, get_args

from msgspec.structs import replace

from paceline.core.monitors.definition import Monitor
from paceline.core.monitors.due import Due
from paceline.core.monitors.health import Health
from paceline.core.monitors.lists.query import FAILING, HEALTH_ORDER, START, Mark, MonitorQuery, matches, wanted_facets
from paceline.core.monitors.schedule import Cadence, Entry
from paceline.ports import Store
from paceline.steps.views.report import LATE_AFTER_MS, MonitorView, monitor_views

LOOKS_MAX = 1_000
"""Maximum number of monitors, and of users without matching ones, that one page looks at."""
JUDGED_LOOKS = 2
"""Weight of a monitor whose health has to be judged: its entry and newest run are read, too."""
CHUNK = 200
USERS_MAX = 100
LAST_ID = "\U0010ffff"
"""Text that sorts after every id."""


class FoundMonitors(NamedTuple):
    views: list[MonitorView]
    following: Mark | None
    """Mark where the next page begins; None: this was the last."""


def find_monitors(store: Store, query: MonitorQuery, mark: Mark, *, limit: int, now_ms: int) -> FoundMonitors:
    """Return a page of the list after ``mark``. It may have few views, or none, and still be followed by another."""
    page = _MonitorPage(store, query, limit=limit, now_ms=now_ms)
    match query.sort:
        case "id":
            page.walk_ids(mark, page.healths)
        case "health":
            page.by_health(mark)
        case "next_due":
            page.by_due(mark)
    return FoundMonitors(page.views, page.following)


class _MonitorPage:
    """A page that is being filled. ``following`` is set when it is full, or has looked at as many as it may."""

    def __init__(self, store: Store, query: MonitorQuery, *, limit: int, now_ms: int) -> None:
        self._store = store
        self._query = query
        self._limit = limit
        self._now_ms = now_ms
        self._looks = max(LOOKS_MAX, limit) + 1
        self._last = START
        self.healths: tuple[Health, ...] = (query.health,) if query.health is not None else get_args(Health)
        self.views: list[MonitorView] = []
        self.following: Mark | None = None

    # -- in order of owner and id

    def walk_ids(self, mark: Mark, healths: Sequence[Health], *, due: bool = True) -> bool:
        """Add monitors of these healths in order of owner and id. Return False when the page is over.

        ``due`` False: only monitors that have no due time.
        """
        few = self._few(healths if due or len(healths) == 1 else ("paused",))
        for chunk in self._chunks(mark, few, healths):
            wanted = [monitor for monitor in chunk if matches(self._query, monitor)]
            if not due:
                entries = self._store.entries([one.generation for one in wanted], now_ms=self._now_ms)
                armed = {generation for generation, entry in entries.items() if entry.due_ms is not None}
                wanted = [one for one in wanted if one.generation not in armed]
            for view in self._shown(wanted, healths):
                if not self._add(view, mark._replace(owner=view.user, id=view.id)):
                    return False
            looks = len(chunk) * (1 if self._all_healths(healths) else JUDGED_LOOKS)
            if not self._looked(looks, mark._replace(owner=chunk[-1].owner, id=chunk[-1].id)):
                return False
        return self.following is None

    def _few(self, healths: Sequence[Health]) -> list[Monitor] | None:
        """Return all monitors that may match and have one of these healths, if an index says that they are few."""
        if self._query.q is not None and self._with_text is not None:
            return self._with_text
        return self._narrowed(healths[0] if len(healths) == 1 else None)

    @cached_property
    def _with_text(self) -> list[Monitor] | None:
        """Return matches of any health, so that the index is asked once."""
        return self._narrowed(None)

    def _narrowed(self, health: Health | None) -> list[Monitor] | None:
        query = replace(self._query, health=health)
        found = self._store.narrowed(query, limit=LOOKS_MAX, late_before_ms=self._now_ms - LATE_AFTER_MS)
        return None if found is None else sorted(found, key=lambda one: (one.owner, one.id))

    def _chunks(self, mark: Mark, few: Sequence[Monitor] | None, healths: Sequence[Health]) -> Iterator[list[Monitor]]:
        """Yield monitors after the mark that may match, in order of owner and id."""
        if few is not None:
            left = [one for one in few if (one.owner, one.id) > (mark.owner, mark.id)]
            yield from (left[at : at + CHUNK] for at in range(0, len(left), CHUNK))
            return
        if self._query.owner is not None:
            yield from self._chunks_of(self._query.owner, mark.id, healths)
            return
        if mark.owner:
            yield from self._chunks_of(mark.owner, mark.id, healths)
        after = mark.owner
        while users := self._store.users(after=after, limit=USERS_MAX):
            for user in users:
                if user.monitors:
                    yield from self._chunks_of(user.id, "", healths)
                after = user.id
                if not self._looked(1, mark._replace(owner=user.id, id=LAST_ID)):
                    return

    def _chunks_of(self, owner: str, after: str, healths: Sequence[Health]) -> Iterator[list[Monitor]]:
        read = self._reader(owner, healths)
        while True:
            size = min(CHUNK, max(self._limit + 1 - len(self.views), 1)) if self._plain else CHUNK
            found = read(after, size)
            if found:
                yield found
                after = found[-1].id
            if len(found) < size:
                return

    @property
    def _plain(self) -> bool:
        """Return whether everything matches: then no more need be read than is shown."""
        return self._query == MonitorQuery(owner=self._query.owner)

    def _reader(self, owner: str, healths: Sequence[Health]) -> Callable[[str, int], list[Monitor]]:
        """Return a function that reads the owner's monitors, from an index if the store has one for the query."""
        having = FAILING if tuple(healths) == ("failing",) else next(iter(wanted_facets(self._query)), None)
        return lambda after, size: self._store.monitors(owner, after=after, limit=size, having=having)

    # -- in other orders

    def by_health(self, mark: Mark) -> None:
        """Add one group after the other, each in order of owner and id."""
        for phase in range(mark.phase, len(HEALTH_ORDER)):
            healths = [health for health in HEALTH_ORDER[phase] if health in self.healths]
            start = mark if phase == mark.phase else Mark(phase)
            if healths and not self.walk_ids(start, healths):
                return

    def by_due(self, mark: Mark) -> None:
        """Add monitors that have a due time, in its order; then the others in order of owner and id."""
        few = self._gathered()
        if mark.phase == 0 and not (self._walk_due(mark) if few is None else self._add_due(few, mark)):
            return
        self.walk_ids(mark if mark.phase else Mark(1), self.healths, due=False)

    def _gathered(self) -> list[Monitor] | None:
        """Return all monitors that may match, if they are few enough to be sorted here."""
        few = self._few(self.healths)
        if few is not None or self._query.owner is None:
            return few
        user = self._store.user(self._query.owner)
        if user is None or user.monitors > LOOKS_MAX:
            return None
        return [
            one for chunk in self._chunks_of(user.id, "", self.healths) for one in chunk if matches(self._query, one)
        ]

    def _add_due(self, few: Sequence[Monitor], mark: Mark) -> bool:
        entries = self._store.entries([one.generation for one in few if matches(self._query, one)], now_ms=self._now_ms)
        due = sorted((entry.due_ms, entry.generation) for entry in entries.values() if entry.due_ms is not None)
        behind = [one for one in due if one > (mark.due_ms, mark.generation)]
        named = {one.generation: one for one in few}
        for at in range(0, len(behind), CHUNK):
            chunk = behind[at : at + CHUNK]
            if not self._add_in_order(chunk, named, entries):
                return False
        return True

    def _walk_due(self, mark: Mark) -> bool:
        """Add monitors of all owners in the order of their due times."""
        after = Due(mark.generation, 0, 0, mark.due_ms, Cadence()) if mark.generation else None
        while dues := self._store.armed_after(after, from_ms=0, limit=CHUNK):
            after = dues[-1]
            named = self._store.monitors_by_generation([due.generation for due in dues])
            order = [(due.due_ms, due.generation) for due in dues if due.generation in named]
            if not self._add_in_order(order, named, {}):
                return False
            if not self._looked(len(dues), Mark(0, after.due_ms, after.generation)):
                return False
            if len(dues) < CHUNK:
                break
        return True

    def _add_in_order(
        self, order: Sequence[tuple[int, int]], named: dict[int, Monitor], entries: dict[int, Entry]
    ) -> bool:
        wanted = [named[generation] for _, generation in order if matches(self._query, named[generation])]
        due_ms = {generation: ms for ms, generation in order}
        for view in self._shown(wanted, self.healths, entries):
            generation = view.schedule.generation
            if not self._add(view, Mark(0, due_ms[generation], generation)):
                return False
        return True

    # -- filling

    def _shown(
        self, wanted: Sequence[Monitor], healths: Sequence[Health], known: dict[int, Entry] | None = None
    ) -> list[MonitorView]:
        if self._all_healths(healths):  # then all of them match, and no more are shown than fit
            wanted = wanted[: self._limit + 1 - len(self.views)]
        views = monitor_views(self._store, wanted, now_ms=self._now_ms, known=known) if wanted else []
        return [view for view in views if view.health in healths]

    @staticmethod
    def _all_healths(healths: Sequence[Health]) -> bool:
        return len(healths) == len(get_args(Health))

    def _add(self, view: MonitorView, mark: Mark) -> bool:
        """Add a view. False: there is one more than fits, so the page ends after the last one."""
        if len(self.views) == self._limit:
            self.following = self._last
            return False
        self.views.append(view)
        self._last = mark
        return True

    def _looked(self, count: int, mark: Mark) -> bool:
        """Count looks. False: the page has looked at as many as it may, so it ends here."""
        self._looks -= count
        if self._looks > 0:
            return True
        self.following = mark
        return False
