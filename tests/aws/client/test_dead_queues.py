"""Messages from the dead queues are sent again: valid ones arrive, stale ones are dropped."""

from __future__ import annotations

import string
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, get_args

import pytest
from botocore.exceptions import ClientError

from paceline.adapters.aws import dead_queues
from paceline.adapters.aws.client import tables
from paceline.adapters.aws.client.connect import Clients
from paceline.adapters.aws.client.queues import Queues
from paceline.adapters.aws.dead_queues import once_again
from paceline.adapters.aws.store import AwsStore
from paceline.ports import queue_messages as messages
from paceline.ports.queue_messages import Alarm, CallWake, CheckWake, Letter, MinuteWake, ProviderRelease, Start
from paceline.steps.batches import redrive
from tests.aws.functions.test_batches import declare, plan, states
from tests.aws.support.lambda_stage import Cycle, Stage, Target
from tests.aws.support.monitor_stage import with_users
from tests.contract.support.call_stage import every, make_batch, provide, settle
from tests.contract.support.call_stage import plan as plan_runs
from tests.contract.support.stage import ALL_OUTGOING, MINUTE_MS, OUTGOING, T0_MS, armed, due_of, make_runs, put
from tests.contract.support.stage import claim as claim_runs

pytestmark = pytest.mark.aws

NONE = dict.fromkeys(("ticks-dead", "outgoing-dead", "runs-dead.fifo", "work-dead.fifo", "streams-dead"), 0)
RECEIVED_MAX = 5


def receive_in_vain(queues: Queues, name: str) -> None:
    """Makes every receiver fail until SQS moves the messages to the dead-letter queue."""
    for _ in range(RECEIVED_MAX + 1):
        while received := queues.receive(name, messages_max=10):
            for message in received:
                queues.hide(name, message.receipt, for_s=0)
            if received[0].received < RECEIVED_MAX:
                break
    assert queues.depth(name) == 0


def bodies(queues: Queues, name: str) -> list[str]:
    """What waits there; it stays hidden."""
    found: list[str] = []
    while received := queues.receive(name, messages_max=10):
        found += [message.body for message in received]
    return found


def replay(store: AwsStore, *, now_ms: int = T0_MS, messages_max: int = 100) -> redrive.Replay:
    return redrive.replay(store, now_ms=now_ms, messages_max=messages_max)


# -- the functions' own cycle


def test_messages_in_dead_queues_are_redriven_and_handled(stage: Stage, target: Target) -> None:
    """Holds within the five minutes in which a FIFO queue drops duplicates, too."""
    queues: Queues = stage.store._queues
    cycle = Cycle.of(stage)
    day = declare(stage, target, records=1)
    plan(day)
    stage.at(120_000)
    spec = {"check": {"kind": "http", "url": f"{target.url}/home"}, "every": "1h"}
    assert stage.rest("PUT", "/v1/users/boss/monitors/home", spec)[0] == 201
    cycle.items.pump()
    cycle.schedulers.pump()
    receive_in_vain(queues, "ticks")
    wake = CallWake(1, stage.now.now_ms(), 1)
    stage.now.outbox.wake([wake])
    receive_in_vain(queues, "runs.fifo")
    stage.now.outbox.wake([wake])
    assert stage.depth("runs.fifo") == 0, "SQS drops it as a duplicate"
    counts = NONE | {"ticks-dead": 1, "runs-dead.fifo": 1}
    assert stage.rest("GET", "/v1/status")[1]["dead_messages"] == counts
    told = stage.rest("POST", "/v1/dead/redrive", {"queues": True})
    assert told == (200, {"redriven": 2, "dropped": 0, "left": 0, "queues": counts})
    assert (stage.depth("ticks-dead"), stage.depth("runs-dead.fifo")) == (0, 0)
    cycle.until(lambda: len(target.asked) == 2)
    assert states(stage, day) == {"done": 1}
    assert sorted(target.asked) == ["/home", "/r0"]


def test_a_redriven_run_is_called_without_waiting_for_the_sweep(stage: Stage, target: Target) -> None:
    day = declare(stage, target, records=1)
    plan(day)
    end_dead(stage.store, stage.now.now_ms() + 120_000)
    stage.at(240_000)
    cycle = Cycle.of(stage)
    cycle.turn()
    assert target.asked == []
    assert stage.rest("POST", "/v1/dead/redrive", {"batch": "daily"}) == (200, {"redriven": 1})
    cycle.until(lambda: target.asked)
    assert states(stage, day) == {"done": 1}


