"""Composition root: settings become a store, a provider, a clock. The only place that knows all adapters."""

from __future__ import annotations

import hashlib
import os
import secrets
import ssl
import stat
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, TypedDict

from paceline.adapters.sqlite.identity import is_store
from paceline.adapters.sqlite.store import SqliteStore
from paceline.config import Settings, aws_prefix
from paceline.core.batches.provider import DAY_MS, TIMEOUT_MS_MAX
from paceline.core.engine_traits import EngineTraits
from paceline.core.instants import to_datetime
from paceline.core.jobs.atlas import RETRY_AFTER_MS_MAX
from paceline.core.jobs.job import JobLimits
from paceline.core.monitors.definition import SpecLimits, duration_ms
from paceline.core.monitors.dispatch import RetryPolicy
from paceline.core.monitors.due import CatchUp
from paceline.core.monitors.places import ceiling_of
from paceline.errors import StoreUnavailable, WrongSecretKey, WrongSetting
from paceline.ports import Atlas, Caller, Clock, Messenger, Provider, Store, Vault
from paceline.ports.record_table import RecordTable
from paceline.steps.ahead.facts import PlaceSettings
from paceline.steps.upkeep.clock import LongestWaits
from paceline.steps.upkeep.secret import WAY_OUT, adopt_secret, check_secret, compare_secret, needs_its_key

if TYPE_CHECKING:  # boto3 is an extra
    from paceline.adapters.aws.store import AwsStore

SECRET_BYTES_MIN = 16
DOWNLOAD_BYTES_MAX = 1 << 34
"""Maximum size of a download: a file of a million records has about a gigabyte at most."""
OTHERS = stat.S_IRWXG | stat.S_IRWXO


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class Tls(NamedTuple):
    """Files for HTTPS. ``key`` None: it is in ``cert``. ``authority``: the file to hand to clients."""

    cert: Path
    key: Path | None = None
    authority: Path | None = None


class UserLimits(TypedDict):
    """Limits on the monitors of one user, by the names of the steps' arguments."""

    monitors_max: int
    firings_max: int


class LazyVault:
    """A ``ports.Vault`` that reads its key when it is first used: other commands need no key, and start faster."""

    def __init__(self, secret_key: Callable[[], bytes]) -> None:
        self._secret_key = secret_key

    def seal(self, secret: str) -> str:
        return self._vault.seal(secret)

    def unseal(self, sealed: str) -> str:
        return self._vault.unseal(sealed)

    @cached_property
    def _vault(self) -> Vault:
        return _open_vault(self._secret_key())


