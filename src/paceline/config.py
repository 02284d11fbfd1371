"""Settings: one TOML file, overridden by PACELINE_… in the environment, overridden by flags. Frozen once read."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from paceline.core.durations import DURATION_RULE, parse_duration_ms
from paceline.core.monitors.checks import ANSWER_BYTES_MAX
from paceline.errors import WrongSetting

DEFAULT_FILE = Path("paceline.toml")
_AWS_URL = re.compile(r"aws://\?prefix=(?P<prefix>[a-z][a-z0-9-]{0,39})")


def _duration(text: str) -> str:
    if not parse_duration_ms(text):
        raise ValueError(f"write {DURATION_RULE}, more than zero")
    return text


def _store_url(url: str) -> str:
    if url.startswith("aws://"):
        aws_prefix(url)
    elif not url.startswith("sqlite:///") or not PurePath(url.removeprefix("sqlite:///")).name:
        raise ValueError("write sqlite:///path/to/file.db or aws://?prefix=paceline")
    return url


def aws_prefix(url: str) -> str | None:
    """Return the prefix of the names of tables and queues; None: the store is not on AWS."""
    if not url.startswith("aws://"):
        return None
    match = _AWS_URL.fullmatch(url)
    if match is None:
        rule = "a lower-case letter, then up to 39 of a-z 0-9 -"
        raise ValueError(f"write aws://?prefix=paceline, with a prefix of {rule}; all else is as boto3 finds it")
    return match["prefix"]


def _networks(text: str) -> str:
    for part in filter(None, (part.strip() for part in text.split(","))):
        ipaddress.ip_network(part)
    return text


def _http_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("write an http:// or https:// URL")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("write the URL without a user, a query and a fragment")
    return url


Duration = Annotated[str, AfterValidator(_duration)]


class Settings(BaseSettings):
    """Every setting, with its default. docs/reference/settings.md lists them; a test compares the two."""

    model_config = SettingsConfigDict(env_prefix="PACELINE_", frozen=True, extra="forbid")

    store: Annotated[str, AfterValidator(_store_url)] = Field(
        "sqlite:///paceline.db", description="Storage engine and location of the data."
    )
    secret_key: SecretStr | None = Field(
        None,
        description="Keys the hashes of tokens and seals stored secrets; created beside the SQLite file if not given.",
    )
    host: str = Field("127.0.0.1", description="Address that the API listens on.")
    port: int = Field(8080, ge=0, le=65_535, description="Port that the API listens on; 0: any free port.")
    outbound_allow: Annotated[str, AfterValidator(_networks)] = Field(
        "",
        description="Private address ranges that checks and calls may reach, separated by commas; empty: none.",
    )
    atlas_url: Annotated[str, AfterValidator(_http_url)] = Field(
        "https://atlas.ripe.net", description="Base URL of the RIPE Atlas API."
    )
    atlas_sends_max: int = Field(
        1,
        ge=1,
        le=16,
        description="Maximum number of measurements that all processes together send to RIPE at the same time.",
    )
    atlas_every: Duration = Field(
        "30s",
        description="How often the state of running measurements is read from RIPE, and completed jobs are finished.",
    )
    atlas_settle: Duration = Field(
        "60s",
        description="How long RIPE may take to list a new measurement; a send without an answer is looked up twice "
        "after this time before it is repeated.",
    )
    job_measurements_max: int = Field(10_000, ge=1, le=10_000, description="Maximum number of measurements in one job.")
    tls_cert: Path | None = Field(
        None, description="PEM file with the API's certificate chain; the API then speaks HTTPS only."
    )
    tls_key: Path | None = Field(None, description="PEM file with the private key of `tls_cert`, without a password.")
    tls_self_signed: bool = Field(
        False, description="Serve HTTPS with a self-signed certificate; its CA file is written beside the SQLite file."
    )
    synchronous: Literal["full", "normal"] = Field(
        "full",
        description="Durability of SQLite: with full, data survives a power cut; with normal, a crash of the process.",
    )
    log_format: Literal["auto", "json", "text"] = Field(
        "auto", description="Format of the log; auto: text on a terminal and JSON elsewhere."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Lowest level that is logged.")
    every_min: Duration = Field("1s", description="Shortest interval that a monitor may have.")
    monitors_max: int = Field(10_000, ge=1, description="Maximum number of monitors of one user.")
    firings_per_second_max: int = Field(
        20_000,
        ge=0,
        description="Maximum number of firings per second of all monitors of one user together; 0: no limit.",
    )
    body_bytes_max: int = Field(8_388_608, ge=1_024, description="Largest request body in bytes.")
    body_timeout: Duration = Field("30s", description="How long a request body may take to arrive.")
    answer_timeout: Duration = Field(
        "30s", description="How long a client may stop reading an answer before its connection is closed."
    )
    connections_max: int = Field(1_000, ge=1, description="Maximum number of open connections to the API.")
    connections_per_address_max: int = Field(
        500,
        ge=1,
        description="Maximum number of open connections from one address; behind a proxy, all come from its address.",
    )
    bulk_max: int = Field(10_000, ge=1, description="Maximum number of monitors in one bulk request.")
    page_max: int = Field(1_000, ge=1, le=1_000, description="Maximum number of items on one page of a list.")
    checks_in_flight_max: int = Field(
        500, ge=1, le=10_000, description="Maximum number of checks that run at the same time."
    )
    checks_bytes_max: int = Field(
        67_108_864,
        ge=ANSWER_BYTES_MAX,
        description="Memory for the answers to checks, in bytes; with little memory, fewer checks run at once.",
    )
    checks_per_owner_max: int | None = Field(
        None, ge=1, description="Maximum number of one user's checks at the same time; by default four fifths of all."
    )
    checks_per_target_max: int | None = Field(
        None,
        ge=1,
        description="Maximum number of checks of one host and port at the same time; by default four fifths of all.",
    )
    drain_timeout: Duration = Field(
        "10s",
        description="How long a stopping process waits for running checks and calls before it gives back those it can.",
    )
    check_lease: Duration = Field("3m", description="How long a check may run before another process takes it over.")
    calls_in_flight_max: int = Field(
        500, ge=1, le=10_000, description="Maximum number of calls to providers at the same time."
    )
    call_lease: Duration = Field(
        "30s", description="How much longer than its provider's timeout a call may run before it counts as lost."
    )
    attempts_max: int = Field(
        5,
        ge=1,
        le=100,
        description="Maximum number of attempts of a monitor's run; an outgoing run that asks for more is dead.",
    )
    retry_base: Duration = Field(
        "1s", description="Longest pause before the first retry; it doubles with each further retry."
    )
    retry_cap: Duration = Field("5m", description="Longest pause before any retry.")
    missed_grace: Duration = Field("30s", description="How late a firing may be handled before it counts as missed.")
    missed_max: int = Field(
        100, ge=1, le=10_000, description="Maximum number of missed runs that `missed: all` makes up for."
    )
    catch_up_per_second: int = Field(
        20,
        ge=1,
        le=65_535,
        description="Maximum number of missed runs of all monitors together that start in one second.",
    )
    waiting_runs_max: int = Field(
        100,
        ge=1,
        le=10_000,
        description="Maximum number of runs of a monitor with `overlap: queue` that wait behind its first run, "
        "including runs that make up for missed ones; the newest are kept.",
    )
    missed_window: Duration = Field(
        "10m", description="Longest time over which the missed runs of one monitor are spread."
    )
    runs_keep: Duration = Field("7d", description="How long settled runs are kept.")
    runs_expire: Duration = Field("1d", description="How long a run may wait to be claimed before it is dead.")
    dead_keep: Duration = Field(
        "90d", description="How long dead letters are kept if nobody redrives or discards them."
    )
    jobs_keep: Duration = Field("90d", description="How long finished jobs and their postings are kept.")
    alerts_keep: Duration = Field("90d", description="How long alerts are kept, unless they are still open.")
    wrong_tokens_max: int = Field(
        30, ge=1, description="Number of wrong tokens per minute from one address after which further ones get 429."
    )

    @property
    def check_places(self) -> int:
        """Return how many checks may be out at once, so that their answers keep within ``checks_bytes_max``."""
        return min(self.checks_in_flight_max, self.checks_bytes_max // ANSWER_BYTES_MAX)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        del dotenv_settings, file_secret_settings
        file = cls.model_config.get("toml_file")
        sources = (init_settings, env_settings)
        return (*sources, TomlConfigSettingsSource(settings_cls)) if file else sources


def load_settings(file: Path | None = None, **flags: Any) -> Settings:
    """Return the settings: flags over environment over file. WrongSetting names a wrong one in one clear line."""
    if file is not None and not file.is_file():
        raise WrongSetting(f"--config {file}: there is no such file.")
    path = file or DEFAULT_FILE
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        return _bound_to(path)(**given) if path.is_file() else Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"]) or "settings"
        detail = first["msg"].removeprefix("Value error, ")
        raise WrongSetting(f"PACELINE_{name.upper()} (or {name} in {path.name}): {detail}.") from None
    except (ValueError, OSError) as error:
        raise WrongSetting(f"{path}: cannot be read as TOML: {error}.") from None


def _bound_to(path: Path) -> type[Settings]:
    class FileSettings(Settings):
        model_config = SettingsConfigDict(toml_file=path)

    return FileSettings
