"""Writes the answer to a send, as ``core.jobs.transitions`` decides it, and the effects of a refusal."""

from __future__ import annotations

from typing import NamedTuple, assert_never

from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import Action, DynamoKey, Item, put
from paceline.adapters.aws.client.tables import LEDGER
from paceline.adapters.aws.jobs import keys, meters
from paceline.adapters.aws.jobs.measurement_actions import job_adds, sending_over, unsent_ends
from paceline.adapters.aws.jobs.parts import JobParts
from paceline.adapters.aws.jobs.read import measurement_in
from paceline.adapters.aws.jobs.refusals import account_after, actions_beside, clear_effects, key_beside
from paceline.adapters.aws.jobs.turns import joins
from paceline.core.jobs import transitions
from paceline.core.jobs.atlas import expected_end_ms
from paceline.core.jobs.measurement import targets_of
from paceline.core.jobs.names import INDEX_BITS, key_id
from paceline.core.jobs.refusals import touches_account
from paceline.core.jobs.values import MeterFull, RefusalEffect, Rejected, SendOutcome, Sent

SENDING_MAX = 10_000


class _SentItems(NamedTuple):
    """A measurement whose send is under way or unknown, with every item that an answer to it may change."""

    row: Item
    job: Item
    account: Item
    turns: int
    gate: Item | None
    targets: list[Item]
    refused_item: Item | None


def answer(
    store: JobParts,
    handle: int,
    attempt: int,
    outcome: SendOutcome,
    *,
    effect: RefusalEffect | None = None,
    now_ms: int,
) -> bool:
    known = store.row_cache.take(handle)
    if known is not None and effect is None and _answer_as_seen(store, known, attempt, outcome, now_ms=now_ms):
        won = True
    else:
        won = _answer(store, known, handle, attempt, outcome, effect=effect, now_ms=now_ms)
    if won and not isinstance(outcome, Sent | Rejected):
        store.shard_cache.touch("unknown", "parked", "turn")
    return won


def _answer_as_seen(
    store: JobParts, known: tuple[Item, Item], attempt: int, outcome: SendOutcome, *, now_ms: int
) -> bool:
    """Write the answer in one request, from cached rows. Return False if account or gates have to be read first."""
    row, job = known
    if not transitions.may_answer(row["state"], is_attempt=row["attempt"] == attempt):
        return False
    answered = transitions.after_answer(outcome, lookups=row["lookups"], stopping=row["stopping"])
    match answered:
        case transitions.Runs() if row["state"] == "sending" and store.row_cache.is_unblamed(
            targets_of(measurement_in(row))
        ):
            actions = _sent(row, answered.atlas_ids, now_ms=now_ms)
            after = keys.after_move(row, **_sent_changes(answered.atlas_ids, now_ms=now_ms))
        case transitions.IsUnknown():
            actions = _unsure(row, answered)
            after = keys.after_move(row, state="unknown", **answered._asdict())
        case _:
            return False
    if not store.db.transact(actions).won:
        return False
    _note_answered(store, row)
    store.row_cache.note(after, job)
    return True


def _note_answered(store: JobParts, row: Item) -> None:
    if row["state"] == "sending":
        store.row_cache.note_sending(-1)


def _answer(
    store: JobParts,
    known: tuple[Item, Item] | None,
    handle: int,
    attempt: int,
    outcome: SendOutcome,
    *,
    effect: RefusalEffect | None,
    now_ms: int,
) -> bool:
    for _ in keys.tries():
        out = _out(store.db, known, handle, attempt, effect)
        known = None
        if out is None:
            return False
        if isinstance(effect, MeterFull):
            out = out._replace(account=meters.freshened(store.db, out.account, now_ms=now_ms))
        write, actions = _following(out, outcome, now_ms=now_ms)
        if touches_account(effect) or write.adds:
            write = account_after(out.account, write, effect, now_ms=now_ms)
            actions.append(meters.account_action(out.row["account"], write))
        actions += actions_beside(
            effect, account=out.row["account"], key=key_id(out.row["key_number"]), seen=out.refused_item
        )
        # The measurement is written at the version that was read: if it has changed, all is read and decided again.
        if not store.db.transact(actions).won:
            continue
        _note_answered(store, out.row)
        if effect is not None:
            store.row_cache.forget_gates()
        if isinstance(outcome, Sent):
            account = meters.applied(out.account, write)
            clear_effects(store.db, account=account, gate=out.gate, targets=out.targets, now_ms=now_ms)
            store.row_cache.forget_gates()
        return True
    raise keys.too_busy()