@dataclass(frozen=True)
class System:
    """Everything that a shell needs."""

    settings: Settings
    store: Store
    clock: Clock
    takes_key: bool = True
    """True if a store without a check value gets one. False for a function whose role may only read there."""

    @cached_property
    def secret_key(self) -> bytes:
        """Return the key, read when it is first needed: a command without need for it makes no key file.

        Raise WrongSecretKey if it is not the key that the store was made with.
        """
        key, now_ms = find_secret_key(self.settings), self.clock.now_ms()
        if key is None:
            path = key_path(self.settings)
            if needs_its_key(self.store, now_ms=now_ms):
                raise WrongSecretKey(f"PACELINE_SECRET_KEY: it is not set, and there is no key file {path}. {WAY_OUT}")
            _make_key_file(path)
            key = _read_key_file(path)
        if self.takes_key:
            check_secret(self.store, _open_vault(key), now_ms=now_ms)
        else:
            compare_secret(self.store, _open_vault(key))
        return key

    @cached_property
    def vault(self) -> Vault:
        """Return the vault, which is opened when something is sealed or unsealed."""
        return LazyVault(lambda: self.secret_key)

    @cached_property
    def tls(self) -> Tls | None:
        """Return the files for HTTPS, made or read when they are first needed; None: plain HTTP."""
        return open_tls(self.settings, self.clock)

    @property
    def limits(self) -> SpecLimits:
        return SpecLimits(every_ms_min=duration_ms(self.settings.every_min))

    @property
    def user_limits(self) -> UserLimits:
        settings = self.settings
        return UserLimits(monitors_max=settings.monitors_max, firings_max=settings.firings_per_second_max)

    @property
    def catch_up(self) -> CatchUp:
        settings = self.settings
        return CatchUp(
            grace_ms=duration_ms(settings.missed_grace),
            runs_max=settings.missed_max,
            window_ms=duration_ms(settings.missed_window),
            per_second=settings.catch_up_per_second,
            waiting_max=settings.waiting_runs_max,
        )

    @property
    def ahead_places(self) -> PlaceSettings:
        settings = self.settings
        of_one = settings.checks_per_owner_max or ceiling_of(settings.check_places)
        return PlaceSettings(settings.check_places, of_one, settings.atlas_sends_max)

    @property
    def traits(self) -> EngineTraits:
        return self.store.traits

    @property
    def run_wait_ms_max(self) -> int:
        """Return the longest wait of a retry or a catch-up."""
        return max(duration_ms(self.settings.retry_cap), duration_ms(self.settings.missed_window))

    @property
    def call_wait_ms_max(self) -> int:
        """Return the longest time of a retry, a ``Retry-After``, an open breaker and a lease of a call."""
        return max(DAY_MS, TIMEOUT_MS_MAX + duration_ms(self.settings.call_lease))

    @property
    def job_limits(self) -> JobLimits:
        return JobLimits(bytes_max=self.settings.body_bytes_max, measurements_max=self.settings.job_measurements_max)

    @property
    def send_wait_ms_max(self) -> int:
        """Return the longest wait of a parked try, a lookup, a pause that RIPE asks for and a webhook."""
        return max(RETRY_AFTER_MS_MAX, duration_ms(self.settings.atlas_settle))

    @property
    def waits(self) -> LongestWaits:
        """Return the longest waits, by which a clock that was set back is judged."""
        return LongestWaits(self.run_wait_ms_max, self.call_wait_ms_max, self.send_wait_ms_max)

    @property
    def retry_policy(self) -> RetryPolicy:
        settings = self.settings
        return RetryPolicy(
            attempts_max=settings.attempts_max,
            base_ms=duration_ms(settings.retry_base),
            cap_ms=duration_ms(settings.retry_cap),
        )


def open_system(settings: Settings, *, clock: Clock | None = None) -> System:
    """Open the store, bringing the schema of a SQLite file up to date; on AWS, ``paceline aws init`` did that.

    ``clock``: another than the machine's, for a store in memory.
    """
    if settings.secret_key is not None:
        find_secret_key(settings)  # one that is too short is refused before anything is opened
    if (prefix := aws_prefix(settings.store)) is not None:
        return System(settings, _open_aws(prefix, settings), SystemClock())
    clock = clock or SystemClock()
    return System(settings, SqliteStore(sqlite_path(settings), synchronous=settings.synchronous, clock=clock), clock)


def has_store(url: str) -> bool:
    """Return whether a store exists; always True on AWS, where opening makes nothing and the first request shows it."""
    return aws_prefix(url) is not None or is_store(url.removeprefix("sqlite:///"))


class AwsParts(NamedTuple):
    """Full names of tables and queues. ``differences``: parts that are not as they should be, in words."""

    created: tuple[str, ...]
    existing: tuple[str, ...]
    differences: tuple[str, ...]


def make_aws(prefix: str, settings: Settings) -> AwsParts:
    """Make the tables and queues that are missing; existing ones are inspected and left as they are."""
    store = _open_aws(prefix, settings)
    try:
        return AwsParts(*store.create())
    finally:
        store.close()


def aws_prefixes() -> list[str]:
    """Return the prefixes of stores in this region; none if tables may not be listed."""
    from paceline.adapters.aws.client.connect import close_clients, open_clients  # noqa: PLC0415  boto3 is an extra
    from paceline.adapters.aws.client.tables import prefixes  # noqa: PLC0415

    clients = open_clients()
    try:
        return prefixes(clients)
    except StoreUnavailable:
        return []
    finally:
        close_clients(clients)


