"""What RIPE's answer to a send means: for the measurement, and for account, key, target or everybody."""

from __future__ import annotations

from typing import NamedTuple, assert_never

from paceline.core.atlas import Answer, Created, Lost, MeterName, Refused
from paceline.core.cost import Cost
from paceline.core.measurement import targets_of
from paceline.core.outcome import REASON_CHARS_MAX
from paceline.core.pool import LOOK_AGAIN_MS, TYPE_BARRED_MS, backoff_until_ms, target_gate
from paceline.ports import (
    AccountClosed,
    Blame,
    KeyRefused,
    MeterFull,
    NotSent,
    Paused,
    Rejected,
    SendOutcome,
    Sent,
    StoredMeasurement,
    TargetFull,
    TypeBarred,
    Unsure,
)


class Gates(NamedTuple):
    """What RIPE said last of everybody, and of targets by name; it may be over."""

    paused: Paused | None
    targets: dict[str, TargetFull]


def judge_answer(
    item: StoredMeasurement, answer: Answer, gates: Gates, *, settle_ms: int, now_ms: int, chance: float
) -> tuple[SendOutcome, Blame | None]:
    """What RIPE's answer means for the measurement, and for others."""
    match answer:
        case Created():
            return Sent(answer.ids), None
        case Lost():
            # RIPE is in trouble: without a pause the next ones would be lost too, and each has to be looked up.
            pause = pause_for(gates.paused, answer, now_ms=now_ms, chance=chance)
            return Unsure(answer.reason, now_ms + settle_ms), pause
        case Refused():
            return _judge_refusal(item, answer, gates, now_ms=now_ms, chance=chance)
        case _:
            assert_never(answer)


def _judge_refusal(
    item: StoredMeasurement, refused: Refused, gates: Gates, *, now_ms: int, chance: float
) -> tuple[SendOutcome, Blame | None]:
    not_sent = NotSent(refused.reason)
    match refused.scope:
        case "account" if refused.meter is not None:
            return not_sent, MeterFull(refused.meter, _need(item.cost, refused.meter), refused.limit)
        case "account":
            return not_sent, AccountClosed(now_ms + LOOK_AGAIN_MS, refused.reason)
        case "type":
            return not_sent, TypeBarred(refused.types, now_ms + TYPE_BARRED_MS, refused.reason)
        case "target":
            full = _target_full(item, refused, gates, now_ms=now_ms, chance=chance)
            return NotSent(cut(f"the target {full.target} is full: {full.words}"), full.until_ms), full
        case "key":
            return not_sent, KeyRefused(refused.reason)
        case "request":
            return Rejected(refused.reason), None
        case "global":
            return not_sent, pause_for(gates.paused, refused, now_ms=now_ms, chance=chance)
        case _:
            assert_never(refused.scope)


def pause_for(paused: Paused | None, answer: Refused | Lost, *, now_ms: int, chance: float) -> Paused:
    """Everybody waits: as long as RIPE asks for, else longer each time in a row."""
    refusals = (paused.refusals if paused else 0) + 1
    until_ms = backoff_until_ms(refusals, now_ms=now_ms, retry_after_ms=answer.retry_after_ms, chance=chance)
    return Paused(until_ms, refusals, answer.reason)


def _target_full(item: StoredMeasurement, refused: Refused, gates: Gates, *, now_ms: int, chance: float) -> TargetFull:
    targets = targets_of(item.measurement)
    target = refused.target.lower().rstrip(".")
    if target not in targets and len(targets) == 1:
        # RIPE may name the address that the target resolves to; others that wait have the target's own name.
        (target,) = targets
    known = gates.targets.get(target)
    refusals = (known.refusals if known else 0) + 1
    gate = target_gate(target, refusals=refusals, now_ms=now_ms, words=refused.reason, chance=chance)
    return TargetFull(target, gate.until_ms, refusals, refused.reason)


def _need(cost: Cost, meter: MeterName) -> int:
    match meter:
        case "concurrent":
            return cost.concurrent
        case "results":
            return cost.daily_results
        case "credits" | "balance":
            return cost.daily_credits
        case _:
            assert_never(meter)


def cut(text: str) -> str:
    return text if len(text) <= REASON_CHARS_MAX else text[: REASON_CHARS_MAX - 1] + "…"
