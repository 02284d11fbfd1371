"""``paceline token``: make, list and revoke API tokens."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from paceline.errors import NotFound
from paceline.shells.cli.call import Call, command, owner_id
from paceline.shells.cli.options import UserOption
from paceline.shells.cli.output import Columns, Note, emit, emit_page
from paceline.steps import access
from paceline.steps.views import report

if TYPE_CHECKING:
    from paceline.wiring import System

app = typer.Typer(name="token", help="Make, list and revoke tokens.")

TOKEN_COLUMNS: Columns = {
    "TOKEN ID": "id",
    "LABEL": "label",
    "SCOPE": "scope",
    "EXPIRES": "expires",
    "CREATED": "created_at",
}
UserArgument = Annotated[str | None, typer.Argument(metavar="USER", help="The same as --user.")]


@command(app, "new")
def new(
    call: Call,
    name: UserArgument = None,
    *,
    user: UserOption = None,
    label: Annotated[str, typer.Option(metavar="TEXT", help="What the token is for.")] = "",
    scope: Annotated[
        str, typer.Option(metavar="SCOPE", help="read, checker or worker:PROVIDER. [default: all that its user may]")
    ] = "",
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="When it ends, for example 2027-01-01T00:00:00Z.")
    ] = None,
) -> None:
    """Make another token for a user and print it. It is shown this once."""
    made = call.on_store(
        lambda at: access.add_token(
            at.store,
            owner_id(at, name or user),
            label=label,
            token_bytes=secrets.token_bytes(access.TOKEN_BYTES),
            secret_key=at.secret_key,
            now_ms=at.clock.now_ms(),
            scope=scope,
            expires=expires,
        )
    )
    view = {"user": made.token.user, **msgspec.to_builtins(report.token_view(made.token)), "token": made.secret}
    note = Note(f"A new token of {made.token.user}, id {made.token.id}. It is shown only now; keep it:")
    emit(call, view, note, made.secret)


@command(app, "list")
def list_tokens(call: Call, name: UserArgument = None, *, user: UserOption = None) -> None:
    """List a user's tokens; the secrets themselves are stored nowhere."""
    tokens = call.on_store(lambda at: at.store.tokens(owner_id(at, name or user)))
    views = [report.token_view(token) for token in tokens]
    emit_page(call, views, TOKEN_COLUMNS)


@command(app, "revoke")
def revoke(
    call: Call,
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="The token's id, or the token itself.")],
    *,
    user: UserOption = None,
) -> None:
    """Revoke a token; the next request with it is refused."""
    token_id = _id_of(token)
    owner = call.on_store(_revoke, token_id, user)
    emit(call, {"revoked": token_id}, f"Revoked token {token_id} of {owner}.")


def _revoke(system: System, token_id: str, user: str | None) -> str:
    """Revokes the token, if it is the user's or none is named. Returns whose it was."""
    found = system.store.token(token_id)
    if found is None or user not in (None, found[1].id):
        raise NotFound(f"There is no token {token_id!r}. See: paceline token list")
    access.revoke_token(system.store, found[1].id, token_id)
    return found[1].id


def _id_of(token: str) -> str:
    """The id inside ``pl_<id>_<secret>``, so that the secret is neither looked up nor shown again."""
    return token.split("_", 2)[1][:64] if token.startswith("pl_") else token[:64]
