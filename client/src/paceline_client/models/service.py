"""Users and tokens, and the service itself."""

from __future__ import annotations

from datetime import datetime

from paceline_client.answers import Model
from paceline_client.models.states import AccountState, DaemonKind, DaemonState, Role


class User(Model, frozen=True):
    """A user of the service."""

    id: str
    role: Role
    daily_credits: int
    disabled: bool
    monitors: int
    created_at: datetime


class NewUser(Model, frozen=True):
    """A new user. ``token`` is shown only this once."""

    user: str
    token: str


class Token(Model, frozen=True):
    """A token without its secret. ``scope``: what the token may do; None: everything that its user may do."""

    id: str
    label: str
    scope: str | None
    expires: datetime | None
    created_at: datetime


class NewToken(Token, frozen=True):
    """A new token. ``token`` is shown only this once."""

    token: str


class Budget(Model, frozen=True):
    """A user's credits of the day."""

    user: str
    limit: int
    spent: int
    held: int
    left: int
    resets_at: datetime


class WebhookSecret(Model, frozen=True):
    """Secret that signs a user's webhooks."""

    secret: str


class SchedulerEntry(Model, frozen=True):
    """An entry of the scheduler."""

    key: str
    generation: int
    counter: int
    next_due: datetime | None
    owner: str


class Daemon(Model, frozen=True):
    """A process that works on the store."""

    id: str
    kind: DaemonKind
    state: DaemonState
    host: str
    pid: int
    url: str | None
    started_at: datetime
    seen_at: datetime


class AccountAside(Model, frozen=True):
    """An account that sends nothing now, and why."""

    id: str
    state: AccountState
    reason: str


class AtlasPause(Model, frozen=True):
    """Pause that RIPE asked for: no account sends before this time."""

    until: datetime
    reason: str


class Status(Model, frozen=True):
    """Counts and delays of the whole service. ``store``: storage engine and location of the data."""

    users: int
    monitors: int
    entries: int
    changes_pending: int
    runs_waiting: int
    runs_out: int
    next_due: datetime | None
    queue_age_s: float
    late_s: float
    start_late_s: dict[str, float]
    providers: int
    batches: int
    calls_waiting: int
    calls_for_workers: int
    dead_letters: int
    dead_messages: dict[str, int]
    call_age_s: float
    file_bytes: int
    daemons: list[Daemon]
    jobs_open: int
    measurements: dict[str, int]
    job_age_s: float
    accounts: int
    accounts_aside: list[AccountAside]
    atlas_pause: AtlasPause | None
    alerts_open: int
    alerts_failed: int
    store: str


class Alive(Model, frozen=True):
    """Sign that the process answers."""

    status: str = "ok"


class Loop(Model, frozen=True):
    """A loop of the daemon, and when it last turned."""

    name: str
    turning: bool
    seconds_since_turn: float


class Ready(Model, frozen=True):
    """State of the service: the store can be written and every loop turns."""

    status: str
    loops: list[Loop]
