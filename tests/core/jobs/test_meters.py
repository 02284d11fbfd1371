"""Promise 8: within budget, every hold closed once, books that add up, whatever is cut short, however it syncs."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from paceline.core.jobs.meters import (
    DAY_MS,
    NEVER_MS,
    Balance,
    Closed,
    CreditBalance,
    Hold,
    Meter,
    MeterRelease,
    Posting,
    Reading,
    Short,
    Taken,
    add_up,
    balance_ends_ms,
    close,
    day_name,
    expire,
    lagging_visible,
    refund,
    refused,
    resets_ms,
    room,
    room_ms,
    sync,
    take,
    used,
)

NOW_MS = 1_800_000_000_000
SLOTS, RESULTS, CREDITS, USER = "a/concurrent", "a/results", "a/credits", "u/credits"


def some_meters(limit: int = 100) -> dict[str, Meter]:
    return {
        SLOTS: Meter(SLOTS, limit, "until_released"),
        RESULTS: Meter(RESULTS, limit, "sliding"),
        CREDITS: Meter(CREDITS, limit, "sliding"),
        USER: Meter(USER, limit, "day"),
    }


def taken(amounts: dict[str, int], meters: dict[str, Meter], *, now_ms: int = NOW_MS, hold: str = "h") -> Taken:
    found = take(hold, amounts, meters, now_ms=now_ms)
    assert isinstance(found, Taken)
    return found


def test_promise_8_all_limits_of_a_send_are_taken_together_or_not_at_all() -> None:
    meters = some_meters()
    full = taken({CREDITS: 95}, meters).meters
    short = take("h2", {SLOTS: 1, CREDITS: 6}, meters | full, now_ms=NOW_MS)
    assert short == Short(CREDITS, need=6, room=5, limit=100, room_ms=NEVER_MS)
    both = taken({SLOTS: 1, CREDITS: 5}, meters | full)
    assert (both.meters[SLOTS].held, both.meters[CREDITS].held) == (1, 100)


def test_settled_hold_charges_the_actual_usage_and_returns_the_rest() -> None:
    hold, meters, first = taken({CREDITS: 60}, some_meters())
    end = close(hold, {CREDITS: 25}, meters, now_ms=NOW_MS)
    assert (end.meters[CREDITS].spent, end.meters[CREDITS].held) == (25, 0)
    assert end.hold.lines == {}
    assert [(p.kind, p.amount) for p in end.postings] == [("settle", 25), ("refund", 35)]
    assert add_up([*first, *end.postings]).open_lines == {}


def test_promise_8_closing_twice_closes_once() -> None:
    hold, meters, _ = taken({CREDITS: 60}, some_meters())
    end = close(hold, {CREDITS: 25}, meters, now_ms=NOW_MS)
    assert close(end.hold, {CREDITS: 25}, end.meters, now_ms=NOW_MS) == Closed(end.hold, {}, (), {})


def test_a_posting_made_twice_counts_once() -> None:
    postings = taken({CREDITS: 60}, some_meters()).postings
    assert add_up([*postings, *postings]) == add_up(postings)


def test_credits_can_be_settled_while_the_slot_is_still_taken() -> None:
    hold, meters, _ = taken({SLOTS: 2, CREDITS: 60}, some_meters())
    half = close(hold, {CREDITS: 60}, meters, now_ms=NOW_MS)
    assert half.hold.lines == {SLOTS: 2}
    whole = close(half.hold, {SLOTS: 2}, meters | half.meters, now_ms=NOW_MS)
    assert (whole.meters[SLOTS].held, whole.meters[SLOTS].spent, whole.hold.lines) == (0, 0, {})


def test_promise_8_usage_above_the_hold_is_never_charged_and_is_reported() -> None:
    hold, meters, _ = taken({CREDITS: 60}, some_meters(limit=60))
    end = close(hold, {CREDITS: 70}, meters, now_ms=NOW_MS)
    assert (end.meters[CREDITS].spent, end.overrun) == (60, {CREDITS: 10})


def test_usage_counts_for_a_day_to_the_end_of_the_minute() -> None:
    hold, meters, _ = taken({CREDITS: 60}, some_meters())
    meter = close(hold, {CREDITS: 60}, meters, now_ms=NOW_MS + 1).meters[CREDITS]
    free_ms = NOW_MS + DAY_MS + 60_000
    assert expire(meter, now_ms=free_ms - 1) == (meter, ())
    assert room_ms(meter, 50, now_ms=NOW_MS) == free_ms
    after, postings = expire(meter, now_ms=free_ms)
    assert (after.spent, after.releases) == (0, ())
    assert postings == (Posting(CREDITS, "", "expire", 60, free_ms),)


def test_a_day_has_a_bounded_number_of_releases() -> None:
    meters = some_meters(limit=10_000)
    for second in range(600):
        hold, meters, _ = taken({CREDITS: 1}, meters, now_ms=NOW_MS + second * 1_000)
        meters = close(hold, {CREDITS: 1}, meters, now_ms=NOW_MS + second * 1_000).meters
    assert len(meters[CREDITS].releases) <= 11
    assert sum(release.amount for release in meters[CREDITS].releases) == 600


def test_a_day_of_a_user_is_a_calendar_day_in_utc() -> None:
    midnight_ms = NOW_MS // DAY_MS * DAY_MS + DAY_MS
    assert resets_ms(midnight_ms - 1) == midnight_ms
    assert resets_ms(midnight_ms) == midnight_ms + DAY_MS
    assert day_name("u", now_ms=midnight_ms - 1) != day_name("u", now_ms=midnight_ms)


def test_limit_lowered_below_usage_releases_nothing_and_admits_nothing() -> None:
    meter = Meter(CREDITS, 10, "sliding", held=25)
    assert room(meter) == 0
    assert isinstance(take("h", {CREDITS: 1}, {CREDITS: meter}, now_ms=NOW_MS), Short)
    slots = Meter(
        SLOTS, 10, "until_released", held=25, releases=(MeterRelease(NOW_MS + 5, 10), MeterRelease(NOW_MS + 9, 10))
    )
    assert room_ms(slots, 4, now_ms=NOW_MS) == NOW_MS + 9


def test_promise_8_lagging_counter_never_lowers_our_own_usage() -> None:
    meter = Meter(CREDITS, 1_000, "sliding", spent=300, held=200)
    assert used(sync(meter, Reading(NOW_MS, figure=0, visible=lagging_visible(meter)))) == 500
    assert used(sync(meter, Reading(NOW_MS, figure=700, visible=lagging_visible(meter)))) == 700


def test_usage_after_a_reading_is_added_to_it() -> None:
    meter = sync(Meter(CREDITS, 1_000, "sliding", spent=300), Reading(NOW_MS, figure=700, visible=300))
    after = taken({CREDITS: 100}, {CREDITS: meter}).meters[CREDITS]
    assert used(after) == 800


def test_a_slot_that_ripe_cannot_show_yet_is_not_forgotten() -> None:
    """Nine are ours, five of them are in RIPE's list: RIPE counts these, and two of another user."""
    meter = Meter(SLOTS, 100, "until_released", held=9)
    assert used(sync(meter, Reading(NOW_MS, figure=5, visible=5))) == 9
    assert used(sync(meter, Reading(NOW_MS, figure=7, visible=5))) == 11