def end_dead(store: AwsStore, now_ms: int) -> None:
    """Its first run fails, as soon as it may start."""
    for look in range(100):
        for call in store.claim_calls(now_ms=now_ms + look * 1_000, runs_max=1, lease_ms=60_000):
            assert settle(store, call, "failed", now_ms=now_ms + look * 1_000)
            return
    raise AssertionError("it has not started")


# -- the replayer


def test_promise_5_message_is_sent_again_after_a_kill_between_send_and_delete(
    aws_store: AwsStore, queues: Queues, clients: Clients
) -> None:
    number = provide(aws_store, "a")
    plan_runs(aws_store, make_batch(aws_store), every(10, 2))
    queues.send("ticks-dead", [Letter(messages.write(ProviderRelease(number, T0_MS)))])
    wake = CallWake(number, T0_MS, 7)
    queues.send("runs-dead.fifo", [Letter(messages.write(wake), group=wake.group, once=wake.once)])
    with killed_before_deleting(clients, queues), pytest.raises(RuntimeError):
        replay(aws_store)
    assert aws_store.dead_messages() == NONE | {"ticks-dead": 1, "runs-dead.fifo": 1}, "none is deleted"
    assert (queues.depth("ticks"), queues.depth("runs.fifo")) == (1, 1), "and each was sent"
    assert replay(aws_store).redriven == 2
    assert aws_store.dead_messages() == NONE
    assert (queues.depth("ticks"), queues.depth("runs.fifo")) == (2, 1), "the FIFO queue knows it by its new id"


@contextmanager
def killed_before_deleting(clients: Clients, queues: Queues) -> Iterator[None]:
    """What was received is seen again behind it, as if its time-out had passed: nobody waits for that here."""
    held: list[str] = []

    def keep(parsed: dict[str, Any], **_: object) -> None:
        held.extend(one["ReceiptHandle"] for one in parsed.get("Messages", ()))

    def kill(**_: object) -> NoReturn:
        raise RuntimeError("killed")

    events = clients.sqs.meta.events
    events.register("after-call.sqs.ReceiveMessage", keep)
    events.register("before-call.sqs.DeleteMessageBatch", kill)
    try:
        yield
    finally:
        events.unregister("before-call.sqs.DeleteMessageBatch", kill)
        events.unregister("after-call.sqs.ReceiveMessage", keep)
    for name in ("ticks-dead", "runs-dead.fifo"):
        for receipt in held:
            with suppress(ClientError):  # it is the other queue's
                queues.hide(name, receipt, for_s=0)


def test_message_that_fails_again_is_redriven_again(aws_store: AwsStore, queues: Queues) -> None:
    number = provide(aws_store, "a")
    plan_runs(aws_store, make_batch(aws_store), every(10, 1))
    wake = CallWake(number, T0_MS, 7)
    queues.send("runs.fifo", [Letter(messages.write(wake), group=wake.group, once=wake.once)])
    for _ in range(2):
        receive_in_vain(queues, "runs.fifo")
        assert replay(aws_store).queues["runs-dead.fifo"] == 1
    (again,) = queues.receive("runs.fifo", messages_max=10)
    assert (again.body, again.group, again.once) == (messages.write(wake), wake.group, f"{wake.once}#r2")


