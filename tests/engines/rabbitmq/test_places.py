import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from headway.adapters.rabbitmq.scanning import Scan, Taken
from headway.adapters.rabbitmq.topology import STEPS, delay_name, suspects_of
from headway.operations import verify
from headway.runtime.overview import Verdict
from headway.testing.conformance.examples import (
    MAILS,
    ORDERS,
    QUEUES,
    letters_for,
    message,
    take_one,
)
from headway.testing.engines import RabbitParts, without_store
from headway.testing.ports import Done, Later, Travel
from tests.engines.rabbitmq.by_hand import channel_to, put
from tests.engines.rabbitmq.engine import RabbitEngineHarness

Harness = RabbitEngineHarness


@pytest.fixture
async def harness(rabbitmq_vhost: str) -> AsyncIterator[RabbitEngineHarness]:
    harness = RabbitEngineHarness(rabbitmq_vhost)
    yield harness
    await harness.close()


async def opened(harness: Harness) -> RabbitParts:
    parts = harness.open_parts()
    await parts.bus.open(QUEUES)
    return parts


async def test_what_a_broker_can_count_is_counted(harness: Harness) -> None:
    parts, watcher = await opened(harness), await opened(harness)
    await parts.bus.publish([message(name) for name in ("later", "taken", "ready")])
    await parts.letters.write(MAILS.failed, letters_for(["a", "b"], harness.clock.now()))
    engine = without_store(parts)
    later = await take_one(harness, engine)
    tomorrow = harness.clock.now() + timedelta(days=1)
    await parts.bus.settle([(later, Later(tomorrow, Travel(operation="later")))])
    await parts.bus.close()  # hands back what was delivered ahead
    put(harness.url, suspects_of(ORDERS.name), b"{}", message_id="suspect")
    places = without_store(watcher).places
    for _ in range(3):
        count = await places.balance()
        mails, orders, delayed = count.queues
        assert (mails.queue, mails.waiting) == (MAILS.name, 0)
        assert (orders.queue, orders.ready, orders.suspects) == (ORDERS.name, 3, 1)
        assert orders.waiting == 3
        assert (delayed.queue, delayed.delayed, delayed.waiting) == ("headway.delay", 1, 1)
        assert dict(count.failed) == {MAILS.failed: 2, ORDERS.failed: 0}
        assert (count.done, count.accepted, count.remembers) == (0, None, False)
    assert await places.astray(10) == (0, [])


async def test_counting_takes_nothing_from_anybody(harness: Harness) -> None:
    parts, watcher = await opened(harness), await opened(harness)
    await parts.bus.publish([message("a"), message("b")])
    engine = without_store(parts)
    first = await take_one(harness, engine)
    for _ in range(3):
        await watcher.places.depths()
    assert list(await parts.bus.settle([(first, Done())])) == [True]
    assert (await take_one(harness, engine)).returns == 0


async def test_a_deleted_queue_does_not_break_the_count(harness: Harness) -> None:
    parts = await opened(harness)
    await parts.bus.publish([message("a")])
    with channel_to(harness.url) as channel:
        for queue in (MAILS.name, MAILS.failed, suspects_of(ORDERS.name), delay_name(STEPS[3])):
            channel.queue_delete(queue)
    count = await parts.places.depths()
    assert [(each.queue, each.ready) for each in count.queues] == [
        (MAILS.name, 0),
        (ORDERS.name, 1),
    ]
    assert dict(count.failed) == {MAILS.failed: 0, ORDERS.failed: 0}
    assert dict(await parts.places.where(["a"])) == {}


async def test_letters_are_found_in_every_failed_queue_and_stay(harness: Harness) -> None:
    parts = await opened(harness)
    letters = letters_for([f"operation-{each}" for each in range(1_200)], harness.clock.now())
    await parts.letters.write(ORDERS.failed, letters)
    await parts.letters.write(MAILS.failed, letters[:1])
    wanted = ["operation-0", "operation-1199", "nobody's"]
    for _ in range(3):
        assert dict(await parts.places.where(wanted)) == {
            "operation-0": ["failed in mail.failed", "failed in shop.failed"],
            "operation-1199": ["failed in shop.failed"],
        }
    assert dict(await parts.places.where([])) == {}
    assert dict((await parts.places.depths()).failed) == {MAILS.failed: 1, ORDERS.failed: 1_200}


async def test_nobody_can_verify_a_broker_alone(harness: Harness) -> None:
    parts = await opened(harness)
    await parts.bus.publish([message("a")])
    assert (await verify(without_store(parts).places)).verdict is Verdict.UNKNOWN


async def test_a_search_reads_every_letter_once_whatever_else_is_done_with_them(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = await opened(harness)
    read: list[int] = []
    take = Scan.take

    def counted(scan: Scan, wanted: int) -> list[Taken]:
        found = take(scan, wanted)
        if scan.queue == ORDERS.failed:
            read.append(len(found))
        return found

    monkeypatch.setattr(Scan, "take", counted)
    await parts.letters.write(MAILS.failed, letters_for(["mail"], harness.clock.now()))
    for size in (50, 5_000):
        names = [f"operation-{size}-{each}" for each in range(size)]
        letters = letters_for(names, harness.clock.now())
        await parts.letters.write(ORDERS.failed, letters)
        disturbing = asyncio.create_task(disturb(parts))
        read.clear()
        async with asyncio.timeout(60):
            found = await parts.places.where([names[-1], "nobody's"])
        disturbing.cancel()
        assert sum(read) == size
        assert dict(found) == {names[-1]: [f"failed in {ORDERS.failed}"]}
        await parts.letters.remove(ORDERS.failed, [each.letter_id for each in letters])


async def disturb(parts: RabbitParts) -> None:
    """Read another failed queue again and again: what is read in between is given back for it."""
    while True:
        await parts.letters.read(MAILS.failed, 1)


async def test_a_search_ends_as_soon_as_everything_is_found(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = await opened(harness)
    read: list[int] = []
    take = Scan.take

    def counted(scan: Scan, wanted: int) -> list[Taken]:
        found = take(scan, wanted)
        read.append(len(found))
        return found

    monkeypatch.setattr(Scan, "take", counted)
    letters = letters_for([f"operation-{each}" for each in range(1_200)], harness.clock.now())
    await parts.letters.write(ORDERS.failed, letters)
    assert set(await parts.places.where(["operation-3"])) == {"operation-3"}
    assert 0 < sum(read) <= 500
