"""``paceline export --as-code``: writes the definitions as a file for ``paceline apply``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paceline.core.as_code.declared import OF_USERS, normal, terse
from paceline.shells.cli.as_code.declarations import SECTIONS, USERS
from paceline.shells.cli.as_code.sides import RestSide, Side, StoreSide
from paceline.shells.cli.as_code.yaml_file import dump

if TYPE_CHECKING:
    from paceline.shells.cli.call import CliCall

HEAD = """\
# What this Paceline was told to do, for: paceline apply -f FILE
# A secret is shown as "***", which keeps the stored one. Give one as "${NAME}" to take it from the environment.
"""
_WORDS = {kind: word for word, kind in SECTIONS.items()}


def as_code(call: CliCall, user: str | None) -> str:
    """Returns the text of the file: all definitions that may be read, or those of one user."""
    return call.answer(lambda at: text_of(StoreSide(at), user), lambda remote: text_of(RestSide(remote), user))


def text_of(side: Side, user: str | None = None) -> str:
    """Returns the text of the file for one side. The same definitions give the same text."""
    whole: dict[str, Any] = {}
    of_users: dict[str, Any] = {}
    for kind, owner in side.scopes() if user is None else [(kind, user) for kind in sorted(OF_USERS)]:
        found = {
            item_id: terse(kind, normal(kind, document).document)
            for item_id, document in sorted(side.there(kind, owner).items())
        }
        if found:
            place = of_users.setdefault(owner, {}) if owner else whole
            place[_WORDS[kind]] = found
    document = whole | ({USERS: dict(sorted(of_users.items()))} if of_users else {})
    return HEAD + (dump(document) if document else "")
