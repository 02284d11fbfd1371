"""Many small acts in few transactions: each act wins or loses by itself, and costs a share of a request.

An act is a list of actions that are written together or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TypeVar

from paceline.adapters.aws.client.connect import busy
from paceline.adapters.aws.client.database import ACTIONS_MAX, DynamoDatabase, Transacted
from paceline.adapters.aws.client.items import Action, Item

ACTS_MAX = 30
"""Acts of one transaction. More would save little, and it would conflict with others more often."""
ROUNDS_MAX = 40
BESIDE_MAX = 1

T = TypeVar("T")
R = TypeVar("R")

Act = Sequence[Action]
Again = Callable[[int, Sequence[bool], Sequence[Item | None]], "Act | None"]
Beside = Callable[[Sequence[int]], Sequence[Action]]


def nothing_beside(_acts: Sequence[int]) -> Sequence[Action]:
    return ()


def lost_for_good(_act: int, _lost: Sequence[bool], _items: Sequence[Item | None]) -> Act | None:
    return None


def in_waves(items: Sequence[T], key: Callable[[T], Hashable], write: Callable[[list[T]], list[R]]) -> list[R]:
    """Write items in waves: no key is twice in one, and items of a key stay in order. Return the result of each."""
    waves: list[list[int]] = []
    seen: Counter[Hashable] = Counter()
    for position, item in enumerate(items):
        wave = seen[key(item)]
        seen[key(item)] += 1
        if wave == len(waves):
            waves.append([])
        waves[wave].append(position)
    done: dict[int, R] = {}
    for positions in waves:
        done.update(zip(positions, write([items[position] for position in positions]), strict=True))
    return [done[position] for position in range(len(items))]


def transact_acts(
    db: DynamoDatabase,
    acts: Sequence[Act],
    *,
    again: Again = lost_for_good,
    beside: Beside = nothing_beside,
    spare: int = 0,
) -> list[bool]:
    """Write acts, and return which of them happened, each whole or not at all. No two may name the same item.

    If an act's conditions fail, ``again`` is asked for a new act, with the stored items; None means that it has lost.
    The new act may have ``spare`` more actions. ``beside`` has no condition and is written with whichever acts are
    tried together.
    """
    won = [False] * len(acts)

    def try_pack(pack: Sequence[int]) -> None:
        left = {position: acts[position] for position in pack}
        for _ in range(ROUNDS_MAX):
            actions = [action for act in left.values() for action in act]
            done = db.transact([*actions, *beside(list(left))])
            if done.won:
                for position in left:
                    won[position] = True
                return
            # DynamoDB cancels the whole transaction and tells which conditions failed. The other acts are tried again,
            # the losers only if ``again`` returns a new act for them.
            left = dict(_after_loss(left, done, again))
            if not left:
                return
        raise busy("the same entries and runs")

    db.threads.fan_out(try_pack, _packs(acts, spare))
    return won


def _after_loss(left: dict[int, Act], done: Transacted, again: Again) -> Iterator[tuple[int, Act]]:
    at = 0
    for position, act in left.items():
        lost, items = done.lost[at : at + len(act)], done.items[at : at + len(act)]
        at += len(act)
        wanted = again(position, lost, items) if any(lost) else act
        if wanted is not None:
            yield position, wanted


def _packs(acts: Sequence[Act], spare: int) -> Iterator[list[int]]:
    pack: list[int] = []
    size = 0
    for position, act in enumerate(acts):
        more = len(act) + spare
        assert more <= ACTIONS_MAX - BESIDE_MAX
        if pack and (len(pack) == ACTS_MAX or size + more > ACTIONS_MAX - BESIDE_MAX):
            yield pack
            pack, size = [], 0
        pack.append(position)
        size += more
    if pack:
        yield pack