def test_stale_messages_are_dropped_and_unreadable_messages_stay(aws_store: AwsStore, queues: Queues) -> None:
    with_users(aws_store)
    aws_store.alarms.sends = False
    due = due_of(aws_store, armed(aws_store, "home"))
    busy, rests = provide(aws_store, "busy"), provide(aws_store, "rests")
    plan_runs(aws_store, make_batch(aws_store), every(10, 1, first_ms=T0_MS + MINUTE_MS), provider="busy")
    stale: list[messages.Tick] = [
        Alarm(due.generation, due.counter + 1, due.due_ms),
        Alarm(due.generation, due.counter, due.due_ms - 1),
        Alarm(999, 0, T0_MS),
        ProviderRelease(busy, T0_MS),
        ProviderRelease(rests, T0_MS),
        ProviderRelease(999, T0_MS),
        Start(999, 0, T0_MS),
    ]
    live: list[messages.Tick] = [
        Alarm(due.generation, due.counter, due.due_ms),
        ProviderRelease(busy, T0_MS + MINUTE_MS),
    ]
    texts = [messages.write(one) for one in (*stale, *live)]
    queues.send("ticks-dead", [Letter(text) for text in (*texts, "not ours", "{}")])
    wakes: list[messages.Wake] = [
        CheckWake(999, 0),
        CallWake(busy, T0_MS, 1),
        CallWake(rests, T0_MS, 1),
        MinuteWake(T0_MS // 60_000 - 2),
    ]
    fifo = [Letter(messages.write(wake), group=wake.group, once=wake.once) for wake in wakes]
    queues.send("runs-dead.fifo", [*fifo, Letter("not ours", group="x", once="x")])
    queues.send("streams-dead", [Letter("not ours"), Letter("[1]")])
    told = replay(aws_store)
    assert (told.redriven, told.dropped, told.left) == (2, 11, 5)
    again = replay(aws_store)
    assert (again.redriven, again.dropped, again.left) == (0, 0, 5), "it is told again"
    assert sorted(bodies(queues, "ticks-dead")) == ["not ours", "{}"]
    assert (queues.depth("ticks"), queues.depth("runs.fifo")) == (2, 0)


def test_run_abandoned_by_a_checker_is_offered_again_until_it_is_claimed(aws_store: AwsStore, queues: Queues) -> None:
    with_users(aws_store)
    make_runs(aws_store, armed(aws_store, "mine", check=OUTGOING))
    receive_in_vain(queues, "outgoing")
    assert replay(aws_store).queues["outgoing-dead"] == 1
    assert queues.depth("outgoing") == 1
    receive_in_vain(queues, "outgoing")
    assert len(claim_runs(aws_store, ALL_OUTGOING)) == 1
    told = replay(aws_store)
    assert (told.redriven, told.dropped, queues.depth("outgoing")) == (0, 1, 0)


def test_lost_stream_records_are_replayed(aws_store: AwsStore, queues: Queues) -> None:
    with_users(aws_store)
    put(aws_store, "home")
    assert aws_store.changes(limit=10, now_ms=T0_MS)
    text = '{"version": "1.0", "DDBStreamBatchInfo": {"shardId": "s-1", "batchSize": 3}}'
    queues.send("streams-dead", [Letter(text), Letter(text)])
    told = replay(aws_store)
    assert (told.queues["streams-dead"], told.left) == (2, 0)
    assert aws_store.changes(limit=10, now_ms=T0_MS) == []
    assert aws_store.dead_messages() == NONE


def test_replay_takes_at_most_the_limit_and_reports_the_rest(aws_store: AwsStore, queues: Queues) -> None:
    queues.send("ticks-dead", [Letter(messages.write(Alarm(number, 0, 1))) for number in range(1, 26)])
    told = replay(aws_store, messages_max=12)
    assert (told.redriven, told.dropped, told.left) == (0, 12, 13)


def test_unreadable_message_does_not_block_later_messages_of_its_group(aws_store: AwsStore, queues: Queues) -> None:
    stale = [Letter(messages.write(CallWake(9, number, 1)), group="g", once=f"c{number}") for number in range(12)]
    queues.send("runs-dead.fifo", [Letter("not ours", group="g", once="x"), *stale])
    told = replay(aws_store)
    assert (told.redriven, told.dropped, told.left) == (0, 12, 1)
    assert bodies(queues, "runs-dead.fifo") == ["not ours"]


def test_new_deduplication_id_is_valid_for_sqs_and_differs_each_time() -> None:
    assert once_again("call-1-2") == "call-1-2#r1"
    assert once_again("call-1-2#r1") == "call-1-2#r2"
    assert once_again("#r9#r9") == "#r9#r10"
    taken = set(string.ascii_letters + string.digits + string.punctuation)
    for first in ("x" * 128, "x" * 126, "x" * 125 + "#r9", "x#r999999999"):
        seen = [first]
        for _ in range(3):
            seen.append(once_again(seen[-1]))
        assert all(len(once) <= 128 and set(once) <= taken for once in seen)
        assert len(set(seen)) == 4


def test_the_replayer_knows_every_dead_queue_and_every_message() -> None:
    known = {kind for kinds in dead_queues.KINDS.values() for kind in kinds}
    assert known == set(get_args(messages.Body))
    assert set(dead_queues.DEAD_QUEUES) == {queue.name for queue in tables.QUEUES if "-dead" in queue.name}
    assert set(dead_queues.KINDS) == set(dead_queues.SOURCES.values())


def test_empty_dead_queues_replay_nothing(aws_store: AwsStore) -> None:
    followed: list[int] = []
    assert set(aws_store.dead_messages().values()) <= {0}
    done = aws_store.replay_dead(now_ms=T0_MS, limit=10, react=lambda: followed.append(1))
    assert set(done) == set(aws_store.dead_messages())
    assert {tuple(one) for one in done.values()} <= {(0, 0, 0)}
    assert followed == []
