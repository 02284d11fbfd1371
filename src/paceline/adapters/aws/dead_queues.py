"""Messages that failed too often and wait in the dead queues: put back, dropped, or left for a person to look at.

AWS's own redrive does not work here: a FIFO queue accepts a message that it saw in the last five minutes, and drops it.
Here each is sent under a new deduplication id, and only then deleted from the dead queue. A process that dies in
between leaves the message twice, which does no harm: a message only says when to look.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any

import msgspec
from botocore.exceptions import ClientError

from paceline.adapters.aws.batches.lanes import LaneItem, lanes_of
from paceline.adapters.aws.client.connect import code_of
from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import Item
from paceline.adapters.aws.client.queues import BATCH_MAX, Queues, Received
from paceline.adapters.aws.client.tables import OUTGOING, QUEUES, RUNS, RUNS_FIFO, TICKS, WORK_FIFO
from paceline.adapters.aws.monitors.entries import read_entries
from paceline.adapters.aws.monitors.keys import run_key
from paceline.core.batches.values import ReplayCounts
from paceline.core.monitors.leases import TERMINAL
from paceline.errors import StoreUnavailable
from paceline.ports import queue_messages as messages

STREAMS_DEAD = "streams-dead"
SOURCES = {queue.dead: queue.name for queue in QUEUES if queue.dead is not None}
"""The queue from which the messages of a dead queue came."""
DEAD_QUEUES = (*SOURCES, STREAMS_DEAD)
HIDDEN_S = 300
"""Time for which a message that is being put back is hidden from others; longer than that takes."""
WAIT_S = 1
"""A receive that does not wait asks only some of AWS's servers, and may miss messages."""
LOOK_MS = 60_000
_AGAIN = re.compile(r"(.*)#r(\d{1,9})")


KINDS: Mapping[str, tuple[type[messages.Body], ...]] = {
    TICKS: messages.TICKS,
    OUTGOING: messages.OFFERS,
    RUNS_FIFO: messages.WAKES,
    WORK_FIFO: messages.WORKS,
}
"""The kinds of messages in a queue."""


def depths(queues: Queues) -> dict[str, int]:
    """Return about how many messages wait in each dead queue."""
    return {name: queues.depth(name) for name in DEAD_QUEUES}


def replay(
    db: DynamoDatabase, queues: Queues, *, now_ms: int, limit: int, follow: Callable[[], None]
) -> dict[str, ReplayCounts]:
    """Put back at most ``limit`` messages of each dead queue. Return what became of them, by queue.

    ``follow`` does what the records of a stream would have caused.
    """

    def replay_one(name: str) -> ReplayCounts:
        if name == STREAMS_DEAD:
            return _replay_streams(queues, follow, limit=limit)
        return _replay_queue(db, queues, name, now_ms=now_ms, limit=limit)

    return dict(zip(DEAD_QUEUES, db.threads.fan_out(replay_one, DEAD_QUEUES), strict=True))


def _replay_queue(db: DynamoDatabase, queues: Queues, name: str, *, now_ms: int, limit: int) -> ReplayCounts:
    """Replay each message of one dead queue once: one that comes back in the meantime is not taken again."""
    source = SOURCES[name]
    taking = _Taking(queues, name, limit)
    sent = dropped = 0
    while received := taking.some():
        known = [(one, alarm) for one in received if (alarm := _read(source, one.body)) is not None]
        taking.leave([one for one in received if _read(source, one.body) is None])
        if not known:
            continue
        live = _live(db, source, [alarm for _, alarm in known], now_ms=now_ms)
        back = [_again(source, one, delay) for (one, _), delay in zip(known, live, strict=True) if delay is not None]
        if back:
            queues.send(source, back)  # raises if some were not taken: then all of them stay, and may come twice
        queues.forget(name, [one.receipt for one, _ in known])
        sent, dropped = sent + len(back), dropped + len(known) - len(back)
    return ReplayCounts(sent, dropped, taking.end())


def _replay_streams(queues: Queues, follow: Callable[[], None], *, limit: int) -> ReplayCounts:
    """Do what the stream's records would have caused, for everything; then delete the messages that point to them."""
    taking = _Taking(queues, STREAMS_DEAD, limit)
    known: list[Received] = []
    while received := taking.some():
        known += [one for one in received if _is_batch(one.body)]
        taking.leave([one for one in received if not _is_batch(one.body)])
    if known:
        follow()
        queues.forget(STREAMS_DEAD, [one.receipt for one in known])
    return ReplayCounts(len(known), 0, taking.end())


