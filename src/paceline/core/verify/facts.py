"""Facts: rows of the ledger as they are stored, in the form in which they are judged, printed and exported.

A store yields them as it has them and draws no conclusion: whether a promise was kept is for the judges beside this
module. All facts of one monitor, of one provider and of one job come together.
"""

from __future__ import annotations

import msgspec


class Fact(
    msgspec.Struct,
    frozen=True,
    gc=False,
    omit_defaults=True,
    tag_field="kind",
    tag=lambda name: name.removesuffix("Fact").lower(),
    forbid_unknown_fields=True,
):
    """One line of the ledger."""


class SetBackFact(Fact, frozen=True, gc=False, tag="set_back"):
    """The clock of a process was set back from the one time to the other."""

    from_ms: int
    to_ms: int


class RetentionFact(Fact, frozen=True, gc=False):
    """The shortest times for which any purge has kept ended runs, and let runs wait."""

    keep_ms: int
    expire_ms: int


# -- monitors


class MonitorFact(Fact, frozen=True, gc=False):
    """A generation of a monitor: the first of its facts."""

    generation: int
    owner: str = ""
    id: str = ""
    defined: bool = False
    """False: its definition is gone, or was never there."""
    changed: bool = False
    """A change of the definition is recorded that its entry has not followed yet."""
    failures: int | None = None
    """What is remembered of its health: failures in a row. None: the engine does not tell."""
    folded: int = -1
    """Its roll-up has all outcomes up to this counter."""
    folded_ms: int = 0
    """When the newest of these ended."""


class EntryFact(Fact, frozen=True, gc=False):
    """The entry of a generation, with its cadence and where its grid begins."""

    generation: int
    counter: int
    due_ms: int | None
    every_ms: int = 0
    cron: str = ""
    timezone: str = "UTC"
    jitter_ms: int = 0
    base_ms: int | None = None
    """The due time it was armed for last. None: not known, or it is paused."""
    lead_ms: int = 0
    """From there to the first point of its grid."""


class RunFact(Fact, frozen=True, gc=False):
    """A run of a monitor. ``state`` is empty if the store has neither an outcome of it nor knows that it waits."""

    generation: int
    counter: int
    due_ms: int
    state: str
    handle: int = 0
    attempt: int = 0
    started_ms: int | None = None
    ended_ms: int | None = None
    until_ms: int | None = None
    """While it is out: when the lease ends."""
    extra: bool = False
    open_too: bool = False
    """It has an outcome and is still among those that have none."""
    reason: str = ""


# -- batches


class DayFact(Fact, frozen=True, gc=False):
    """A day of a batch, or a rerun of one. They come before all providers."""

    number: int
    batch: str
    date: str
    start_ms: int
    end_ms: int
    planned: bool = False
    runs: int | None = None
    """How many runs were made of it. None: the engine does not count them exactly."""
    deleting: bool = False
    """Its batch is being deleted."""


class ProviderFact(Fact, frozen=True, gc=False):
    """A provider: the first of its facts."""

    number: int
    id: str = ""
    max_in_flight: int = 0
    """0: not known, as the provider was removed."""
    updated_ms: int = 0
    """When its policy came into force."""


class CallFact(Fact, frozen=True, gc=False):
    """A run of a batch where it stands among its provider's, in order of due time.

    ``state`` is empty if the ledger says that the run is here, and it is not.
    """

    provider: int
    due_ms: int
    day: int
    record: int
    state: str
    in_ledger: bool = True
    """False: the ledger has this run at another place, or has no such run."""
    attempt: int = 0
    started_ms: int | None = None
    ended_ms: int | None = None
    until_ms: int | None = None
    follows: bool = False
    """Its record comes after another one."""
    dead: bool = False
    reason: str = ""
