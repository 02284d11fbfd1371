"""Messages from a store on queues to the functions.

A message only says when to look: the row is the truth, so a message that is stale or doubled does nothing.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec


class Alarm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In ``ticks``: an entry is due, if it is still at this counter and due time (milliseconds)."""

    generation: int
    counter: int
    due: int


class ProviderRelease(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In ``ticks``: the provider with this number may start a run at that time."""

    provider: int
    at: int


class Start(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """In ``ticks``: a monitor's run was made to be caught up, or is tried again, and may start at that time.

    ``attempt`` is the number that its next attempt would have.
    """

    generation: int
    counter: int
    at: int
    attempt: int = 1


class RunOffer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In ``outgoing``, for users' own checkers: a run that may start. ``attempt``: the number of its next attempt.

    ``check`` is the monitor's at the time of sending; None: the monitor was gone, or was not read.
    """

    run: str
    generation: int
    counter: int
    due: str
    attempt: int
    check: dict[str, Any] | None = None


class WorkMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In ``work.fifo``, for users' own workers: a batch's run that may start. ``body`` is the record's, as JSON.

    ``attempt`` is the number that its next attempt would have.
    """

    id: str
    provider: str
    endpoint: str
    body: Any
    run: str
    due: str
    attempt: int


def work_letter(work: WorkMessage) -> Letter:
    """Return the message of a run: ``work.body`` is JSON text.

    Its provider is its group, so that messages come in order.
    """
    body = msgspec.Raw(b"null" if work.body is None else work.body.encode())
    text = msgspec.json.encode(msgspec.structs.replace(work, body=body)).decode()
    return Letter(text, group=work.provider, once=once_of(f"{work.run}#{work.attempt}"))


def once_of(name: str) -> str:
    """Return a deduplication id: the name itself, or its hash if SQS would find it too long."""
    return name if len(name) <= ONCE_MAX else blake2b(name.encode(), digest_size=20).hexdigest()


class CheckWake(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """In ``runs.fifo``: a monitor's run was made, or may be tried again.

    ``attempt``: the number of its next attempt.
    """

    generation: int
    counter: int
    attempt: int = 1

    @property
    def group(self) -> str:
        return f"monitor-{self.generation}"

    @property
    def once(self) -> str:
        again = f"-{self.attempt}" if self.attempt > 1 else ""  # SQS would drop a repeat for five minutes
        return f"run-{self.generation}-{self.counter}{again}"


class CallWake(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In ``runs.fifo``: the provider may start a run, from this instant on.

    ``look`` is the minute's number. It makes the deduplication id change every minute: SQS would otherwise drop a
    repeat for five minutes.
    """

    provider: int
    at: int
    look: int

    @property
    def group(self) -> str:
        return f"provider-{self.provider}"

    @property
    def once(self) -> str:
        return f"call-{self.provider}-{self.at}-{self.look}"


class MinuteWake(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In ``runs.fifo``, every minute: start all runs that may start, also those whose own message was lost.

    Each message is a group of its own: a function that dies with one, which hides it for long, delays no other.
    """

    look: int

    @property
    def group(self) -> str:
        return f"look-{self.look}"

    @property
    def once(self) -> str:
        return f"look-{self.look}"


class Letter(NamedTuple):
    """A message to be sent. ``delay_s`` is for standard queues; ``group``, and ``once`` against doubles, for FIFO."""

    body: str
    delay_s: int = 0
    group: str | None = None
    once: str | None = None


ONCE_MAX = 128
"""Maximum number of characters of a deduplication id."""
DELAY_S_MAX = 900
DELAY_MS_MAX = DELAY_S_MAX * 1_000


def delay_s(at_ms: int, now_ms: int) -> int:
    """Return the delay, rounded up, so that no message comes early.

    It is at most 900: a clock that differs a little must not ask for 901.
    """
    return min(max(-(-(at_ms - now_ms) // 1_000), 0), DELAY_S_MAX)


Tick = Alarm | ProviderRelease | Start
Wake = CheckWake | CallWake | MinuteWake
Body = Tick | RunOffer | Wake | WorkMessage


class WrongMessage(ValueError):
    """Raised for a message that is not one of Paceline's. SQS moves it to the dead queue, for a person to look at."""


TICKS: tuple[type[Tick], ...] = (Alarm, ProviderRelease, Start)
OFFERS: tuple[type[RunOffer], ...] = (RunOffer,)
WORKS: tuple[type[WorkMessage], ...] = (WorkMessage,)
WAKES: tuple[type[Wake], ...] = (CheckWake, CallWake, MinuteWake)


def read_tick(body: str) -> Alarm | ProviderRelease | Start:
    message = read(body, TICKS)
    assert isinstance(message, Alarm | ProviderRelease | Start)
    return message


def read_wake(body: str) -> CheckWake | CallWake | MinuteWake:
    message = read(body, WAKES)
    assert isinstance(message, CheckWake | CallWake | MinuteWake)
    return message


def read(body: str, kinds: tuple[type[Any], ...]) -> Body:
    """Return a message of one of these kinds; at most one fits, by its fields. Raise WrongMessage if none does."""
    for kind in kinds:
        try:
            message: Body = msgspec.json.decode(body, type=kind)
        except msgspec.DecodeError:
            continue
        return message
    raise WrongMessage(f"no message of ours: {body[:200]}")


def write(message: Body) -> str:
    return msgspec.json.encode(message).decode()
