"""Messages to the queues. The store sends them, and sends them again if need be."""

from __future__ import annotations

from collections.abc import Iterable

from paceline.ports.queue_messages import (
    CallWake,
    CheckWake,
    Letter,
    MinuteWake,
    ProviderRelease,
    Start,
    delay_s,
    write,
)
from paceline.ports.queued import MessageQueues

TICKS = "ticks"
RUNS_FIFO = "runs.fifo"


class Outbox:
    """Queues that the functions write to."""

    def __init__(self, post: MessageQueues) -> None:
        self._post = post

    def wake(self, wakes: Iterable[CheckWake | CallWake | MinuteWake]) -> None:
        """Sends wakes to ``runs.fifo``: without a delay, and with one group for each monitor or provider."""
        letters = [Letter(write(wake), group=wake.group, once=wake.once) for wake in dict.fromkeys(wakes)]
        if letters:
            self._post.send(RUNS_FIFO, letters)

    def later(self, ticks: Iterable[ProviderRelease | Start], *, now_ms: int) -> None:
        """Sends messages to ``ticks`` with a delay, which a FIFO queue cannot have for single messages."""
        letters = [Letter(write(one), delay_s=delay_s(one.at, now_ms)) for one in dict.fromkeys(ticks)]
        if letters:
            self._post.send(TICKS, letters)
