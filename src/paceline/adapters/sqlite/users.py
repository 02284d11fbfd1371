"""Users and tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.keys import outgoing_lane
from paceline.adapters.sqlite.monitors.definitions import record_changes
from paceline.core.admins import Standing, gives_up_admin, last_admin_words
from paceline.core.users import Token, TokenAdded, User, UserEdit
from paceline.errors import LastAdmin


def add_user(db: Connection, user: User) -> bool:
    row = db.execute(
        """INSERT INTO user (name, role, daily_credits, disabled, created_ms) VALUES (?, ?, ?, ?, ?)
           ON CONFLICT (name) DO NOTHING RETURNING id""",
        (user.id, user.role, user.daily_credits, int(user.disabled), user.created_ms),
    ).fetchone()
    if row is None:
        return False
    db.execute("INSERT INTO lane (id, owner, outgoing) VALUES (?, ?, 1)", (outgoing_lane(row[0]), row[0]))
    return True


def user(db: Connection, name: str) -> User | None:
    row = db.execute(
        "SELECT name, role, daily_credits, disabled, created_ms, monitors FROM user WHERE name = ?", (name,)
    ).fetchone()
    return _user(row) if row else None


def users(db: Connection, *, after: str, limit: int) -> list[User]:
    rows = db.execute(
        """SELECT name, role, daily_credits, disabled, created_ms, monitors FROM user
           WHERE name > ? ORDER BY name LIMIT ?""",
        (after, limit),
    )
    return [_user(row) for row in rows]


def edit_user(db: Connection, name: str, edit: UserEdit) -> User | None:
    role, disabled = edit.role, edit.disabled
    if role is not None or disabled is not None:
        _keep_an_admin(db, name, lambda now: Standing(role or now.role, now.disabled if disabled is None else disabled))
    row = db.execute(
        """UPDATE user SET role = coalesce(?, role), daily_credits = coalesce(?, daily_credits),
                           disabled = coalesce(?, disabled)
           WHERE name = ? RETURNING id""",
        (edit.role, edit.daily_credits, None if edit.disabled is None else int(edit.disabled), name),
    ).fetchone()
    if row is None:
        return None
    if edit.disabled is not None:
        _record_changes(db, row[0])
        # Held runs may be claimed again at once.
        db.execute("UPDATE open SET at_ms = 0 WHERE state = 'held'")
        db.execute("UPDATE lane SET ready_ms = 0 WHERE owner = ? OR id IN (SELECT lane FROM open WHERE at_ms = 0)", row)
    return user(db, name)


def remove_user(db: Connection, name: str) -> bool:
    row = db.execute("SELECT id FROM user WHERE name = ?", (name,)).fetchone()
    if row is None:
        return False
    _keep_an_admin(db, name, lambda _: None)
    _record_changes(db, row[0])
    db.execute("DELETE FROM monitor WHERE owner = ?", row)
    db.execute("DELETE FROM token WHERE user = ?", row)
    db.execute("UPDATE lane SET owner = NULL, ready_ms = 0 WHERE owner = ?", row)
    db.execute("DELETE FROM user WHERE id = ?", row)
    return True


def add_token(db: Connection, token: Token, *, tokens_max: int) -> TokenAdded:
    row = db.execute(
        "SELECT id, (SELECT count(*) FROM token WHERE token.user = user.id) FROM user WHERE name = ?", (token.user,)
    ).fetchone()
    if row is None:
        return "no_user"
    owner, tokens_now = row
    if tokens_now >= tokens_max:
        return "full"
    db.execute(
        "INSERT INTO token (id, user, label, digest, created_ms, scope, expires_ms) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (token.id, owner, token.label, token.digest, token.created_ms, token.scope, token.expires_ms),
    )
    return "added"


def token(db: Connection, token_id: str) -> tuple[Token, User] | None:
    row = db.execute(
        """SELECT token.id, user.name, token.label, token.digest, token.created_ms, token.scope, token.expires_ms,
                  user.name, user.role, user.daily_credits, user.disabled, user.created_ms, user.monitors
           FROM token JOIN user ON user.id = token.user WHERE token.id = ?""",
        (token_id,),
    ).fetchone()
    if row is None:
        return None
    return Token(*row[:7]), _user(row[7:])


def tokens(db: Connection, name: str) -> list[Token]:
    rows = db.execute(
        """SELECT token.id, user.name, token.label, token.digest, token.created_ms, token.scope, token.expires_ms
           FROM token JOIN user ON user.id = token.user WHERE user.name = ? ORDER BY token.created_ms LIMIT 1000""",
        (name,),
    )
    return [Token(*row) for row in rows]


def remove_token(db: Connection, name: str, token_id: str) -> bool:
    db.execute(
        "DELETE FROM token WHERE id = ? AND user = (SELECT id FROM user WHERE name = ?)",
        (token_id, name),
    )
    return db.changes() == 1


def _keep_an_admin(db: Connection, name: str, change: Callable[[Standing], Standing | None]) -> None:
    """Raise LastAdmin if the change would leave no admin. Write transactions exclude each other, so this holds."""
    row = db.execute("SELECT role, disabled FROM user WHERE name = ?", (name,)).fetchone()
    before = Standing(row[0], bool(row[1])) if row else None
    if before is None or not gives_up_admin(before, change(before)):
        return
    others = "SELECT EXISTS (SELECT 1 FROM user WHERE role = 'admin' AND NOT disabled AND name <> ?)"
    if not db.execute(others, (name,)).get:
        raise LastAdmin(last_admin_words(name))


def _record_changes(db: Connection, owner: int) -> None:
    rows = db.execute("SELECT generation FROM monitor WHERE owner = ?", (owner,)).fetchall()
    record_changes(db, [row[0] for row in rows])


def _user(row: tuple[Any, ...]) -> User:
    name, role, daily_credits, disabled, created_ms, monitors = row
    return User(
        id=name,
        role=role,
        daily_credits=daily_credits,
        disabled=bool(disabled),
        created_ms=created_ms,
        monitors=monitors,
    )
