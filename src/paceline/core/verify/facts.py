"""Facts: rows of the ledger as they are stored, in the form in which they are judged, printed and exported.

A store yields them as it has them and draws no conclusion: the judges beside this module decide whether a promise was
kept. All facts of one monitor, of one provider and of one job come together.
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
    """The clock of a process was set back from ``from_ms`` to ``to_ms``."""

    from_ms: int
    to_ms: int


class RetentionFact(Fact, frozen=True, gc=False):
    """The shortest times for which any purge has kept ended runs, and let runs wait."""

    keep_ms: int
    expire_ms: int


class DisabledFact(Fact, frozen=True, gc=False):
    """A user was disabled from ``from_ms`` to ``to_ms``; None: still is. These facts come before the monitors."""

    user: str
    from_ms: int
    to_ms: int | None = None


# -- monitors


class MonitorFact(Fact, frozen=True, gc=False):
    """A generation of a monitor: the first of its facts."""

    generation: int
    owner: str = ""
    id: str = ""
    defined: bool = False
    """False if its definition is gone, or never existed."""
    changed: bool = False
    """True if a change of the definition is recorded that its entry has not followed yet."""
    failures: int | None = None
    """Failures in a row by its health record. None: the engine does not tell."""
    folded: int = -1
    """Counter up to which its roll-up has all outcomes."""
    folded_ms: int = 0
    """End of the newest of these outcomes."""
    edited_ms: int = 0
    """Last edit of its definition. The present check says nothing about runs before it."""
    target: str = ""
    outgoing: bool = False
    """True if its owner's checker takes its runs."""
    repeatable: bool = True
    """True if a check that was cut short may be made again."""


class EntryFact(Fact, frozen=True, gc=False):
    """Entry of a generation, with its cadence and where its grid begins."""

    generation: int
    counter: int
    due_ms: int | None
    every_ms: int = 0
    cron: str = ""
    timezone: str = "UTC"
    jitter_ms: int = 0
    base_ms: int | None = None
    """Due time for which it was last armed. None: not known, or it is paused."""
    lead_ms: int = 0
    """Time from there to the first point of its grid."""
    missed: str = "skip"
    overlap: str = "skip"


class RunFact(Fact, frozen=True, gc=False):
    """A run of a monitor. ``state`` is empty if the store has no outcome of it and does not know that it waits."""

    generation: int
    counter: int
    due_ms: int
    state: str
    handle: int = 0
    attempt: int = 0
    started_ms: int | None = None
    ended_ms: int | None = None
    until_ms: int | None = None
    """End of the lease while it is out."""
    extra: bool = False
    open_too: bool = False
    """True if it has an outcome and is still among the open runs."""
    reason: str = ""
    claimed_ms: int | None = None
    """Time of the claim of the attempt that ended; only for a second or later attempt."""
    lost: bool = False
    """True if the lease of an earlier attempt ran out, whose effect nobody knows."""
    made: int = 0
    """Number that rises in the order in which runs of checks were made. 0: the engine does not tell."""


# -- batches


class DayFact(Fact, frozen=True, gc=False):
    """A day of a batch, or a rerun of one. These facts come before all providers."""

    number: int
    batch: str
    date: str
    start_ms: int
    end_ms: int
    planned: bool = False
    runs: int | None = None
    """Number of runs that were made for it. None: the engine does not count them exactly."""
    deleting: bool = False
    """True if its batch is being deleted."""


class ProviderFact(Fact, frozen=True, gc=False):
    """A provider: the first of its facts."""

    number: int
    id: str = ""
    max_in_flight: int = 0
    """0: not known, because the provider was removed."""
    updated_ms: int = 0
    """Time at which its policy came into force."""
    rate_gap_us: int = 0
    """Microseconds between two starts by its rate. 0: no rate."""


class CallFact(Fact, frozen=True, gc=False):
    """A run of a batch at its place among its provider's runs, in the order of due times.

    ``state`` is empty if the ledger has the run at this place, but the run is not there.
    """

    provider: int
    due_ms: int
    day: int
    record: int
    state: str
    in_ledger: bool = True
    """False if the ledger has this run at another place, or has no such run."""
    attempt: int = 0
    started_ms: int | None = None
    ended_ms: int | None = None
    until_ms: int | None = None
    follows: bool = False
    """True if its record comes after another one."""
    dead: bool = False
    reason: str = ""


# -- jobs


class LimitFact(Fact, frozen=True, gc=False):
    """A user's daily credits before a change. These facts come before the meters."""

    user: str
    daily_credits: int
    until_ms: int


class AccountLimitFact(Fact, frozen=True, gc=False, tag="account_limit"):
    """Limits that an account's operator has declared.

    These facts come before the meters, which have the present ones.
    """

    account: str
    concurrent: int
    results: int
    credits: int


class StrayFact(Fact, frozen=True, gc=False):
    """A measurement that ran at RIPE under our marker and is not the one that the ledger has.

    Reconciliation noted it when it stopped it. These facts come before the jobs.
    """

    account: str
    atlas_id: int
    job: str
    index: int
    seen_ms: int


class MeterFact(Fact, frozen=True, gc=False):
    """A meter as it is stored.

    All meters come before the jobs. ``opened``: sums of postings that were removed since.
    """

    name: str
    window: str
    limit: int
    held: int
    spent: int
    opened_held: int = 0
    opened_spent: int = 0
    released: int | None = None
    """Sum of a sliding meter's releases."""
    user: str = ""
    """User whose day it is."""


class JobFact(Fact, frozen=True, gc=False):
    """A job, with its stored counts and sums: the first of its facts."""

    number: int
    id: str
    measurements: int
    open: int
    done: int
    failed: int
    cancelled: int
    reserved: int
    settled: int
    refunded: int
    created_ms: int
    finished_ms: int | None = None
    purged: bool = False
    """True if the job is being removed."""
    owner: int = 0
    """Number of its user, which nobody else ever gets."""
    user: str = ""
    """Empty if the user was removed."""
    digest: bool = False
    """True if it has a digest, which jobs submitted under an idempotency key have."""
    key: bool = False
    """True if it has an idempotency key."""


class MeasurementFact(Fact, frozen=True, gc=False):
    """A measurement; its postings follow."""

    job: int
    index: int
    state: str
    attempt: int
    credits: int
    """Maximum cost."""
    slot: bool = False
    account: str = ""
    intent_ms: int | None = None
    ended_ms: int | None = None
    settled: int | None = None
    statuses: tuple[int, ...] = ()
    """RIPE's newest status of each definition; 0 if there was none."""
    delivered: tuple[int, ...] = ()
    prices: tuple[int, ...] = ()
    """Price of one result of each definition."""
    reason: str = ""
    needs: tuple[int, ...] = ()
    """Amounts that a send takes of its account: slots, results and credits of a day."""
    types: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()


class PostingFact(Fact, frozen=True, gc=False):
    """A move on a meter. ``attempt`` 0 is the hold on the user's day. An expiry has no measurement and comes first."""

    job: int
    index: int
    attempt: int
    meter: str
    move: str
    amount: int
    at_ms: int = 0


AnyFact = (
    SetBackFact
    | RetentionFact
    | DisabledFact
    | MonitorFact
    | EntryFact
    | RunFact
    | DayFact
    | ProviderFact
    | CallFact
    | LimitFact
    | AccountLimitFact
    | StrayFact
    | MeterFact
    | JobFact
    | MeasurementFact
    | PostingFact
)
