"""Promise "within budget": the postings are added up again, line by line and meter by meter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from paceline.core.jobs.accounts import meter_name
from paceline.core.verify.facts import AccountLimitFact, Fact, LimitFact, MeasurementFact, MeterFact, PostingFact
from paceline.core.verify.verdict import Counterexample, JudgeFinding

JOB_ENDED = frozenset({"done", "failed", "cancelled"})
STOPPED = 4
"""RIPE's status of a measurement that has ended as it should."""
Line = tuple[int, str]
"""An attempt and a meter: the hold of one send on one meter."""


class BudgetJudge:
    """Takes meters, then measurements with their postings. Keeps a few numbers for each meter."""

    def __init__(self) -> None:
        self._judged = 0
        self._broken: list[Counterexample] = []
        self._meters: dict[str, MeterFact] = {}
        self._limits: dict[str, list[LimitFact]] = {}
        self._declared: dict[str, int] = {}
        """Highest limit that was ever declared for a meter of an account."""
        self._held: Counter[str] = Counter()
        self._spent: Counter[str] = Counter()
        self._measurement: MeasurementFact | None = None
        self._lines: dict[Line, dict[str, PostingFact]] = {}

    def see(self, fact: Fact) -> None:
        match fact:
            case LimitFact():
                self._limits.setdefault(fact.user, []).append(fact)
            case AccountLimitFact():
                for meter in ("concurrent", "results", "credits"):
                    name = meter_name(fact.account, meter)
                    self._declared[name] = max(self._declared.get(name, 0), getattr(fact, meter))
            case MeterFact():
                self._judged += 1
                self._meters[fact.name] = fact
            case MeasurementFact():
                self._end_measurement()
                self._measurement = fact
            case PostingFact():
                self._post(fact)
            case _:
                pass

    def finding(self) -> JudgeFinding:
        self._end_measurement()
        return JudgeFinding("within budget", self._judged, [*self._broken, *self._judge_meters()])

    def _post(self, posting: PostingFact) -> None:
        self._judged += 1
        if posting.meter not in self._meters:
            self._broken.append(Counterexample("a posting is on no meter", (posting,)))
        self._held[posting.meter] += posting.amount * (
            (posting.move == "hold") - (posting.move in ("settle", "refund"))
        )
        self._spent[posting.meter] += posting.amount * ((posting.move == "settle") - (posting.move == "expire"))
        if posting.move == "expire":
            return
        line = self._lines.setdefault((posting.attempt, posting.meter), {})
        if posting.move in line:
            self._broken.append(Counterexample("a hold was posted twice", (line[posting.move], posting)))
        line[posting.move] = posting

    def _end_measurement(self) -> None:
        measurement, lines = self._measurement, self._lines
        self._measurement, self._lines = None, {}
        if measurement is None:
            if lines:
                first = next(iter(lines.values()))
                self._broken.append(Counterexample("a posting is of no measurement", tuple(first.values())[:3]))
            return
        name = f"{measurement.job}/{measurement.index}"
        for (attempt, _), line in lines.items():
            self._broken += self._judge_line(f"{name}, attempt {attempt}", line)
        self._broken += _judge_own_line(name, measurement, lines)
        self._broken += self._judge_slot(name, measurement, lines)
        self._broken += _judge_price(name, measurement)

    def _judge_line(self, name: str, line: dict[str, PostingFact]) -> Iterator[Counterexample]:
        facts = tuple(line.values())[:3]
        hold, closed = line.get("hold"), sum(line[move].amount for move in ("settle", "refund") if move in line)
        if hold is None:
            yield Counterexample(f"{name} closed what was never held", facts)
        elif ("settle" in line) != ("refund" in line):
            yield Counterexample(f"{name} is half closed", facts)
        elif "settle" in line and closed != hold.amount:
            yield Counterexample(f"{name} held {hold.amount} and closed {closed}", facts)

    def _judge_slot(
        self, name: str, measurement: MeasurementFact, lines: dict[Line, dict[str, PostingFact]]
    ) -> Iterator[Counterexample]:
        """Judge that a send's hold on its account is open exactly as long as its slot is held.

        A measurement that ended well gives its slot back at once only if RIPE has said that it has stopped. If its
        results could not be counted, RIPE's newest status is not stored, but there is a reason.
        """
        for (attempt, meter), line in lines.items():
            known = self._meters.get(meter)
            if attempt == 0 or known is None or known.window != "until_released" or "hold" not in line:
                continue
            is_open = "settle" not in line
            if is_open != (measurement.slot and attempt == measurement.attempt):
                yield Counterexample(
                    f"{name}: its slot is held and the line is closed, or the other way round",
                    (measurement, line["hold"]),
                )
            at_once = not is_open and line["settle"].at_ms == measurement.ended_ms and attempt == measurement.attempt
            plain = measurement.state == "done" and not measurement.reason
            if plain and at_once and any(status != STOPPED for status in measurement.statuses):
                says = f"{name} gave its slot back when it ended, and RIPE still counted it as running"
                yield Counterexample(says, (measurement, line["settle"]))

    def _judge_meters(self) -> Iterator[Counterexample]:
        for meter in self._meters.values():
            if meter.limit < 0:  # a meter in a ledger of one job alone: postings of others are missing
                continue
            held = meter.opened_held + self._held[meter.name]
            spent = meter.opened_spent + self._spent[meter.name]
            if (held, spent) != (meter.held, meter.spent):
                says = f"{meter.name}: the postings come to {held} held and {spent} spent"
                yield Counterexample(says, (meter,))
            if meter.released is not None and meter.released != meter.spent:
                yield Counterexample(f"{meter.name}: the releases come to {meter.released}", (meter,))
            if meter.limit > self._declared.get(meter.name, meter.limit):
                most = self._declared[meter.name]
                says = f"{meter.name}: its limit is {meter.limit}, and never more than {most} was declared"
                yield Counterexample(says, (meter,))
            noted = [one for one in self._limits.get(meter.user, ()) if meter.user]
            limit = max([meter.limit, *(one.daily_credits for one in noted)])
            if meter.user and meter.held + meter.spent > limit:
                says = f"{meter.name}: {meter.held + meter.spent} are in use, and never were more than {limit} allowed"
                yield Counterexample(says, (meter,))


