"""``paceline login`` and ``paceline logout``: choose another Paceline that commands ask from now on."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Annotated

from paceline.errors import InvalidInput
from paceline.shells.cli import logins
from paceline.shells.cli.call import CliCall
from paceline.shells.cli.options import option
from paceline.shells.cli.output import emit
from paceline.steps.views.report import UserView


def login(
    call: CliCall,
    *,
    url: Annotated[str | None, option("URL", "Its address. [default: $PACELINE_URL, else you are asked]")] = None,
    token_file: Annotated[
        Path | None, option("FILE", "A file with the token. [default: $PACELINE_TOKEN, else you are asked]")
    ] = None,
    ca_file: Annotated[
        Path | None, option("FILE", "CA certificates to trust, PEM. [default: $PACELINE_CA_FILE]")
    ] = None,
) -> None:
    """Log in to another Paceline: try the address and the token, and keep both. Commands then ask it over REST."""
    from paceline.shells.cli.remote import Remote

    asked = logins.RemoteOptions(
        url or call.remote.url,
        call.remote.token,
        token_file or call.remote.token_file,
        ca_file or call.remote.ca_file,
    )
    address = logins.named_url(asked) or _ask_url()
    token = logins.given_token(asked, as_json=call.as_json) or _ask_token()
    wanted = logins.Login(address.rstrip("/"), token, logins.given_ca(asked))
    remote = Remote(wanted)
    try:
        user = remote.get("/v1/users/{user}", UserView, user="me")
    finally:
        remote.close()
    file = logins.write_login(wanted)
    document = {"url": wanted.url, "user": user.id, "role": user.role, "file": str(file)}
    emit(call, document, f"Logged in to {wanted.url} as {user.role} {user.id}. The token is in {file}.")


def logout(call: CliCall) -> None:
    """Log out: forget the address and the token. The token itself stays valid until it is revoked."""
    known = _known()
    logins.login_file().unlink(missing_ok=True)
    text = f"Logged out of {known}." if known else "You were not logged in."
    emit(call, {"url": known}, text)


def _known() -> str | None:
    """Returns the address of the login, or the file's path if it cannot be read; None if there is none."""
    try:
        saved = logins.read_login()
    except InvalidInput:
        return str(logins.login_file())
    return saved.url if saved else None


def _ask_url() -> str:
    if sys.stdin.isatty():
        return input("Address, for example https://paceline.example: ").strip()
    raise InvalidInput("Say where: paceline login --url https://paceline.example, or PACELINE_URL.")


def _ask_token() -> str:
    """Asks a person without an echo, or reads one line of stdin."""
    if sys.stdin.isatty():
        return getpass.getpass("Token (it is not shown): ").strip()
    token = sys.stdin.readline(logins.TOKEN_CHARS_MAX).strip()
    if not token:
        raise InvalidInput("stdin was empty; write the token to it, or use --token-file or PACELINE_TOKEN.")
    return token
