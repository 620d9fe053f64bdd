"""How much one take can be asked for: more queues and more bytes than SQLite puts into one."""

import pytest

from headway.testing.conformance.examples import ORDERS, message, opened, operations
from headway.testing.ports import Done, Queue
from tests.conformance.test_sqlite import SqliteHarness


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