def test_refusal_lowers_the_room_of_a_meter_until_a_later_reading() -> None:
    meter = refused(Meter(RESULTS, 1_000, "sliding", spent=100), 50, now_ms=NOW_MS)
    assert room(meter) == 49
    assert sync(meter, Reading(NOW_MS - 1, figure=0, visible=0)) == meter
    assert room(sync(meter, Reading(NOW_MS + 1, figure=100, visible=100))) == 900


readings = st.builds(Reading, st.integers(0, 5), st.integers(0, 200), st.integers(0, 100))


@given(st.lists(readings, max_size=4), st.integers(0, 50))
def test_readings_may_arrive_in_any_order_and_any_number_of_times(found: list[Reading], amount: int) -> None:
    ends = set()
    for order in permutations(found):
        meter = Meter(CREDITS, 1_000, "sliding", spent=10)
        for index, reading in enumerate(order):
            meter = sync(sync(meter, reading), reading)
            if index == 0:  # a hold between any two of them changes nothing but itself
                meter = taken({CREDITS: amount}, {CREDITS: meter}).meters[CREDITS]
        ends.add((meter.foreign, meter.read_ms, meter.held))
    assert len(ends) == 1


class TheLedger(RuleBasedStateMachine):
    """A store in miniature: acts are atomic, a crash leaves the postings of the acts before it, and time goes on."""

    @initialize(limit=st.integers(0, 200))
    def begin(self, limit: int) -> None:
        self.meters = some_meters(limit)
        self.holds: dict[str, Hold] = {}
        self.postings: list[Posting] = []
        self.closings: dict[tuple[str, str], int] = {}
        self.now_ms = NOW_MS
        self.count = 0

    @rule(seconds=st.integers(0, 100_000))
    def time_passes(self, seconds: int) -> None:
        self.now_ms += seconds * 1_000
        for name, meter in self.meters.items():
            self.meters[name], postings = expire(meter, now_ms=self.now_ms)
            self.postings += postings

    @rule(amounts=st.dictionaries(st.sampled_from([SLOTS, RESULTS, CREDITS, USER]), st.integers(0, 80), min_size=1))
    def hold(self, amounts: dict[str, int]) -> None:
        self.count += 1
        before = {name: room(meter) for name, meter in self.meters.items()}
        match take(f"h{self.count}", amounts, self.meters, now_ms=self.now_ms):
            case Taken(hold, meters, postings):
                assert all(amount <= before[name] for name, amount in amounts.items())
                self.meters |= meters
                self.postings += postings
                self.holds[hold.id] = hold
            case Short(meter, need, left):
                assert need > left == before[meter]
                assert {name: room(one) for name, one in self.meters.items()} == before

    @precondition(lambda self: self.holds)
    @rule(data=st.data())
    def settle_some_lines(self, data: st.DataObject) -> None:
        hold = self.holds[data.draw(st.sampled_from(sorted(self.holds)))]
        names = data.draw(st.sets(st.sampled_from(sorted(self.meters))))
        self.apply(
            close(hold, {name: data.draw(st.integers(0, 120)) for name in names}, self.meters, now_ms=self.now_ms)
        )

    @precondition(lambda self: self.holds)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        hold = self.holds[data.draw(st.sampled_from(sorted(self.holds)))]
        self.apply(refund(hold, self.meters, now_ms=self.now_ms))

    @rule(name=st.sampled_from([SLOTS, RESULTS, CREDITS]), figure=st.integers(0, 300))
    def hear_from_ripe(self, name: str, figure: int) -> None:
        meter = self.meters[name]
        heard = sync(meter, Reading(self.now_ms, figure, lagging_visible(meter)))
        assert used(heard) >= max(figure, lagging_visible(meter)) or heard == meter
        assert (heard.spent, heard.held) == (meter.spent, meter.held)
        self.meters[name] = heard

    @precondition(lambda self: self.postings)
    @rule(data=st.data())
    def crash_and_recover(self, data: st.DataObject) -> None:
        """Any prefix of the postings, even one that ends within an act, is within limits and leaves nothing behind."""
        prefix = self.postings[: data.draw(st.integers(0, len(self.postings)))]
        books = add_up(prefix)
        for name, balance in books.balances.items():
            assert balance.held >= 0
            assert balance.spent >= 0
            assert balance.held + balance.spent <= self.meters[name].limit
        rest = [Posting(meter, hold, "refund", left, 0) for (hold, meter), left in books.open_lines.items()]
        after = add_up([*prefix, *rest])
        assert after.open_lines == {}
        assert all(balance.held == 0 for balance in after.balances.values())

    def apply(self, end: Closed) -> None:
        for posting in end.postings:
            if posting.kind == "refund":
                line = (posting.hold, posting.meter)
                self.closings[line] = self.closings.get(line, 0) + 1
        self.meters |= end.meters
        self.postings += end.postings
        self.holds[end.hold.id] = end.hold

    @invariant()
    def never_over(self) -> None:
        for meter in getattr(self, "meters", {}).values():
            assert meter.spent >= 0
            assert meter.held >= 0
            assert meter.spent + meter.held <= meter.limit

    @invariant()
    def the_postings_are_the_balance(self) -> None:
        books = add_up(getattr(self, "postings", []))
        for name, meter in getattr(self, "meters", {}).items():
            assert books.balances.get(name, Balance()) == (meter.held, meter.spent)
            if meter.window == "sliding":
                assert sum(release.amount for release in meter.releases) == meter.spent
                assert list(meter.releases) == sorted(meter.releases)

    @invariant()
    def every_line_is_open_or_closed_once(self) -> None:
        books = add_up(getattr(self, "postings", []))
        lines = {(h.id, name): n for h in getattr(self, "holds", {}).values() for name, n in h.lines.items() if n}
        assert books.open_lines == lines
        assert all(count == 1 for count in getattr(self, "closings", {}).values())


TestTheLedger = pytest.mark.slow(TheLedger.TestCase)
TestTheLedger.settings = settings(max_examples=120, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize(
    ("free", "spent", "foreign", "days"),
    [
        (300, 100, 50, 2.0),
        (0, 10, 0, 0.0),
        (-5, 10, 0, 0.0),
        (100, 0, 0, None),
        (10**12, 1, 0, None),
        (50, 0, 100, 0.5),
    ],
)
def test_balance_ends_when_the_use_of_the_last_day_has_used_it_up(
    free: int, spent: int, foreign: int, days: float | None
) -> None:
    balance = CreditBalance(free, free, NOW_MS)
    spend = Meter("credits", 1_000, "sliding", spent=spent, foreign=foreign)
    ends_ms = balance_ends_ms(balance, spend, now_ms=NOW_MS)
    assert ends_ms == (None if days is None else NOW_MS + int(days * DAY_MS))
