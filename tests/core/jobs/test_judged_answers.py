"""RIPE's answer to a send: what it means for the measurement, and who else has to wait."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.jobs.answers import Gates, cut, full_reason, judge_answer, pause_for
from paceline.core.jobs.atlas import Answer, Created, Lost, Refused, Scope
from paceline.core.jobs.pool import LOOK_AGAIN_MS, TYPE_BARRED_MS, Gate
from paceline.core.jobs.refusals import too_low_balance, touches_account
from paceline.core.jobs.values import (
    AccountClosed,
    KeyRefused,
    MeterFull,
    NotSent,
    Paused,
    RefusalEffect,
    Rejected,
    SendOutcome,
    Sent,
    TargetFull,
    TypeBarred,
    Unsure,
)
from paceline.core.monitors.outcome import REASON_CHARS_MAX
from tests.core.support.measurements import NOW_MS, definition, measurement, stored

OPEN = Gates(None, {})
ITEM = stored()


def judge(answer: Answer, gates: Gates = OPEN) -> tuple[SendOutcome, RefusalEffect | None]:
    return judge_answer(ITEM, answer, gates, settle_ms=5_000, now_ms=NOW_MS, chance=0.0)


def test_created_measurement_counts_as_sent_and_pauses_nothing() -> None:
    assert judge(Created((7, 8))) == (Sent((7, 8)), None)


def test_promise_9_lost_reply_is_unsure_and_everybody_pauses() -> None:
    outcome, effect = judge(Lost("timed out"))
    assert outcome == Unsure("timed out", NOW_MS + 5_000)
    assert isinstance(effect, Paused)
    assert effect.until_ms > NOW_MS
    assert effect.refusals == 1


@pytest.mark.parametrize(
    ("refused", "effect"),
    [
        (Refused("account", "full", meter="concurrent", limit=25), MeterFull("concurrent", 1, 25)),
        (Refused("account", "full", meter="results"), MeterFull("results", 10)),
        (Refused("account", "broke", meter="balance"), MeterFull("balance", 60)),
        (Refused("account", "closed"), AccountClosed(NOW_MS + LOOK_AGAIN_MS, "closed")),
        (Refused("type", "no http", types=("http",)), TypeBarred(("http",), NOW_MS + TYPE_BARRED_MS, "no http")),
        (Refused("key", "expired"), KeyRefused("expired")),
        (Refused("global", "slow down", retry_after_ms=9_000), Paused(NOW_MS + 9_000, 1, "slow down")),
    ],
)
def test_refusal_that_is_not_about_the_request_leaves_the_measurement_to_be_sent_again(
    refused: Refused, effect: RefusalEffect
) -> None:
    assert judge(refused) == (NotSent(refused.reason), effect)
    assert touches_account(effect) is (refused.scope == "account")


def test_refused_request_fails_alone() -> None:
    assert judge(Refused("request", "bad target")) == (Rejected("bad target"), None)
    assert not touches_account(None)


def test_full_target_makes_its_measurement_wait_until_it_opens() -> None:
    outcome, effect = judge(Refused("target", "25 already", target="192.0.2.1."))
    assert isinstance(effect, TargetFull)
    assert effect.target == "192.0.2.1"
    assert effect.refusals == 1
    assert outcome == NotSent("the target 192.0.2.1 is full: 25 already", effect.until_ms)
    assert effect.until_ms > NOW_MS


def test_pause_of_a_full_target_grows_with_each_refusal() -> None:
    refused = Refused("target", "25 already", target="192.0.2.1")
    pauses, gates = [], OPEN
    for _ in range(3):
        _, effect = judge(refused, gates)
        assert isinstance(effect, TargetFull)
        gates = Gates(None, {effect.target: effect})
        pauses.append(effect.until_ms - NOW_MS)
    assert pauses == sorted(set(pauses))
    assert gates.targets["192.0.2.1"].refusals == 3


def test_address_that_the_only_target_resolves_to_counts_as_the_target() -> None:
    item = stored(asked=measurement(definition(target="www.example.org")))
    refused = Refused("target", "full", target="198.51.100.7")
    _, effect = judge_answer(item, refused, OPEN, settle_ms=0, now_ms=NOW_MS, chance=0.0)
    assert isinstance(effect, TargetFull)
    assert effect.target == "www.example.org"


def test_address_is_kept_as_the_target_if_it_could_be_either_of_two() -> None:
    item = stored(asked=measurement(definition(target="a.example"), definition(target="b.example")))
    refused = Refused("target", "full", target="198.51.100.7")
    _, effect = judge_answer(item, refused, OPEN, settle_ms=0, now_ms=NOW_MS, chance=0.0)
    assert isinstance(effect, TargetFull)
    assert effect.target == "198.51.100.7"


@pytest.mark.parametrize("scope", get_args(Scope))
def test_every_scope_of_a_refusal_has_a_meaning(scope: Scope) -> None:
    outcome, _ = judge(Refused(scope, "words", target="192.0.2.1"))
    assert isinstance(outcome, NotSent | Rejected)


@given(refusals=st.integers(1, 100), chance=st.floats(0, 1, exclude_max=True))
def test_pause_of_everybody_counts_refusals_in_a_row_and_never_shrinks(refusals: int, chance: float) -> None:
    paused = Paused(NOW_MS, refusals, "before")
    first = pause_for(None, Lost("x"), now_ms=NOW_MS, chance=chance)
    later = pause_for(paused, Lost("x"), now_ms=NOW_MS, chance=chance)
    assert later.refusals == refusals + 1
    assert NOW_MS < first.until_ms <= later.until_ms


def test_pause_is_as_long_as_ripe_asks_for() -> None:
    assert pause_for(Paused(NOW_MS, 9, ""), Lost("x", 1_234), now_ms=NOW_MS, chance=0.9).until_ms == NOW_MS + 1_234


def test_gates_of_a_measurement_are_its_full_targets_the_last_to_open_first() -> None:
    one, two = TargetFull("a.example", NOW_MS + 1, 1, "x"), TargetFull("b.example", NOW_MS + 2, 1, "y")
    gates = Gates(None, {"a.example": one, "b.example": two, "c.example": one._replace(target="c.example")})
    both = measurement(definition(target="a.example"), definition(target="b.example"))
    assert gates.of_targets(both) == [Gate(NOW_MS + 2, full_reason(two)), Gate(NOW_MS + 1, full_reason(one))]
    assert gates.of_targets(measurement()) == []


def test_gate_for_everybody_is_there_once_ripe_has_asked_for_a_pause() -> None:
    assert OPEN.of_all() == []
    assert Gates(Paused(NOW_MS, 1, "slow down"), {}).of_all() == [Gate(NOW_MS, "slow down")]


@given(st.text(max_size=3 * REASON_CHARS_MAX))
def test_reason_is_cut_to_its_length_and_short_ones_are_kept(text: str) -> None:
    short = cut(text)
    assert len(short) <= REASON_CHARS_MAX
    assert short == text or (len(text) > REASON_CHARS_MAX and short.endswith("…") and text.startswith(short[:-1]))


def test_balance_that_is_too_low_has_less_than_was_refused() -> None:
    assert too_low_balance(None, MeterFull("balance", 60), now_ms=NOW_MS).free == 59