def _open_aws(prefix: str, settings: Settings) -> AwsStore:
    try:
        from paceline.adapters.aws.client.expiry import Retention  # noqa: PLC0415  boto3 is an extra, and slow to import
        from paceline.adapters.aws.store import AwsStore  # noqa: PLC0415
    except ImportError as error:
        missing = error.name or "boto3"
        raise WrongSetting(f"PACELINE_STORE: {missing} is missing. Install Paceline with its extra aws.") from None
    retention = Retention(
        runs_ms=duration_ms(settings.runs_keep),
        dead_ms=duration_ms(settings.dead_keep),
        alerts_ms=duration_ms(settings.alerts_keep),
    )
    store = AwsStore(prefix, clock=SystemClock(), retention=retention)
    # Loops look by themselves, and where functions run, the stream of the entries sets every alarm.
    store.alarms.sends = False
    return store


def open_provider(settings: Settings, clock: Clock, *, own: Sequence[tuple[str, int]] = ()) -> Provider:
    """Return the edge for checks. ``own``: the addresses of our own API, which no check may reach."""
    from paceline.adapters.providers.checks import CheckProvider  # noqa: PLC0415  a command that sends nothing starts sooner

    return CheckProvider(allow=_allowed(settings), clock=clock, own=own)


def open_caller(settings: Settings, clock: Clock, *, own: Sequence[tuple[str, int]] = ()) -> Caller:
    """Return the edge for calls. ``own``: the addresses of our own API, which no call may reach."""
    from paceline.adapters.providers.calls import HttpCaller  # noqa: PLC0415  a command that sends nothing starts sooner

    return HttpCaller(allow=_allowed(settings), clock=clock, own=own)


def open_messenger(settings: Settings, clock: Clock, *, own: Sequence[tuple[str, int]] = ()) -> Messenger:
    """Return the edge for alerts. ``own``: the addresses of our own API, which no message may reach."""
    from paceline.adapters.providers.messenger import HttpMessenger  # noqa: PLC0415  a command that sends nothing starts sooner

    return HttpMessenger(allow=_allowed(settings), clock=clock, own=own)


def download_file(settings: Settings, url: str, into: BinaryIO) -> None:
    """Write the answer of the URL into the file.

    InvalidInput says why it cannot be downloaded, also if the guard forbids its address.
    """
    from paceline.adapters.providers.download import download  # noqa: PLC0415  a command that sends nothing starts sooner

    download(url, into, allow=_allowed(settings), bytes_max=DOWNLOAD_BYTES_MAX)


def open_record_table(name: str) -> RecordTable:
    """Return a DynamoDB table; region, credentials and endpoint are found as boto3 finds them."""
    try:
        from paceline.adapters.aws.record_table import DynamoRecords  # noqa: PLC0415  an extra, which may be missing
    except ModuleNotFoundError:
        raise WrongSetting("dynamodb:// needs boto3. Install Paceline with its extra aws.") from None
    return DynamoRecords(name)


def open_atlas(settings: Settings, *, own: Sequence[tuple[str, int]] = ()) -> Atlas:
    """Return a RIPE Atlas client.

    One thread drives it, so each thread opens its own. ``own``: addresses of our own API.
    """
    from paceline.adapters.providers.ripe_atlas import RipeAtlas  # noqa: PLC0415  a command that sends nothing starts sooner

    return RipeAtlas(settings.atlas_url, allow=_allowed(settings), own=own)


def open_tls(settings: Settings, clock: Clock) -> Tls | None:
    """Return the files that the settings name, tested; or own certificates, made or renewed beside the SQLite file."""
    cert, key = settings.tls_cert, settings.tls_key
    if settings.tls_self_signed:
        if cert or key:
            raise WrongSetting("PACELINE_TLS_SELF_SIGNED: either this, or PACELINE_TLS_CERT and PACELINE_TLS_KEY.")
        return _self_signed(settings, clock)
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        given, missing = ("TLS_KEY", "TLS_CERT") if cert is None else ("TLS_CERT", "TLS_KEY")
        raise WrongSetting(f"PACELINE_{given} needs PACELINE_{missing} (or --{missing.lower().replace('_', '-')}) too.")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=_no_password)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        words = getattr(error, "strerror", None) or str(error)
        raise WrongSetting(f"PACELINE_TLS_CERT {cert}, PACELINE_TLS_KEY {key}: cannot be used: {words}.") from None
    return Tls(cert, key)


