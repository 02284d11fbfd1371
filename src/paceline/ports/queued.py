"""Acts of a store that tells processes by messages what is due, beside all that a ``Store`` does."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol, runtime_checkable

from paceline.core.batches.values import ClaimedCall, Replayed
from paceline.core.monitors.due import Due
from paceline.core.monitors.places import Places
from paceline.core.monitors.values import Claimed
from paceline.ports import Store
from paceline.ports.queue_messages import Alarm, Letter


class MessageQueues(Protocol):
    """The queues of a deployment. Raises StoreUnavailable if something stays unsent."""

    def send(self, name: str, messages: Sequence[Letter]) -> None: ...


class AlarmSender(Protocol):
    """Sends alarms: also behind each write of the store, while ``sends`` is set."""

    sends: bool

    def send(self, alarms: Sequence[Alarm], *, now_ms: int) -> None: ...


class Swept(Protocol):
    @property
    def armed(self) -> int:
        """Entries that came into their last 15 minutes."""

    @property
    def late(self) -> int:
        """Entries that are overdue."""


@runtime_checkable
class OffersRuns(Protocol):
    """A store whose outgoing runs are offered to checkers by messages."""

    def offer_again(self, *, now_ms: int) -> int:
        """Offers runs once more whose message may be lost. Returns how many."""


@runtime_checkable
class OffersWork(Protocol):
    """A store whose runs for workers are told by messages."""

    def offer_work(self, providers: Collection[int], *, now_ms: int) -> set[int]:
        """Tells workers of runs that may start at these providers. Returns those whose runs are for workers."""


@runtime_checkable
class HasDeadQueues(Protocol):
    """A store whose queues have dead queues, for messages that nobody could handle."""

    def dead_messages(self) -> dict[str, int]:
        """About how many messages wait in each dead queue."""

    def replay_dead(self, *, now_ms: int, limit: int, react: Callable[[], object]) -> dict[str, Replayed]:
        """Sends messages of the dead queues again, up to ``limit`` of each. Returns what became of them, by queue.

        One is deleted only after it was sent, so it may come twice, which does no harm. What it would have done and was
        done since is dropped. ``react`` is called before messages are deleted that stand for changes nobody followed.
        """


class QueuedStore(Store, OffersRuns, OffersWork, HasDeadQueues, Protocol):
    """A store on queues: functions are woken by messages rather than by looking."""

    @property
    def alarms(self) -> AlarmSender: ...
    @property
    def queues(self) -> MessageQueues: ...
    def alarmed_entries(self, alarms: Sequence[Alarm], *, now_ms: int) -> list[Due]:
        """Returns the entries of these alarms that are due and still as their alarm says: ``commit`` may advance them.

        An alarm that came early is sent once more.
        """

    def sweep_alarms(self, *, now_ms: int) -> Swept:
        """Sends missing alarms and offers. To be called at least every ten minutes."""

    def claim_checks_of(
        self, generations: Collection[int], *, now_ms: int, runs_max: int, lease_ms: int, places: Places | None = None
    ) -> list[Claimed]:
        """``claim``, of the checks of these monitors alone."""

    def claim_calls_of(
        self, providers: Collection[int], *, now_ms: int, runs_max: int, lease_ms: int
    ) -> list[ClaimedCall]:
        """``claim_calls``, of these providers alone."""

    def ready_lanes(self, *, until_ms: int) -> list[tuple[int, int]]: ...
    def ready_work(self, *, until_ms: int) -> list[tuple[int, int]]:
        """``ready_lanes``, of providers whose runs are for workers."""

    def ready_of(self, providers: Collection[int]) -> dict[int, int]: ...
    def dead_letters(self) -> int: ...
