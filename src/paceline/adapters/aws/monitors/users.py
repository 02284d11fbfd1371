"""Users and tokens. A change to all monitors of a user can be more than one transaction holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec.structs import replace

from paceline.adapters.aws.client.connect import attempts, busy
from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import (
    ABSENT,
    Action,
    DynamoKey,
    Item,
    check,
    delete,
    item_at,
    key_of,
    padded,
    put,
    setting,
    update,
)
from paceline.adapters.aws.client.numbers import Numbers
from paceline.adapters.aws.client.tables import ITEMS
from paceline.adapters.aws.monitors import keys
from paceline.adapters.aws.monitors.parts import MonitorParts
from paceline.adapters.aws.monitors.runs import unhold
from paceline.core.admins import Standing, gives_up_admin, last_admin_words
from paceline.core.users import Token, TokenAdded, User, UserEdit
from paceline.errors import LastAdmin

TOKENS_MAX = 1_000
USERS_PAGE = 1_000
AS_STANDING = "#role = :was AND #disabled = :off"
Act = Literal["removed", "disabled", "enabled"]


def add_user(store: MonitorParts, user: User) -> bool:
    number = store.numbers.take("user", 1)[0]
    item = item_at(keys.user_key(user.id)) | {
        "id": user.id,
        "number": number,
        "role": user.role,
        "daily_credits": user.daily_credits,
        "disabled": user.disabled,
        "created_ms": user.created_ms,
        "monitors": 0,
        "queues": 1,
    }
    listed = put(ITEMS, {"pk": keys.USERS, "sk": user.id})
    return store.db.transact([put(ITEMS, item, when=ABSENT), listed, tally(user.id, users=1, monitors=0)]).won


def user(store: MonitorParts, user_id: str) -> User | None:
    item = store.db.get(ITEMS, keys.user_key(user_id))
    return to_user(item) if item else None


def users(store: MonitorParts, *, after: str, limit: int) -> list[User]:
    listed = store.db.page(ITEMS, keys.USERS, limit=limit, after=after)
    found = store.db.get_many(ITEMS, [keys.user_key(row["sk"]) for row in listed])
    return [to_user(found[key]) for row in listed if (key := keys.user_key(row["sk"])) in found]


def edit_user(store: MonitorParts, user_id: str, edit: UserEdit) -> User | None:
    wanted: dict[str, Any] = {"role": edit.role, "daily_credits": edit.daily_credits, "disabled": edit.disabled}
    given = {field: value for field, value in wanted.items() if value is not None}
    change, values = setting(given)
    for _ in attempts():
        item = store.db.get(ITEMS, keys.user_key(user_id))
        if item is None or not given:
            return to_user(item) if item else None
        believed = f"#number = :number AND {AS_STANDING}"
        values |= {"number": item["number"], "was": item["role"], "off": item["disabled"]}
        actions = [update(ITEMS, keys.user_key(user_id), change, when=believed, **values)]
        after = Standing(edit.role or item["role"], item["disabled"] if edit.disabled is None else edit.disabled)
        actions += _other_admin(store, item, after)
        if edit.disabled is not None:
            fan = fan_item(store.numbers, item, "disabled" if edit.disabled else "enabled")
            actions.append(put(ITEMS, fan))
        if store.db.transact(actions).won:
            if edit.disabled is not None:
                expand(store, fan)
                store.change_counter.bump(also_self=True)
            return user(store, user_id)
    raise busy(f"user {user_id!r}")


def remove_user(store: MonitorParts, user_id: str) -> bool:
    for _ in attempts():
        item = store.db.get(ITEMS, keys.user_key(user_id))
        if item is None:
            return False
        fan = fan_item(store.numbers, item, "removed")
        believed = f"#number = :number AND #monitors = :monitors AND {AS_STANDING}"
        mine = {"number": item["number"], "monitors": item["monitors"], "was": item["role"], "off": item["disabled"]}
        actions = [
            delete(ITEMS, keys.user_key(user_id), when=believed, **mine),
            *_other_admin(store, item, None),
            delete(ITEMS, DynamoKey(keys.USERS, user_id)),
            put(ITEMS, fan),
            tally(user_id, users=-1, monitors=-item["monitors"]),
        ]
        if store.db.transact(actions).won:
            expand(store, fan)
            store.change_counter.bump(also_self=True)
            return True
    raise busy(f"monitors of {user_id!r}")


def _other_admin(store: MonitorParts, item: Item, after: Standing | None) -> list[Action]:
    """Return a check that another admin exists, if the change takes an admin away. Raises LastAdmin if none does.

    The check is part of the transaction: of two admins who demote each other at once, one loses and reads again.
    """
    if not gives_up_admin(Standing(item["role"], item["disabled"]), after):
        return []
    last = ""
    while page := users(store, after=last, limit=USERS_PAGE):
        for other in page:
            if other.id != item["id"] and Standing(other.role, other.disabled).is_active_admin:
                return [check(ITEMS, keys.user_key(other.id), when=AS_STANDING, was="admin", off=False)]
        last = page[-1].id
    raise LastAdmin(last_admin_words(item["id"]))


def add_token(store: MonitorParts, token: Token, *, tokens_max: int) -> TokenAdded:
    for _ in attempts():
        owner = store.db.get(ITEMS, keys.user_key(token.user))
        if owner is None:
            return "no_user"
        tokens_now = _count_tokens(store.db, owner)
        if tokens_now >= tokens_max:
            return "full"
        if store.db.transact(_token_actions(token, owner, tokens_now=tokens_now)).won:
            return "added"
    raise busy(f"tokens of {token.user!r}")


def _count_tokens(db: DynamoDatabase, owner: Item) -> int:
    """Return the count in the user's item; an item of an earlier version has none, and they are counted."""
    if "tokens" in owner:
        return int(owner["tokens"])
    return len(db.page(ITEMS, keys.tokens_of(owner["number"]), limit=TOKENS_MAX))


