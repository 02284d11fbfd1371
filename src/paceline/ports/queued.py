"""Additional acts of a store that announces due work by messages, beside those of ``Store``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol, runtime_checkable

from paceline.core.batches.values import ClaimedCall, ReplayCounts
from paceline.core.monitors.due import Due
from paceline.core.monitors.places import Places
from paceline.core.monitors.values import Claimed
from paceline.ports import Store
from paceline.ports.queue_messages import Alarm, Letter


class MessageQueues(Protocol):
    """Queues of a deployment. Raises StoreUnavailable if something stays unsent."""

    def send(self, name: str, messages: Sequence[Letter]) -> None: ...


class AlarmSender(Protocol):
    """Sends alarms; also after each write of the store, while ``sends`` is set."""

    sends: bool

    def send(self, alarms: Sequence[Alarm], *, now_ms: int) -> None: ...


class Swept(Protocol):
    @property
    def armed(self) -> int:
        """Return how many entries came into their last 15 minutes."""

    @property
    def late(self) -> int:
        """Return how many entries are overdue."""


@runtime_checkable
class OffersRuns(Protocol):
    """A store whose outgoing runs are offered to checkers by messages."""

    def offer_again(self, *, now_ms: int) -> int:
        """Offer runs once more whose message may be lost. Return how many."""


@runtime_checkable
class OffersWork(Protocol):
    """A store whose runs for workers are announced by messages."""

    def offer_work(self, providers: Collection[int], *, now_ms: int) -> set[int]:
        """Announce runs that may start at these providers. Return the providers whose runs are for workers."""


@runtime_checkable
class HasDeadQueues(Protocol):
    """A store whose queues have dead queues, for messages that nobody could handle."""

    def dead_messages(self) -> dict[str, int]:
        """Return about how many messages wait in each dead queue."""

    def replay_dead(self, *, now_ms: int, limit: int, react: Callable[[], object]) -> dict[str, ReplayCounts]:
        """Send messages of the dead queues again, up to ``limit`` of each. Return the counts by queue.

        One is deleted only after it was sent, so it may come twice, which does no harm. A message whose work was done
        since is dropped. ``react`` is called before messages are deleted that stand for changes without a reaction.
        """


class QueuedStore(Store, OffersRuns, OffersWork, HasDeadQueues, Protocol):
    """A store on queues: functions are woken by messages instead of looking."""

    @property
    def alarms(self) -> AlarmSender: ...
    @property
    def queues(self) -> MessageQueues: ...
    def alarmed_entries(self, alarms: Sequence[Alarm], *, now_ms: int) -> list[Due]:
        """Return the entries of these alarms that are due and still as their alarm says: ``commit`` may advance them.

        An alarm that came early is sent once more.
        """

    def sweep_alarms(self, *, now_ms: int) -> Swept:
        """Send missing alarms and offers. To be called at least every ten minutes."""

    def claim_checks_of(
        self, generations: Collection[int], *, now_ms: int, runs_max: int, lease_ms: int, places: Places | None = None
    ) -> list[Claimed]:
        """Claim like ``claim``, only the checks of these monitors."""

    def claim_calls_of(
        self, providers: Collection[int], *, now_ms: int, runs_max: int, lease_ms: int
    ) -> list[ClaimedCall]:
        """Claim like ``claim_calls``, only for these providers."""

    def ready_lanes(self, *, until_ms: int) -> list[tuple[int, int]]: ...
    def ready_work(self, *, until_ms: int) -> list[tuple[int, int]]:
        """Return ``ready_lanes`` of providers whose runs are for workers."""

    def ready_of(self, providers: Collection[int]) -> dict[int, int]: ...
    def dead_letters(self) -> int: ...
