"""Accounts and their keys, as operators put and change them. Secrets are sealed before they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, assert_never

import msgspec

from paceline.core.ids import id_problem
from paceline.core.jobs import accounts as rules
from paceline.core.jobs.atlas import Lost, Refused
from paceline.core.jobs.atlas_replies import KeyCheck
from paceline.core.jobs.pool import Account
from paceline.core.jobs.values import LIMIT_MAX, AccountSpec, AddKey, SeenAccount, StoredKey
from paceline.core.parsing import decode, text_problem
from paceline.errors import AlreadyExists, AtlasUnavailable, FieldProblem, InvalidInput, NotFound, RevisionMismatch
from paceline.ports import Atlas, JobStore, Store, Vault
from paceline.steps.edit import edit, unless_changed
from paceline.steps.history.notes import ACCOUNT_LIMITS, note_account_limits

KEY_CHARS_MIN = 8
KEY_CHARS_MAX = 256
LABEL_CHARS_MAX = 100
_SPEC = msgspec.json.Decoder(AccountSpec)


def put_account(
    store: Store, account_id: str, body: bytes, *, seen: SeenAccount | None = None
) -> Literal["created", "replaced", "unchanged"]:
    """Put an account from JSON. Missing limits are those that RIPE gives everybody."""
    return put_account_spec(store, account_id, decode(_SPEC, body), seen=seen)


def put_account_spec(
    store: Store, account_id: str, spec: AccountSpec, *, seen: SeenAccount | None = None
) -> Literal["created", "replaced", "unchanged"]:
    """Put an account. With ``seen``, only onto that state, else raise RevisionMismatch."""
    limits = {
        "/concurrent": spec.concurrent,
        "/daily_results": spec.daily_results,
        "/daily_credits": spec.daily_credits,
    }
    problems = [
        FieldProblem(pointer, f"must be from 0 to {LIMIT_MAX}")
        for pointer, limit in limits.items()
        if not 0 <= limit <= LIMIT_MAX
    ]
    if problem := id_problem(account_id, "/id"):
        problems.append(problem)
    if problems:
        raise InvalidInput.of(*problems)
    _note_limits(store, account_id, spec)
    done = store.put_account(account_id, spec, seen=seen)
    if done == "revision_mismatch":
        raise RevisionMismatch(f"Account {account_id!r} is not as you have seen it. Read it again and retry.")
    return done


def _note_limits(store: Store, account_id: str, spec: AccountSpec) -> None:
    """Note the limits for the judgement of history; with the first note also the previous ones."""
    specs = [spec]
    if ACCOUNT_LIMITS.get(store, account_id) is None:
        before = store.account(account_id, now_ms=0)
        specs += [spec_of(before)] if before is not None else []
    note_account_limits(store, account_id, *((one.concurrent, one.daily_results, one.daily_credits) for one in specs))


def edit_account(
    store: Store, account_id: str, changes: Mapping[str, Any], *, now_ms: int
) -> Literal["created", "replaced", "unchanged"]:
    """Change the named fields and keep the rest; try again if somebody wrote in between."""

    def attempt() -> Literal["created", "replaced", "unchanged"]:
        seen = see_account(store, account_id, now_ms=now_ms)
        spec = msgspec.structs.replace(seen.spec or AccountSpec(), **changes)
        return put_account_spec(store, account_id, spec, seen=seen)

    return edit(f"Account {account_id!r}", lambda: unless_changed(attempt))


def see_account(store: JobStore, account_id: str, *, now_ms: int) -> SeenAccount:
    account = store.account(account_id, now_ms=now_ms)
    return SeenAccount(None if account is None else spec_of(account))


def spec_of(account: Account) -> AccountSpec:
    return AccountSpec(account.concurrent.limit, account.results.limit, account.credits.limit, account.enabled)


def get_account(store: JobStore, account_id: str, *, now_ms: int) -> Account:
    account = store.account(account_id, now_ms=now_ms)
    if account is None:
        raise _no_account(account_id)
    return account


def add_key(store: JobStore, vault: Vault, account_id: str, secret: str, *, label: str = "", now_ms: int) -> StoredKey:
    """Seal and store a key. From here on only the vault can open it; its last four characters identify it."""
    _check_fields(secret, label)
    added = store.add_key(AddKey(account_id, vault.seal(secret), secret[-4:], label), now_ms=now_ms)
    if added.disposition == "no_account" or added.key is None:
        raise _no_account(account_id)
    if added.disposition == "already":
        if added.key.account == account_id:
            raise AlreadyExists(f"Account {account_id!r} has this key already: {added.key.id}.")
        raise AlreadyExists(
            f"Account {added.key.account!r} has this key already: {added.key.id}. RIPE counts by account, so a key"
            " belongs to one: add a key of the other account, or remove it there first."
        )
    return added.key


class CheckedKey(NamedTuple):
    """A stored key. ``unverified``: permissions that could not be verified; None: the key was not tried at all."""

    key: StoredKey
    unverified: tuple[str, ...] | None


def check_and_add_key(
    store: JobStore,
    vault: Vault,
    atlas: Atlas | None,
    account_id: str,
    secret: str,
    *,
    label: str = "",
    now_ms: int,
) -> CheckedKey:
    """Try the key on what a pool needs, and store it. ``atlas`` None: it is stored untried."""
    _check_fields(secret, label)
    get_account(store, account_id, now_ms=now_ms)
    unverified = None if atlas is None else try_key(atlas, secret)
    return CheckedKey(add_key(store, vault, account_id, secret, label=label, now_ms=now_ms), unverified)


def try_key(atlas: Atlas, secret: str) -> tuple[str, ...]:
    """Return the permissions that could not be verified.

    InvalidInput names what the key lacks; AtlasUnavailable: RIPE gave no verdict.
    """
    verdict = atlas.check_key(secret)
    match verdict:
        case KeyCheck():
            if verdict.problems:
                words = f"; RIPE says: {'; '.join(verdict.words)}" if verdict.words else ""
                last = len(verdict.problems) - 1
                raise InvalidInput.of(
                    *(
                        FieldProblem("/key", text + (words if i == last else ""))
                        for i, text in enumerate(verdict.problems)
                    )
                )
            return verdict.unverified
        case Refused() | Lost():
            raise AtlasUnavailable(
                f"The key was not stored, because RIPE gave no verdict on it: {verdict.reason.rstrip('.')}."
                " Try again, or add it untried (check=false, --no-check).",
                retry_after_s=None if verdict.retry_after_ms is None else -(-verdict.retry_after_ms // 1000),
            )
        case _:
            assert_never(verdict)


def set_key_enabled(store: JobStore, account_id: str, key_id: str, *, enabled: bool) -> StoredKey:
    """Enable or disable a key. Disabled, it sends nothing more. Enabled, it is tried again, also after a quarantine."""
    key = store.change_key(account_id, key_id, rules.enable_key(enabled=enabled))
    if key is None:
        raise _no_key(account_id, key_id)
    return key


def remove_key(store: JobStore, account_id: str, key_id: str) -> None:
    if not store.remove_key(account_id, key_id):
        raise _no_key(account_id, key_id)


_KEY_RULE = f"{KEY_CHARS_MIN} to {KEY_CHARS_MAX} printable ASCII characters without spaces, as RIPE shows it"


def _check_fields(secret: str, label: str) -> None:
    problems = [] if _is_key(secret) else [FieldProblem("/key", _KEY_RULE)]
    if problem := text_problem(label, "/label", chars_max=LABEL_CHARS_MAX):
        problems.append(problem)
    if problems:
        raise InvalidInput.of(*problems)


def _is_key(secret: str) -> bool:
    fits = KEY_CHARS_MIN <= len(secret) <= KEY_CHARS_MAX
    return fits and secret.isascii() and secret.isprintable() and " " not in secret


def _no_account(account_id: str) -> NotFound:
    return NotFound(f"There is no account {account_id!r}. An admin can put one.")


def _no_key(account_id: str, key_id: str) -> NotFound:
    return NotFound(f"Account {account_id!r} has no key {key_id!r}.")