def _judge_own_line(
    name: str, measurement: MeasurementFact, lines: dict[Line, dict[str, PostingFact]]
) -> Iterator[Counterexample]:
    """Judge that the hold on the user's day is closed when the measurement has ended, on the settled sum."""
    own = [line for (attempt, _), line in lines.items() if attempt == 0]
    ended = measurement.state in JOB_ENDED
    if len(own) != 1 or "hold" not in own[0]:
        yield Counterexample(f"{name} has {len(own)} holds on its user's day", (measurement,))
        return
    [line] = own
    if line["hold"].amount != measurement.credits:
        yield Counterexample(f"{name} holds another sum than it can cost", (measurement, line["hold"]))
    if ended != ("settle" in line):
        yield Counterexample(
            f"{name} has ended and is not settled, or the other way round", (measurement, line["hold"])
        )
    elif ended and line["settle"].amount != measurement.settled:
        yield Counterexample(f"{name} was settled on another sum than was posted", (measurement, line["settle"]))


def _judge_price(name: str, measurement: MeasurementFact) -> Iterator[Counterexample]:
    """Judge that no more is charged than the delivered results cost.

    A measurement with a reason is left out: nobody could count its results.
    """
    if measurement.settled is None or measurement.state != "done" or measurement.reason:
        return
    pairs = zip(measurement.delivered, measurement.prices, strict=False)
    cost = min(sum(count * price for count, price in pairs), measurement.credits)
    if measurement.settled > cost:
        says = f"{name} was charged {measurement.settled}, and what was delivered costs {cost}"
        yield Counterexample(says, (measurement,))