def _out(
    database: DynamoDatabase, known: tuple[Item, Item] | None, handle: int, attempt: int, effect: RefusalEffect | None
) -> _SentItems | None:
    """Return the measurement with all items that its answer changes; None if it is not out."""
    item_keys = [keys.row_key(handle), keys.job_key(handle >> INDEX_BITS), keys.LINE, keys.GATE]
    beside = [] if known is None or "account" not in known[0] else _concerned(known[0], effect)
    found = database.get_many(LEDGER, [*item_keys, *beside])
    row, job, line, gate = (found.get(key) for key in item_keys)
    if row is None or job is None or not transitions.may_answer(row["state"], is_attempt=row["attempt"] == attempt):
        return None
    concerned = _concerned(row, effect)
    if missing := [key for key in concerned if key not in beside]:
        found |= database.get_many(LEDGER, missing)
    refused_key = key_beside(effect, account=row["account"], key=key_id(row["key_number"]))
    return _SentItems(
        row,
        job,
        found[keys.account_key(row["account"])],
        (line or {}).get("turns", 0),
        gate,
        [found[key] for key in map(keys.target_key, sorted(targets_of(measurement_in(row)))) if key in found],
        found.get(refused_key) if refused_key else None,
    )


def _concerned(row: Item, effect: RefusalEffect | None) -> list[DynamoKey]:
    """Return the keys of its account, its targets and the item that its refusal concerns."""
    targets = [keys.target_key(name) for name in sorted(targets_of(measurement_in(row)))]
    beside = key_beside(effect, account=row["account"], key=key_id(row["key_number"]))
    return [keys.account_key(row["account"]), *targets, *([beside] if beside else [])]


def _following(out: _SentItems, outcome: SendOutcome, *, now_ms: int) -> tuple[meters.Write, list[Action]]:
    """Return the write to the account, and the actions beside it."""
    row = out.row
    answered = transitions.after_answer(outcome, lookups=row["lookups"], stopping=row["stopping"])
    match answered:
        case transitions.Runs():
            return meters.empty_write(), _sent(row, answered.atlas_ids, now_ms=now_ms)
        case transitions.IsUnknown():
            return meters.empty_write(), _unsure(row, answered)
        case transitions.GoesBack():
            actions = _back(out, answered)
        case transitions.EndsUnsent():
            actions = unsent_ends(row, out.job, answered, now_ms=now_ms)
        case _:
            assert_never(answered)
    closing = meters.refunding(row, now_ms=now_ms)
    return closing.write, [*actions, *closing.beside, *sending_over(row)]


def _back(out: _SentItems, back: transitions.GoesBack) -> list[Action]:
    row = keys.moved(out.row, **back._asdict(), slot=0, account=None, key_number=None)
    actions = [row, job_adds(out.job, waiting=1)]
    if back.state == "queued":
        actions.append(joins(out.row["owner"], out.job["user"], 1, turns=out.turns))
    return actions


def _unsure(row: Item, unknown: transitions.IsUnknown) -> list[Action]:
    return [keys.moved(row, state="unknown", **unknown._asdict()), *sending_over(row)]


def _sent_changes(atlas_ids: tuple[int, ...], *, now_ms: int) -> Item:
    atlas = [[atlas_id, None, 0] for atlas_id in atlas_ids]
    return {"state": "ongoing", "answered_ms": now_ms, "next_ms": None, "reason": "", "atlas": atlas}


def _sent(row: Item, atlas_ids: tuple[int, ...], *, now_ms: int) -> list[Action]:
    assert len(atlas_ids) == row["concurrent"]
    # Counted from the intent: a measurement that a lookup found began long before its answer.
    expected_ms = expected_end_ms(measurement_in(row), sent_ms=row["intent_ms"])
    slot = {
        **keys.slot_key(row["account"], row["handle"])._asdict(),
        "expected_ms": expected_ms,
        "concurrent": row["concurrent"],
        "atlas_ids": list(atlas_ids),
    }
    move = keys.moved(row, **_sent_changes(atlas_ids, now_ms=now_ms))
    return [move, put(LEDGER, slot), *sending_over(row)]


def lose(store: JobParts, *, intent_before_ms: int, look_ms: int) -> int:
    lost = 0
    for hint in keys.hinted(store.db, "sending", limit=SENDING_MAX):
        lost += _lose_one(store.db, keys.handle_in(hint), intent_before_ms=intent_before_ms, look_ms=look_ms)
    if lost:
        store.shard_cache.touch("unknown")
    return lost


def _lose_one(database: DynamoDatabase, handle: int, *, intent_before_ms: int, look_ms: int) -> bool:
    for _ in keys.tries():
        [row] = keys.read(database, [keys.row_key(handle)])
        if row is None or not transitions.is_given_up(
            row["state"], row.get("intent_ms", 0), intent_before_ms=intent_before_ms
        ):
            return False
        move = keys.moved(row, state="unknown", next_ms=look_ms, reason=transitions.LOST)
        if database.transact([move, *sending_over(row)]).won:
            return True
    raise keys.too_busy()
