"""Queues, events, units and letters for the suites, and how they take what they expect."""

import itertools
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from headway.core.action import Reason
from headway.core.event import DoneKey, Event, encode
from headway.core.letter import Letter, write_letter
from headway.core.travel import AttemptRecord, Refusal, Travel
from headway.core.writes import Write
from headway.ports.bus import Delivery, Done, Message, Queue
from headway.ports.commit import Finish, Outcome, Unit
from headway.ports.engine import Engine
from headway.ports.records import DoneRecord, Ended
from headway.testing.conformance.harness import EngineHarness

ORDERS = Queue(name="shop.orders", event_types=("OrderPlaced", "OrderPaid"), failed="shop.failed")
MAILS = Queue(name="mail.orders", event_types=("OrderPlaced",), failed="mail.failed")
QUEUES = (ORDERS, MAILS)
PLACED = "OrderPlaced"
PAID = "OrderPaid"
"""Only ORDERS takes it."""
NOBODYS = "NobodyTakesThis"
PATIENCE = timedelta(seconds=30)
"""How long a suite waits for an answer that must come: a bound for failures, never a claim."""
_WRITINGS = itertools.count(1)


async def opened(harness: EngineHarness, queues: Sequence[Queue] = QUEUES) -> Engine:
    """Give a new process that has declared the queues."""
    engine = await harness.open_engine()
    await engine.bus.open(queues)
    return engine


def message(operation: str, *, body: bytes | None = None, **fields: Any) -> Message:
    """Make an event of the type that only ORDERS takes; `fields` are those of Message."""
    if body is None:
        body = encode(Event(event_type=PAID, event_id=operation, data={"order": operation}))
    made: dict[str, Any] = {"travel": Travel(operation=operation), "event_type": PAID, **fields}
    return Message(body=body, **made)


async def publish(engine: Engine, *operations: str) -> None:
    """Publish an event for each operation, in this order, to ORDERS."""
    await engine.bus.publish([message(operation) for operation in operations])


async def take(harness: EngineHarness, engine: Engine, count: int, *queues: str) -> list[Delivery]:
    """Take this many, with patience: a busy server may need long, and several answers."""
    taken: list[Delivery] = []
    deadline = harness.clock.now() + PATIENCE
    while len(taken) < count and (left := deadline - harness.clock.now()) > timedelta():
        taken += await engine.bus.take(queues or (ORDERS.name,), count - len(taken), left)
    assert len(taken) == count, f"{count} were expected, and there are only {operations(taken)}"
    return taken


async def take_one(harness: EngineHarness, engine: Engine, *queues: str) -> Delivery:
    (delivery,) = await take(harness, engine, 1, *queues)
    return delivery


async def nothing_due(harness: EngineHarness, engine: Engine, *queues: str) -> None:
    """Look for a moment, and find that nothing is due."""
    found = await engine.bus.take(queues or (ORDERS.name,), 100, harness.moment)
    assert operations(found) == []


def operations(deliveries: Sequence[Delivery]) -> list[str]:
    return [delivery.travel.operation for delivery in deliveries]


def key_of(delivery: Delivery) -> str:
    """Name the work as a service with one handler would, each operation with its own key."""
    travel = delivery.travel
    return str(DoneKey(delivery.queue, PAID, travel.operation, travel.generation))


def unit(
    delivery: Delivery, now: datetime, *, ended: Ended = Ended.DONE, key: str = "", **fields: Any
) -> Unit:
    """Finish a delivery with a record; `fields` are those of Unit."""
    record = DoneRecord(
        key=key or key_of(delivery),
        operation=delivery.travel.operation,
        queue=delivery.queue,
        ended=ended,
        at=now,
    )
    return Unit(delivery=delivery, then=Done(), record=record, **fields)


def failing(delivery: Delivery, now: datetime, **fields: Any) -> Unit:
    """Finish a delivery without success: its record says so, and it has a letter."""
    letter = letter_for(delivery.travel, now, body=delivery.body, queue=delivery.queue)
    return unit(
        delivery, now, ended=Ended.FAILED, letter=letter, failed_queue=ORDERS.failed, **fields
    )


def letter_for(
    travel: Travel, now: datetime, *, body: bytes = b'{"event_type":"OrderPaid"}', queue: str = ""
) -> Letter:
    return write_letter(
        body,
        queue=queue or ORDERS.name,
        travel=travel,
        idempotency_key=travel.operation,
        service="shop",
        event_type=PAID,
        reason=Reason.NON_RETRYABLE,
        last_error="the order is käse ✓",
        error_type="ValueError",
        now=now,
        headers={"x-trace": "a b"},
    )


def letters_for(names: Sequence[str], now: datetime) -> list[Letter]:
    return [letter_for(Travel(operation=name), now) for name in names]


def sent_again(letter: Letter) -> Message:
    """Make the message that a person's requeue sends: its generation comes from the letter."""
    generation = f"{letter.letter_id}-{letter.requeues + 1}"
    travel = Travel(operation=letter.operation, generation=generation, requeues=letter.requeues + 1)
    return message(letter.operation, body=letter.body, travel=travel, queue=letter.queue)


def well_travelled(operation: str, now: datetime, attempts: int = 3) -> Travel:
    """Make a travel in which every field is used, with words of many alphabets."""
    history = tuple(
        AttemptRecord(
            number=number,
            at="2000-01-01T00:00:00Z",
            worker="wörker-1",
            error_type="ValueError",
            message=f'注文 "{number}" ist käse ✓\n\x00\x7f\\',
            verdict="transient",
            rule="any",
            traceback="Traceback (most recent call last):\n" * 30,
            version="Ausgabe 1",
        )
        for number in range(1, attempts + 1)
    )
    refusals = tuple(
        Refusal(version=version, since="2000-01-01T00:00:00Z", error="注文 ✓\n", awaited=("2", "3"))
        for version in ("", "Ausgabe ü/1")
    )
    return Travel(
        operation=operation,
        failures=attempts,
        not_yet=1,
        first_seen=now - timedelta(minutes=1),
        parked=timedelta(seconds=2.5),
        parked_since=now,
        requeues=1,
        history=history,
        refusals=refusals,
        hops=12,
    )


def unseen(travel: Travel) -> Travel:
    """Leave the first taking out of a comparison: the engine fills it in."""
    return msgspec.structs.replace(travel, first_seen=None)


async def wrote(harness: EngineHarness, engine: Engine, *writes: Write) -> Finish:
    """Commit writes, as the handler of an event of their own does, and say what became of them."""
    operation = f"writing-{next(_WRITINGS)}"
    await engine.bus.publish([message(operation, queue=MAILS.name)])
    delivery = await take_one(harness, engine, MAILS.name)
    (finish,) = await engine.finisher.finish([unit(delivery, harness.clock.now(), writes=writes)])
    if finish.outcome is Outcome.REFUSED:
        await engine.bus.settle([(delivery, Done())])
    return finish


def kinds(finishes: Sequence[Finish]) -> list[Outcome]:
    return [finish.outcome for finish in finishes]