def _token_actions(token: Token, owner: Item, *, tokens_now: int) -> list[Action]:
    number = owner["number"]
    item = item_at(keys.token_key(token.id)) | {
        "id": token.id,
        "user": number,
        "owner": token.user,
        "label": token.label,
        "digest": token.digest,
        "created_ms": token.created_ms,
        "scope": token.scope,
        "expires_ms": token.expires_ms,
    }
    return [
        _set_tokens(owner, tokens_now + 1),
        put(ITEMS, item, when=ABSENT),
        put(ITEMS, {"pk": keys.tokens_of(number), "sk": token.id}),
    ]


def _set_tokens(owner: Item, tokens: int) -> Action:
    """Return the action that sets the user's number of tokens, if it is still what it was when the item was read."""
    counted = "#tokens = :counted" if "tokens" in owner else "attribute_not_exists(#tokens)"
    believed = {"counted": owner["tokens"]} if "tokens" in owner else {}
    when = f"#number = :number AND {counted}"
    return update(
        ITEMS,
        keys.user_key(owner["id"]),
        "SET #tokens = :tokens",
        when=when,
        number=owner["number"],
        tokens=tokens,
        **believed,
    )


def token(store: MonitorParts, token_id: str) -> tuple[Token, User] | None:
    item = store.db.get(ITEMS, keys.token_key(token_id))
    owner = store.db.get(ITEMS, keys.user_key(item["owner"])) if item else None
    if item is None or owner is None or owner["number"] != item["user"]:
        return None
    return _token(item), to_user(owner)


def tokens(store: MonitorParts, user_id: str) -> list[Token]:
    owner = store.db.get(ITEMS, keys.user_key(user_id))
    if owner is None:
        return []
    listed = store.db.page(ITEMS, keys.tokens_of(owner["number"]), limit=TOKENS_MAX)
    found = store.db.get_many(ITEMS, [keys.token_key(row["sk"]) for row in listed])
    return sorted((_token(item) for item in found.values()), key=lambda one: (one.created_ms, one.id))


def remove_token(store: MonitorParts, user_id: str, token_id: str) -> bool:
    for _ in attempts():
        owner, item = store.db.get(ITEMS, keys.user_key(user_id)), store.db.get(ITEMS, keys.token_key(token_id))
        if owner is None or item is None or item["user"] != owner["number"]:
            return False
        number = owner["number"]
        actions = [
            delete(ITEMS, keys.token_key(token_id), when="#user = :user", user=number),
            delete(ITEMS, DynamoKey(keys.tokens_of(number), token_id)),
            _set_tokens(owner, _count_tokens(store.db, owner) - 1),
        ]
        if store.db.transact(actions).won:
            return True
    raise busy(f"tokens of {user_id!r}")


# -- changes of all monitors of a user


def fan_item(numbers: Numbers, owner: Item, act: Act) -> Item:
    """Return the item that is written with the act: if this process dies, the next reader of changes continues."""
    sk = keys.FAN + padded(numbers.take("change", 1)[0])
    return {"pk": keys.changes_of(0), "sk": sk, "user": owner["number"], "owner": owner["id"], "act": act}


def expand(store: MonitorParts, fan: Item) -> None:
    """Record a change for each monitor of the user. Doing it twice, or by two processes at once, does no harm."""
    db, number = store.db, fan["user"]
    only = "#pk, #sk, #generation"
    rows = list(db.walk(ITEMS, keys.monitors_of(number), only=only))
    seqs = store.numbers.take("change", len(rows)) if rows else []
    db.write_many(
        put(ITEMS, change_item(row["generation"], seq, number=number, owner=fan["owner"], monitor=row["sk"]))
        for row, seq in zip(rows, seqs, strict=True)
    )
    if fan["act"] == "removed":
        # Only after each change is recorded: deleted monitors are not found again.
        db.write_many(delete(ITEMS, keys.monitor_key(number, row["sk"])) for row in rows)
        _delete_tokens(db, number)
    if fan["act"] == "enabled":
        # Their messages may have been dropped while the owner was disabled.
        store.alarms.offer(unhold(db, [row["generation"] for row in rows]), now_ms=None)
    db.write(delete(ITEMS, key_of(fan)))


def change_item(generation: int, seq: int, *, number: int, owner: str, monitor: str) -> Item:
    facts = {"generation": generation, "seq": seq, "user": number, "owner": owner, "monitor": monitor}
    return item_at(keys.change_key(generation)) | facts


def tally(name: str | int, *, users: int, monitors: int) -> Action:
    """Return the action that keeps the numbers of users and monitors, on the user's shard."""
    change = "ADD #users :users, #monitors :monitors"
    return update(ITEMS, keys.tally_key(name), change, when="", users=users, monitors=monitors)


def to_user(item: Item) -> User:
    return User(
        id=item["id"],
        role=item["role"],
        daily_credits=item["daily_credits"],
        disabled=item["disabled"],
        created_ms=item["created_ms"],
        monitors=item["monitors"],
    )


def _delete_tokens(db: DynamoDatabase, number: int) -> None:
    listed = db.walk(ITEMS, keys.tokens_of(number))
    item_keys: Sequence[DynamoKey] = [key for row in listed for key in (keys.token_key(row["sk"]), key_of(row))]
    db.write_many(delete(ITEMS, key) for key in item_keys)


def _token(item: Item) -> Token:
    token = Token(item["id"], item["owner"], item["label"], item["digest"], item["created_ms"])
    return replace(token, scope=item.get("scope", ""), expires_ms=item.get("expires_ms"))
