"""Decides where a command goes: to the store, or over REST to a Paceline that was named or logged in to."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

import msgspec

from paceline.errors import InvalidInput
from paceline.shells.cli.files import open_private
from paceline.shells.cli.output import print_note

TOKEN_CHARS_MAX = 1_024
ON_COMMAND_LINE = (
    "Warning: a token on the command line can be read by other users of this machine and stays in the shell's history."
    " Use --token-file, PACELINE_TOKEN or paceline login instead."
)


class Login(msgspec.Struct, frozen=True):
    """Address of a Paceline, and the token for it."""

    url: str
    token: str
    ca_file: str | None = None


class RemoteOptions(NamedTuple):
    """Options that name another Paceline."""

    url: str | None = None
    token: str | None = None
    token_file: Path | None = None
    ca_file: Path | None = None


def login_file() -> Path:
    """Returns the path of the file that keeps the login, in the user's folder for settings."""
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "paceline" / "login.json"


def read_login() -> Login | None:
    file = login_file()
    try:
        body = file.read_bytes()
    except OSError:
        return None
    if stat.S_IMODE(file.stat().st_mode) & 0o077:
        raise InvalidInput(f"{file} can be read by others. Make it yours alone: chmod 600 {file}; or paceline logout.")
    try:
        return msgspec.json.decode(body, type=Login)
    except msgspec.MsgspecError:
        raise InvalidInput(f"{file} is damaged. Log in again: paceline login; or paceline logout.") from None


def write_login(login: Login) -> Path:
    """Writes the file with mode 0600, completely or not at all. Returns its path."""
    file = login_file()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open_private(file) as stream:
        stream.write(msgspec.json.encode(login))
    return file


def named_url(options: RemoteOptions) -> str | None:
    """Returns the address that --url or PACELINE_URL gives for this command."""
    return options.url or os.environ.get("PACELINE_URL") or None


def find_login(options: RemoteOptions, *, as_json: bool) -> Login | None:
    """Returns the Paceline to ask over REST: the one that is named, else the one logged in to; None if none is."""
    saved, url = read_login(), named_url(options)
    if url is None:
        if saved is None and (options.token or options.token_file):
            raise InvalidInput("A token needs --url or PACELINE_URL: say which Paceline it belongs to.")
        return saved
    url = url.rstrip("/")
    known = saved if saved is not None and saved.url == url else None
    token = given_token(options, as_json=as_json) or (known and known.token)
    if not token:
        raise InvalidInput(f"{url} needs a token: --token-file FILE, PACELINE_TOKEN, or paceline login.")
    return Login(url, token, given_ca(options) or (known.ca_file if known else None))


def given_token(options: RemoteOptions, *, as_json: bool) -> str | None:
    """Returns the token of --token, --token-file or PACELINE_TOKEN."""
    if options.token is not None:
        if not as_json:
            print_note(ON_COMMAND_LINE)
        return options.token
    if options.token_file is not None:
        try:
            token = options.token_file.read_text()[:TOKEN_CHARS_MAX].strip()
        except (OSError, UnicodeDecodeError) as error:
            words = getattr(error, "strerror", None) or "it is not text in UTF-8"
            raise InvalidInput(f"--token-file {options.token_file} cannot be read: {words}.") from None
        if not token:
            raise InvalidInput(f"--token-file {options.token_file} is empty.")
        return token
    return os.environ.get("PACELINE_TOKEN") or None


def given_ca(options: RemoteOptions) -> str | None:
    named = options.ca_file or os.environ.get("PACELINE_CA_FILE")
    return str(Path(named).absolute()) if named else None
