"""``paceline token``: what a user shows to be let in."""

from __future__ import annotations

import secrets
from typing import Annotated

import msgspec
import typer

from paceline.errors import NotFound
from paceline.shells.cli.call import Call, UserOption, command, owner_id
from paceline.shells.cli.output import print_json, print_line, print_note, print_table
from paceline.steps import access, report

app = typer.Typer(name="token", help="Make, list and revoke tokens.")

UserArgument = Annotated[str | None, typer.Argument(metavar="USER", help="The same as --user.")]


@command(app, "new")
def new(
    call: Call,
    name: UserArgument = None,
    *,
    user: UserOption = None,
    label: Annotated[str, typer.Option(metavar="TEXT", help="What the token is for.")] = "",
) -> None:
    """Make another token for a user and print it. It is shown this once."""
    with call.system() as system:
        made = access.add_token(
            system.store,
            owner_id(system, name or user),
            label=label,
            token_bytes=secrets.token_bytes(access.TOKEN_BYTES),
            secret_key=system.secret_key,
            now_ms=system.clock.now_ms(),
        )
    if call.as_json:
        print_json(
            {"user": made.token.user, **msgspec.to_builtins(report.token_view(made.token)), "token": made.secret}
        )
        return
    print_note(f"A new token of {made.token.user}, id {made.token.id}. It is shown only now; keep it:")
    print_line(made.secret)


@command(app, "list")
def list_tokens(call: Call, name: UserArgument = None, *, user: UserOption = None) -> None:
    """List a user's tokens; the secrets themselves are stored nowhere."""
    with call.system() as system:
        views = [report.token_view(token) for token in system.store.tokens(owner_id(system, name or user))]
    if call.as_json:
        print_json({"items": views, "next_cursor": None})
    else:
        print_table(["TOKEN ID", "LABEL", "CREATED"], [(view.id, view.label, view.created_at) for view in views])


@command(app, "revoke")
def revoke(
    call: Call,
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="The token's id, or the token itself.")],
    *,
    user: UserOption = None,
) -> None:
    """Revoke a token; the next request with it is refused."""
    token_id = _id_of(token)
    with call.system() as system:
        found = system.store.token(token_id)
        if found is None or user not in (None, found[1].id):
            raise NotFound(f"There is no token {token_id!r}. See: paceline token list")
        access.revoke_token(system.store, found[1].id, token_id)
    if call.as_json:
        print_json({"revoked": token_id})
    else:
        print_line(f"Revoked token {token_id} of {found[1].id}.")


def _id_of(token: str) -> str:
    """The id inside ``pl_<id>_<secret>``, so that the secret is neither looked up nor shown again."""
    return token.split("_", 2)[1][:64] if token.startswith("pl_") else token[:64]
