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
        "sqlite:///paceline.db", description="The engine and where it keeps its data."
    )
    secret_key: SecretStr | None = Field(
        None,
        description="Keys the hashes of tokens and encrypts provider keys; made beside the SQLite file if not given.",
    )
    host: str = Field("127.0.0.1", description="The address the API listens on.")
    port: int = Field(8080, ge=0, le=65_535, description="The port the API listens on; 0 takes a free one.")
    outbound_allow: Annotated[str, AfterValidator(_networks)] = Field(
        "", description="Private ranges that checks and providers may reach, separated by commas; by default none."
    )
    atlas_url: Annotated[str, AfterValidator(_http_url)] = Field(
        "https://atlas.ripe.net", description="The base of the RIPE Atlas API."
    )
    atlas_sends_max: int = Field(
        1, ge=1, le=16, description="How many measurements are being sent to RIPE at once, by all processes together."
    )
    atlas_every: Duration = Field(
        "30s", description="How often RIPE is asked what became of what runs; jobs are finished as often."
    )
    atlas_settle: Duration = Field(
        "60s",
        description="How long RIPE's lists may lag: a lost send is looked up after it, twice, before it is repeated.",
    )
    job_measurements_max: int = Field(10_000, ge=1, le=10_000, description="How many measurements one job may have.")
    tls_cert: Path | None = Field(None, description="The API's certificate chain, PEM; it then speaks HTTPS only.")
    tls_key: Path | None = Field(None, description="The private key of `tls_cert`, PEM, without a password.")
    tls_self_signed: bool = Field(
        False, description="HTTPS with a certificate of its own, whose CA file is written beside the SQLite file."
    )
    synchronous: Literal["full", "normal"] = Field(
        "full", description="SQLite durability: full survives a power cut, normal a crash of the process."
    )
    log_format: Literal["auto", "json", "text"] = Field(
        "auto", description="auto writes text to a terminal and JSON elsewhere."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The least level that is logged."
    )
    every_min: Duration = Field("1s", description="The shortest interval a monitor may have.")
    monitors_max: int = Field(10_000, ge=1, description="How many monitors one user may have.")
    firings_per_second_max: int = Field(
        20_000,
        ge=0,
        description="How often a second the monitors of one user may fire together; 0: as often as they want.",
    )
    body_bytes_max: int = Field(8_388_608, ge=1_024, description="The largest request body in bytes.")
    body_timeout: Duration = Field("30s", description="How long a request body may take to arrive.")
    answer_timeout: Duration = Field(
        "30s", description="An answer of which the client takes nothing for so long is broken off."
    )
    connections_max: int = Field(1_000, ge=1, description="How many connections to the API may be open at once.")
    connections_per_address_max: int = Field(
        500, ge=1, description="How many of them may come from one address; behind a proxy, all do."
    )
    bulk_max: int = Field(10_000, ge=1, description="How many monitors one bulk request may carry.")
    page_max: int = Field(1_000, ge=1, le=1_000, description="How many items one page of a list may have.")
    checks_in_flight_max: int = Field(500, ge=1, le=10_000, description="How many checks are out at once.")
    checks_bytes_max: int = Field(
        67_108_864,
        ge=ANSWER_BYTES_MAX,
        description="How much memory answers to checks may take; fewer checks are out at once where it is little.",
    )
    checks_per_owner_max: int | None = Field(
        None, ge=1, description="How many checks of one user are out at once; four fifths of all if not given."
    )
    checks_per_target_max: int | None = Field(
        None, ge=1, description="How many checks of one host and port are out at once; four fifths of all if not given."
    )
    drain_timeout: Duration = Field(
        "10s",
        description="How long a stop waits for checks and calls in flight before it gives back those it can.",
    )
    check_lease: Duration = Field("3m", description="How long a check may be out before another process takes it over.")
    calls_in_flight_max: int = Field(500, ge=1, le=10_000, description="How many calls to providers are out at once.")
    call_lease: Duration = Field(
        "30s", description="How much longer than its provider's timeout a call may be out before it counts as lost."
    )
    attempts_max: int = Field(5, ge=1, le=100, description="After so many attempts an outgoing run is dead.")
    retry_base: Duration = Field(
        "1s", description="The first retry waits up to this long; each further one up to twice."
    )
    retry_cap: Duration = Field("5m", description="No retry waits longer than this.")
    missed_grace: Duration = Field("30s", description="A firing handled within this time is late, not missed.")
    missed_max: int = Field(100, ge=1, le=10_000, description="How many missed runs `missed: all` makes up for.")
    catch_up_per_second: int = Field(
        20, ge=1, le=65_535, description="How many missed runs of all monitors together may start in one second."
    )
    waiting_runs_max: int = Field(
        100,
        ge=1,
        le=10_000,
        description="How many runs of a monitor with `overlap: queue` may wait behind its first, queued or made up "
        "for; the newest are kept.",
    )
    missed_window: Duration = Field("10m", description="Missed runs of one monitor are spread over this time at most.")
    runs_keep: Duration = Field("7d", description="How long settled runs are kept.")
    runs_expire: Duration = Field("1d", description="A run that nobody claimed for this long is dead.")
    dead_keep: Duration = Field("90d", description="How long dead letters are kept that nobody redrives or discards.")
    jobs_keep: Duration = Field("90d", description="How long finished jobs and their postings are kept.")
    alerts_keep: Duration = Field("90d", description="How long alerts are kept that are over.")
    wrong_tokens_max: int = Field(
        30, ge=1, description="Wrong tokens per minute and address before answers slow to 429."
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
