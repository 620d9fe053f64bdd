"""Events in a file: rows that others changed, and more than SQLite puts into one answer."""

import asyncio
import sqlite3
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from headway import Service
from headway.clock import SystemChance
from headway.testing.conformance.examples import ORDERS, message, opened, operations, publish
from headway.testing.engines import Publisher, Worker
from headway.testing.facts import Recorder
from headway.testing.ports import Done, Engine, Queue
from tests.conformance.test_sqlite import SqliteHarness

CHANGES = {
    "history that is no JSON": "history = 'not json'",
    "history of another program": """history = '[{"foo":1}]'""",
    "refusals that are no JSON": "refusals = 'not json'",
    "a refusal at no time": """refusals = '[{"version":"1","since":"x","error":""}]'""",
    "no body": "body = null",
    "text that is not UTF-8": "body = cast(x'7bff7d' as text)",
    "a time after all dates": "first_seen = 1e300",
    "a time before all dates": "parked_since = -1e300",
    "bytes as its operation": "operation = x'00ff'",
    "a text as its failures": "failures = 'many'",
}


def change(harness: SqliteHarness, to: str, which: str) -> bytes:
    """Change an event by hand; give the bytes of its body."""
    with closing(sqlite3.connect(harness.path)) as connection, connection:
        connection.execute(f"update headway_items set {to} where {which}")
        read = f"select coalesce(cast(body as blob), x'') from headway_items where {which}"
        return bytes(connection.execute(read).fetchone()[0])


@pytest.mark.parametrize("to", CHANGES.values(), ids=CHANGES)
async def test_one_becomes_a_dead_letter_with_its_bytes_and_all_others_are_handled(
    harness: SqliteHarness, to: str
) -> None:
    handled: list[int] = []
    orders, mails = Service("orders"), Service("mails")

    @orders.on("Placed")
    async def place(event: Any, work: Any) -> None:
        handled.append(event.data["n"])

    @mails.on("Mailed")
    async def mail(event: Any, work: Any) -> None:
        handled.append(event.data["n"])

    engine = await opened(harness, [*orders.queues(), *mails.queues()])
    publisher = Publisher(engine.bus, harness.clock, SystemChance())
    for n, event_type in enumerate(["Placed", "Placed", "Placed", "Mailed"]):
        await publisher.publish(event_type, {"n": n}, event_id="bad" if n == 1 else None)
    body = change(harness, to, "id = 2")

    worker = Worker(
        [orders, mails],
        await harness.open_engine(),
        clock=harness.clock,
        chance=SystemChance(),
        observer=Recorder(),
    )
    running = asyncio.create_task(worker.run())
    try:
        async with asyncio.timeout(20):
            while not running.done() and not await is_empty(engine):  # noqa: ASYNC110 (a file)
                await asyncio.sleep(0.02)
    finally:
        worker.stop()
        await running
    assert sorted(handled) == [0, 2, 3]
    (letter,) = await engine.letters.read("orders.failed", 10)
    assert letter.abandoned_reason == "malformed"
    assert "Row 2 of headway_items" in letter.last_error
    assert letter.body == body
    if "operation" not in to:
        assert letter.operation == "bad"
        assert (await engine.places.astray(10))[0] == 0


async def is_empty(engine: Engine) -> bool:
    return all(q.ready + q.leased + q.delayed == 0 for q in (await engine.places.depths()).queues)


async def test_the_oldest_come_first_also_among_those_that_cannot_be_read(
    harness: SqliteHarness,
) -> None:
    engine = await opened(harness)
    await publish(engine, *"abcdef")
    change(harness, "failures = 'many'", "id in (1, 4)")
    assert operations(await engine.bus.take([ORDERS.name], 5)) == list("abcde")


@pytest.mark.parametrize("due", ["'soon'", "cast(x'ff' as text)", "x'ff'", "9e999", "-9e999"])
async def test_a_due_time_that_is_none_keeps_no_other_event_from_its_worker(
    harness: SqliteHarness, due: str
) -> None:
    engine = await opened(harness)
    await publish(engine, "a")
    change(harness, f"due = {due}", "id = 1")
    await publish(engine, "b")
    found = operations(await engine.bus.take([ORDERS.name], 5))
    assert found[-1] == "b"
    assert operations(await engine.bus.take([ORDERS.name], 5, timedelta(milliseconds=20))) == []
    await engine.places.depths()
    await engine.places.balance()


# How much one take can be asked for


async def test_large_events_are_taken_a_few_at_a_time(harness: SqliteHarness) -> None:
    engine = await opened(harness)
    body = b"\x01" * 5_000_000  # in JSON each is six, and SQLite holds 10**9 at once
    names = [f"{number:02}" for number in range(16)]
    for start in (0, 8):
        await engine.bus.publish([message(name, body=body) for name in names[start : start + 8]])
    found: list[str] = []
    while taken := await engine.bus.take([ORDERS.name], 256):
        assert all(delivery.body == body for delivery in taken)
        assert len(taken) <= 7
        found += operations(taken)
        await engine.bus.settle([(delivery, Done()) for delivery in taken])
    assert found == names


@pytest.mark.parametrize("size", [2**16 - 1, 2**16, 2**16 + 1])
async def test_bodies_about_as_large_as_one_answer_holds_come_out_as_they_went_in(
    harness: SqliteHarness, size: int
) -> None:
    engine = await opened(harness)
    bodies = [b"x" * size, b"\x00" * size, "ä".encode() * (size // 2) + b"x" * (size % 2)]
    await engine.bus.publish([message(f"{n}", body=body) for n, body in enumerate(bodies)])
    taken = await engine.bus.take([ORDERS.name], 10)
    assert [delivery.body == body for delivery, body in zip(taken, bodies, strict=True)] == [
        True
    ] * 3


async def test_seven_hundred_queues_give_their_oldest_first(harness: SqliteHarness) -> None:
    queues = [Queue(name=f"q.{n}", event_types=(), failed="q.failed") for n in range(700)]
    engine = await opened(harness, queues)
    names = [queue.name for queue in queues]
    order = [names[number * 457 % 700] for number in range(700)]
    for start in range(0, 700, 100):
        await engine.bus.publish([message(n, queue=n) for n in order[start : start + 100]])
    found: list[str] = []
    while taken := await engine.bus.take(names, 90):
        found += operations(taken)
    assert found == order
