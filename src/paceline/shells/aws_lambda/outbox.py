"""Messages to the queues. How they are sent, and sent again, is the store's part."""

from __future__ import annotations

from collections.abc import Iterable

from paceline.ports.queue_messages import CallWake, CheckWake, Letter, Look, Release, Start, delay_s, write
from paceline.ports.queued import MessageQueues

TICKS = "ticks"
RUNS_FIFO = "runs.fifo"


class Outbox:
    """The queues that the functions write to."""

    def __init__(self, post: MessageQueues) -> None:
        self._post = post

    def wake(self, wakes: Iterable[CheckWake | CallWake | Look]) -> None:
        """Into ``runs.fifo``: no delay, one group for each provider."""
        letters = [Letter(write(wake), group=wake.group, once=wake.once) for wake in dict.fromkeys(wakes)]
        if letters:
            self._post.send(RUNS_FIFO, letters)

    def later(self, ticks: Iterable[Release | Start], *, now_ms: int) -> None:
        """Into ``ticks``, which can delay what a FIFO queue cannot."""
        letters = [Letter(write(one), delay_s=delay_s(one.at, now_ms)) for one in dict.fromkeys(ticks)]
        if letters:
            self._post.send(TICKS, letters)