class _Taking:
    """Reads the messages of one dead queue, each once, up to the limit."""

    def __init__(self, queues: Queues, name: str, limit: int) -> None:
        self._queues = queues
        self._name = name
        self._limit = limit
        self._seen: set[str] = set()
        self._left: list[Received] = []
        self._count = 0

    def some(self) -> list[Received]:
        """Return further messages; none at the end."""
        room = min(self._limit - len(self._seen), BATCH_MAX)
        if room <= 0:
            return []
        received = self._queues.receive(self._name, messages_max=BATCH_MAX, wait_s=WAIT_S, hidden_s=HIDDEN_S)
        fresh = [one for one in received if one.id not in self._seen]
        self._give_back([one for one in received if one.id in self._seen] + fresh[room:])
        self._seen.update(one.id for one in fresh[:room])
        return fresh[:room]

    def leave(self, unread: Sequence[Received]) -> None:
        """Leave messages for a person.

        In a FIFO queue they are given back, because the next ones of their group wait for them.
        """
        self._count += len(unread)
        if self._name.endswith(".fifo"):
            self._give_back(unread)
        else:
            self._left += unread

    def end(self) -> int:
        """Give back the messages that are left, so that they can be seen. Return about how many stay."""
        self._give_back(self._left)
        reached = len(self._seen) < self._limit
        return self._count if reached else max(self._count, self._queues.depth(self._name))

    def _give_back(self, messages: Iterable[Received]) -> None:
        for one in messages:
            try:
                self._queues.hide(self._name, one.receipt, for_s=0)
            except ClientError as error:
                if code_of(error) != "MessageNotInflight":  # then its time is over, and it is visible anyway
                    raise


# -- what a message says, and whether that is still true


def _read(source: str, body: str) -> messages.Body | None:
    """Return the message; None if it is not one of Paceline's."""
    try:
        return messages.read(body, KINDS[source])
    except messages.WrongMessage:
        return None


def _is_batch(body: str) -> bool:
    """Return True if Lambda wrote the message about records of a stream."""
    try:
        document: Any = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return False
    return isinstance(document, dict) and "DDBStreamBatchInfo" in document


def _live(db: DynamoDatabase, source: str, alarms: Sequence[messages.Body], *, now_ms: int) -> list[int | None]:
    """Return the delay with which each is sent again; None if it is stale, because its work was done since."""
    lanes = lanes_of(
        db, {one.provider for one in alarms if isinstance(one, messages.ProviderRelease | messages.CallWake)}
    )
    entries = read_entries(db, [one.generation for one in alarms if isinstance(one, messages.Alarm)])
    named = [
        (one.generation, one.counter)
        for one in alarms
        if isinstance(one, messages.RunOffer | messages.Start | messages.CheckWake)
    ]
    found = db.get_many(RUNS, [run_key(*name) for name in named])
    runs = {name: found.get(run_key(*name)) for name in named}

    def at_ms(one: messages.Body) -> int | None:
        match one:
            case messages.Alarm():
                return one.due if _stands(entries.get(one.generation), one) else None
            case messages.ProviderRelease() | messages.CallWake():
                return one.at if _is_ready(lanes.get(one.provider), max(one.at, now_ms)) else None
            case messages.RunOffer():
                return _may_start_ms(runs[one.generation, one.counter], one.attempt)
            case messages.Start():
                return one.at if _is_open(runs[one.generation, one.counter]) else None
            case messages.CheckWake():
                return now_ms if _is_open(runs[one.generation, one.counter]) else None
            case messages.MinuteWake():
                return now_ms if one.look >= now_ms // LOOK_MS - 1 else None  # the next minute has had its own message
            case messages.WorkMessage():
                return None  # the next pass offers again what still waits

    times = [at_ms(one) for one in alarms]
    fifo = source.endswith(".fifo")  # a FIFO queue takes no delay
    return [None if time is None else 0 if fifo else messages.delay_s(time, now_ms) for time in times]


def _stands(entry: Item | None, alarm: messages.Alarm) -> bool:
    return entry is not None and (entry["counter"], entry.get("due_ms")) == (alarm.counter, alarm.due)


def _is_ready(lane: LaneItem | None, until_ms: int) -> bool:
    return lane is not None and lane.revision is not None and lane.ready_ms <= until_ms


def _is_open(run: Item | None) -> bool:
    return run is not None and run["state"] not in TERMINAL


def _may_start_ms(run: Item | None, attempt: int) -> int | None:
    """Return when the outgoing run may start as this attempt; None if it was taken, has ended or is not next."""
    if run is None or "at" not in run or run["attempt"] + 1 != attempt:
        return None
    return int(run["at"])


def _again(source: str, one: Received, delay: int) -> messages.Letter:
    """Return the same text in the same group under a new deduplication id."""
    if not source.endswith(".fifo"):
        return messages.Letter(one.body, delay)
    return messages.Letter(one.body, group=one.group, once=once_again(one.once or one.id))


def once_again(once: str) -> str:
    """Return ``call-1-2#r1`` for ``call-1-2``, and ``call-1-2#r2`` for that: new each time, the same if repeated."""
    found = _AGAIN.fullmatch(once)
    base, count = (found[1], int(found[2])) if found else (once, 0)
    tail = f"#r{count + 1}"
    if len(base) + len(tail) > messages.ONCE_MAX:
        base = blake2b(base.encode(), digest_size=20).hexdigest()
    return base + tail


# -- alarms after a redrive


def tell(queues: Queues, firsts: Mapping[int, int], *, now_ms: int) -> None:
    """Tell the functions when each of these providers may start a run.

    A run that is due later than a message can wait, or whose message cannot be sent now, is found by the sweep.
    """
    horizon_ms = now_ms + messages.DELAY_MS_MAX
    soon = [messages.ProviderRelease(provider, at_ms) for provider, at_ms in firsts.items() if at_ms <= horizon_ms]
    alarms = [messages.Letter(messages.write(one), messages.delay_s(one.at, now_ms)) for one in soon]
    if alarms:
        with suppress(StoreUnavailable):
            queues.send(TICKS, alarms)
