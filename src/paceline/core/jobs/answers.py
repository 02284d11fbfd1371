"""Meaning of RIPE's answer to a send: for the measurement, and for its account, its key, a target or everybody."""

from __future__ import annotations

from typing import NamedTuple, assert_never

from paceline.core.jobs import values
from paceline.core.jobs.atlas import Answer, Created, Lost, Refused
from paceline.core.jobs.cost import need_of
from paceline.core.jobs.measurement import Measurement, targets_of
from paceline.core.jobs.pool import LOOK_AGAIN_MS, TYPE_BARRED_MS, Gate, backoff_until_ms, target_gate
from paceline.core.monitors.outcome import REASON_CHARS_MAX


class Gates(NamedTuple):
    """RIPE's newest pause for everybody, and the full targets by name. Either may be over by now."""

    paused: values.Paused | None
    targets: dict[str, values.TargetFull]

    def of_targets(self, measurement: Measurement) -> list[Gate]:
        """Return a gate for each full target of the measurement, the one that opens last first."""
        full = [self.targets[name] for name in targets_of(measurement) if name in self.targets]
        return [Gate(one.until_ms, full_reason(one)) for one in sorted(full, key=_until_ms, reverse=True)]

    def of_all(self) -> list[Gate]:
        """Return the gate for everybody, if RIPE ever asked for a pause."""
        return [] if self.paused is None else [Gate(self.paused.until_ms, self.paused.reason)]


def judge_answer(
    item: values.StoredMeasurement, answer: Answer, gates: Gates, *, settle_ms: int, now_ms: int, chance: float
) -> tuple[values.SendOutcome, values.RefusalEffect | None]:
    """Return what RIPE's answer means for the measurement, and for others."""
    match answer:
        case Created():
            return values.Sent(answer.ids), None
        case Lost():
            # RIPE is in trouble: without a pause the next sends would be lost too, and each has to be looked up.
            pause = pause_for(gates.paused, answer, now_ms=now_ms, chance=chance)
            return values.Unsure(answer.reason, now_ms + settle_ms), pause
        case Refused():
            return _judge_refusal(item, answer, gates, now_ms=now_ms, chance=chance)
        case _:
            assert_never(answer)


def _judge_refusal(
    item: values.StoredMeasurement, refused: Refused, gates: Gates, *, now_ms: int, chance: float
) -> tuple[values.SendOutcome, values.RefusalEffect | None]:
    not_sent = values.NotSent(refused.reason)
    match refused.scope:
        case "account" if refused.meter is not None:
            return not_sent, values.MeterFull(refused.meter, need_of(item.cost, refused.meter), refused.limit)
        case "account":
            return not_sent, values.AccountClosed(now_ms + LOOK_AGAIN_MS, refused.reason)
        case "type":
            return not_sent, values.TypeBarred(refused.types, now_ms + TYPE_BARRED_MS, refused.reason)
        case "target":
            full = _target_full(item, refused, gates, now_ms=now_ms, chance=chance)
            return values.NotSent(full_reason(full), full.until_ms), full
        case "key":
            return not_sent, values.KeyRefused(refused.reason)
        case "request":
            return values.Rejected(refused.reason), None
        case "global":
            return not_sent, pause_for(gates.paused, refused, now_ms=now_ms, chance=chance)
        case _:
            assert_never(refused.scope)


def pause_for(paused: values.Paused | None, answer: Refused | Lost, *, now_ms: int, chance: float) -> values.Paused:
    """Return the pause for everybody: as long as RIPE asks for, else longer with each refusal in a row."""
    refusals = (paused.refusals if paused else 0) + 1
    until_ms = backoff_until_ms(refusals, now_ms=now_ms, retry_after_ms=answer.retry_after_ms, chance=chance)
    return values.Paused(until_ms, refusals, answer.reason)


def full_reason(full: values.TargetFull) -> str:
    """Return why a measurement of this target waits."""
    return cut(f"the target {full.target} is full: {full.words}")


def cut(text: str) -> str:
    """Return the text, shortened to what a reason may have."""
    return text if len(text) <= REASON_CHARS_MAX else text[: REASON_CHARS_MAX - 1] + "…"


def _target_full(
    item: values.StoredMeasurement, refused: Refused, gates: Gates, *, now_ms: int, chance: float
) -> values.TargetFull:
    targets = targets_of(item.measurement)
    target = refused.target.lower().rstrip(".")
    if target not in targets and len(targets) == 1:
        # RIPE may name the address that the target resolves to; other measurements have the target's own name.
        (target,) = targets
    known = gates.targets.get(target)
    refusals = (known.refusals if known else 0) + 1
    gate = target_gate(target, refusals=refusals, now_ms=now_ms, words=refused.reason, chance=chance)
    return values.TargetFull(target, gate.until_ms, refusals, refused.reason)


def _until_ms(full: values.TargetFull) -> int:
    return full.until_ms