def _self_signed(settings: Settings, clock: Clock) -> Tls:
    from paceline.adapters.certificates import make_certificates, own_names  # noqa: PLC0415  most start without them

    path = sqlite_path(settings)
    folder, stem = Path(path).parent, Path(path).stem
    if path == ":memory:" or not settings.store.startswith("sqlite:///"):
        folder, stem = _passing_folder(), "paceline"
    try:
        made = make_certificates(folder, stem, names=own_names(settings.host), now=to_datetime(clock.now_ms()))
    except OSError as error:
        raise WrongSetting(f"PACELINE_TLS_SELF_SIGNED: cannot write in {folder}: {error.strerror}.") from None
    return Tls(made.server, None, made.authority)


@cache
def _passing_folder() -> Path:
    """Return a temporary folder of this process, for a store that is no file."""
    return Path(tempfile.mkdtemp(prefix="paceline-"))


def _no_password() -> str:
    raise ValueError("the key has a password; give one without")


def _allowed(settings: Settings) -> list[IPv4Network | IPv6Network]:
    parts = filter(None, (part.strip() for part in settings.outbound_allow.split(",")))
    return [ip_network(part) for part in parts]


def sqlite_path(settings: Settings) -> str:
    return settings.store.removeprefix("sqlite:///")


def find_secret_key(settings: Settings) -> bytes | None:
    """Return the key that is set, or the one in the file beside the SQLite file; None: there is no such file yet."""
    if settings.secret_key is not None:
        text = settings.secret_key.get_secret_value()
        if len(text) < SECRET_BYTES_MIN:
            raise WrongSetting(f"PACELINE_SECRET_KEY: give at least {SECRET_BYTES_MIN} characters.")
        return hashlib.sha256(text.encode()).digest()
    if aws_prefix(settings.store) is not None:
        raise WrongSetting(
            "PACELINE_SECRET_KEY: a store on AWS has no file to keep it beside: set it, the same for every process "
            f"(at least {SECRET_BYTES_MIN} characters, kept in a secret of your deployment)."
        )
    if sqlite_path(settings) == ":memory:":
        return secrets.token_bytes(32)
    path = key_path(settings)
    return _read_key_file(path) if path.exists() else None


def key_path(settings: Settings) -> Path:
    return Path(sqlite_path(settings)).with_suffix(".key")


def has_key(settings: Settings) -> bool:
    """Return whether a key is set or is in a file beside the store."""
    if settings.secret_key is not None:
        return True
    return aws_prefix(settings.store) is None and key_path(settings).exists()


def secret_problem(system: System) -> str | None:
    """Return what is wrong with the key, for ``paceline check``; None without a key, as there is nothing to compare."""
    if not has_key(system.settings):
        return None
    try:
        _ = system.secret_key
    except WrongSecretKey as error:
        return error.detail
    return None


def keep_check_value(system: System) -> None:
    """Keep the check value of the secret key in a store that has none yet. Raise WrongSecretKey for another key."""
    check_secret(system.store, _open_vault(system.secret_key), now_ms=system.clock.now_ms())


def adopt_key(system: System) -> bool:
    """Make the key that is set, or that is beside the store, the store's own. False: it is already."""
    key = find_secret_key(system.settings)
    if key is None:
        _make_key_file(key_path(system.settings))
        key = _read_key_file(key_path(system.settings))
    return adopt_secret(system.store, _open_vault(key))


def store_files(settings: Settings) -> list[Path]:
    """Return the files of a SQLite store and its key, as far as they exist."""
    if aws_prefix(settings.store) is not None or sqlite_path(settings) == ":memory:":
        return []
    store = sqlite_path(settings)
    files = [Path(store), Path(f"{store}-wal"), Path(f"{store}-shm"), key_path(settings)]
    return [file for file in files if file.exists()]


def exposed_files(settings: Settings) -> list[Path]:
    """Return the files of the store and its key that others than their owner can read or write."""
    return [file for file in store_files(settings) if file.stat().st_mode & OTHERS]


def _open_vault(key: bytes) -> Vault:
    from paceline.adapters.vault import SecretVault  # noqa: PLC0415  most commands seal nothing and start sooner

    return SecretVault(key)


def _read_key_file(path: Path) -> bytes:
    return hashlib.sha256(path.read_text().strip().encode()).digest()


def _make_key_file(path: Path) -> None:
    """Make the key file: written whole beside its place, then linked, so that two first starts use the same key."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32) + "\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
