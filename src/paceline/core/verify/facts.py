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


class DisabledFact(Fact, frozen=True, gc=False):
    """A user was disabled from the one time to the other; None: and still is. They come before the monitors."""

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
    """False: its definition is gone, or was never there."""
    changed: bool = False
    """A change of the definition is recorded that its entry has not followed yet."""
    failures: int | None = None
    """What is remembered of its health: failures in a row. None: the engine does not tell."""
    folded: int = -1
    """Its roll-up has all outcomes up to this counter."""
    folded_ms: int = 0
    """When the newest of these ended."""
    edited_ms: int = 0
    """When its definition was written last. What it checks says nothing about runs of before."""
    target: str = ""
    outgoing: bool = False
    """A checker of its owner's takes its runs."""
    repeatable: bool = True
    """A check that was cut short may be made again."""


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
    missed: str = "skip"
    overlap: str = "skip"


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
    claimed_ms: int | None = None
    """Ended, and not at its first attempt: when the attempt was claimed that the outcome is of."""
    lost: bool = False
    """The lease of an earlier attempt ran out, and nobody knows how far that attempt came."""
    made: int = 0
    """Runs of checks rise by this in the order in which they were made. 0: the engine does not tell."""


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
    rate_gap_us: int = 0
    """By its rate so many microseconds lie between two starts. 0: there is none."""


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


# -- jobs


class LimitFact(Fact, frozen=True, gc=False):
    """A user's daily credits as they were until they were changed. They come before the meters."""

    user: str
    daily_credits: int
    until_ms: int


class AccountLimitFact(Fact, frozen=True, gc=False, tag="account_limit"):
    """Limits of an account that its operator has declared. They come before the meters, which have the present ones."""

    account: str
    concurrent: int
    results: int
    credits: int


class StrayFact(Fact, frozen=True, gc=False):
    """A measurement that ran at RIPE under our mark, and that is not the one which its measurement here became.

    Reconciliation noted it when it stopped it. They come before the jobs.
    """

    account: str
    atlas_id: int
    job: str
    index: int
    seen_ms: int


class MeterFact(Fact, frozen=True, gc=False):
    """A meter as it is stored. All meters come before the jobs. ``opened``: of postings that were removed since."""

    name: str
    window: str
    limit: int
    held: int
    spent: int
    opened_held: int = 0
    opened_spent: int = 0
    released: int | None = None
    """Of a sliding meter: what its releases add up to."""
    user: str = ""
    """Whose day it is."""


class JobFact(Fact, frozen=True, gc=False):
    """A job, with the counts and sums that are kept with it: the first of its facts."""

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
    """It is being removed."""
    owner: int = 0
    """The number of its user, which nobody else ever gets."""
    user: str = ""
    """Empty: the user was removed."""
    digest: bool = False
    """There is a digest of it, which is made of jobs that are submitted under an idempotency key."""
    key: bool = False
    """There is an idempotency key."""


class MeasurementFact(Fact, frozen=True, gc=False):
    """A measurement; its postings follow."""

    job: int
    index: int
    state: str
    attempt: int
    credits: int
    """The most that it can cost."""
    slot: bool = False
    account: str = ""
    intent_ms: int | None = None
    ended_ms: int | None = None
    settled: int | None = None
    statuses: tuple[int, ...] = ()
    """RIPE's newest word on each definition; 0 if there was none."""
    delivered: tuple[int, ...] = ()
    prices: tuple[int, ...] = ()
    """Of one result of each definition."""
    reason: str = ""
    needs: tuple[int, ...] = ()
    """What a send of it takes of its account: slots, results and credits of a day."""
    types: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()


class PostingFact(Fact, frozen=True, gc=False):
    """A move on a meter. ``attempt`` 0 is the hold on the user's day. An expiry has no measurement and stands first."""

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
