"""What processes share on a broker survives readers, their deaths, and an operator's policies."""

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headway.adapters.rabbitmq.topology import CATALOGUE, starts_of
from headway.testing.conformance.examples import (
    MAILS,
    ORDERS,
    QUEUES,
    message,
    opened,
    publish,
    take_one,
)
from headway.testing.ports import SUSPECT_AFTER, Delivery, Done, Engine
from headway.testing.servers import RabbitMQ
from tests.engines.rabbitmq.by_hand import contents
from tests.engines.rabbitmq.engine import RabbitEngineHarness
from tests.engines.rabbitmq.harness import RabbitBusHarness

pytestmark = pytest.mark.usefixtures("coarse_delays")
STARTS = starts_of(ORDERS.failed)
ROOT = Path(__file__).parents[3]


@pytest.fixture
async def harness(rabbitmq_vhost: str) -> AsyncIterator[RabbitEngineHarness]:
    harness = RabbitEngineHarness(rabbitmq_vhost)
    yield harness
    await harness.close()


@pytest.fixture
async def buses(rabbitmq_vhost: str) -> AsyncIterator[RabbitBusHarness]:
    harness = RabbitBusHarness(rabbitmq_vhost)
    yield harness
    await harness.close()


async def killed_reader(url: str, journal: str, at: str, after: float | None = None) -> None:
    """Run a reader until it is killed, by itself or after so many seconds of reading."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.engines.rabbitmq.killed_reader", url, journal, at),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    if after is not None:
        assert process.stdout is not None
        assert await process.stdout.readline()
        await asyncio.sleep(after)
        process.kill()
    assert await process.wait() == -9


async def suspect(buses: RabbitBusHarness, operation: str) -> tuple[Engine, Delivery]:
    """Publish an event, let its takers die until it is a suspect, and take it."""
    engine = await opened(buses)
    await publish(engine, operation)
    for _ in range(SUSPECT_AFTER):
        await take_one(buses, engine)
        await buses.kill(engine)
        engine = await opened(buses)
    return engine, await take_one(buses, engine)


# The catalogue


async def test_no_delivery_limit_removes_the_catalogue_however_often_it_is_read(
    harness: RabbitEngineHarness, rabbitmq_server: RabbitMQ
) -> None:
    await harness.open_parts().bus.open(QUEUES)
    rabbitmq_server.set_policy(harness.url, ".*", delivery_limit=0)
    for _ in range(4):
        parts = harness.open_parts()  # a command of its own each time
        for _ in range(3):
            assert list(await parts.letters.names()) == [MAILS.failed, ORDERS.failed]
        count = await parts.places.depths()
        assert [each.queue for each in count.queues] == [MAILS.name, ORDERS.name]
        assert list(await parts.bus.publish([message("a", queue=ORDERS.name)])) == [1]
        await parts.bus.close()
    assert len(contents(harness.url, CATALOGUE)) == 1


@pytest.mark.parametrize("at", ["taken", "published"])
async def test_readers_that_are_killed_lose_nothing_of_the_catalogue(
    harness: RabbitEngineHarness, rabbitmq_server: RabbitMQ, at: str
) -> None:
    await harness.open_parts().bus.open(QUEUES)
    rabbitmq_server.set_policy(harness.url, ".*", delivery_limit=2)
    for _ in range(3):
        await killed_reader(harness.url, CATALOGUE, at)
        await killed_reader(harness.url, CATALOGUE, at)
        parts = harness.open_parts()
        assert list(await parts.letters.names()) == [MAILS.failed, ORDERS.failed]


async def test_readers_that_are_killed_at_any_moment_lose_nothing_of_the_catalogue(
    harness: RabbitEngineHarness, rabbitmq_server: RabbitMQ
) -> None:
    await harness.open_parts().bus.open(QUEUES)
    rabbitmq_server.set_policy(harness.url, ".*", delivery_limit=2)
    chance = random.Random(7)
    for _ in range(8):
        await killed_reader(harness.url, CATALOGUE, "never", after=chance.random() / 10)
        assert list(await harness.open_parts().letters.names()) == [MAILS.failed, ORDERS.failed]
    assert len(contents(harness.url, CATALOGUE)) == 1


async def test_a_running_worker_writes_a_catalogue_again_that_was_purged(
    harness: RabbitEngineHarness, rabbitmq_server: RabbitMQ
) -> None:
    parts = harness.open_parts()
    await parts.bus.open(QUEUES)
    rabbitmq_server.delete_queue(harness.url, CATALOGUE)
    await harness.open_parts().bus.open([MAILS])
    await parts.places.depths()
    assert list(await harness.open_parts().letters.names()) == [MAILS.failed, ORDERS.failed]


async def test_a_worker_that_runs_does_not_wear_out_the_catalogue_of_a_broker_without_memory(
    harness: RabbitEngineHarness, rabbitmq_server: RabbitMQ
) -> None:
    parts = harness.open_parts()
    await parts.bus.open(QUEUES)
    rabbitmq_server.set_policy(harness.url, ".*", delivery_limit=0)
    await asyncio.to_thread(rabbitmq_server.run_out_of_memory)
    try:
        async with asyncio.timeout(20):
            for _ in range(5):
                count = await parts.places.depths()
                assert [each.queue for each in count.queues] == [MAILS.name, ORDERS.name]
    finally:
        await asyncio.to_thread(rabbitmq_server.recover_memory)
    assert list(await harness.open_parts().letters.names()) == [MAILS.failed, ORDERS.failed]


# The starts of suspects


async def test_starts_are_noted_in_one_quorum_queue_that_is_declared_with_the_others(
    buses: RabbitBusHarness, rabbitmq_server: RabbitMQ
) -> None:
    await opened(buses)
    declared = rabbitmq_server.queue_types(buses.url)
    assert declared[STARTS] == "quorum"
    for number in range(2):
        engine, delivery = await suspect(buses, f"operation-{number}")
        assert await engine.bus.begin(delivery)
        made = rabbitmq_server.queue_types(buses.url).keys() - declared.keys()
        assert [name for name in made if not name.startswith("headway.worker.")] == []
        await engine.bus.settle([(delivery, Done())])
        await engine.bus.close()


async def test_two_starts_condemn_whatever_happens_to_those_who_read_them(
    buses: RabbitBusHarness, rabbitmq_server: RabbitMQ
) -> None:
    engine, delivery = await suspect(buses, "a")
    rabbitmq_server.set_policy(buses.url, "^headway[.]", delivery_limit=2)
    for starts in range(3):
        assert delivery.begins == starts
        assert await engine.bus.begin(delivery)
        await buses.kill(engine)
        await killed_reader(buses.url, STARTS, "taken")
        await killed_reader(buses.url, STARTS, "published")
        engine = await opened(buses)
        delivery = await take_one(buses, engine)
    assert delivery.begins == 3


async def test_a_start_that_is_repeated_because_its_answer_was_lost_counts_once(
    buses: RabbitBusHarness,
) -> None:
    engine, delivery = await suspect(buses, "a")
    for _ in range(3):
        assert await engine.bus.begin(delivery)
    await buses.kill(engine)
    engine = await opened(buses)
    assert (await take_one(buses, engine)).begins == 1


async def test_the_notes_of_what_has_ended_are_removed(buses: RabbitBusHarness) -> None:
    for number in range(3):
        engine, delivery = await suspect(buses, f"operation-{number}")
        assert await engine.bus.begin(delivery)
        await buses.kill(engine)
        engine = await opened(buses)
        delivery = await take_one(buses, engine)
        assert delivery.begins == 1
        assert await engine.bus.begin(delivery)
        await engine.bus.settle([(delivery, Done())])
        await engine.bus.close()
    engine, delivery = await suspect(buses, "last")  # counts its starts, and so sums up
    (summary,) = contents(buses.url, STARTS)
    assert b'"starts":{}' in summary[1]


async def test_a_worker_that_lost_its_connection_takes_its_start_back(
    buses: RabbitBusHarness, rabbitmq_server: RabbitMQ
) -> None:
    first, delivery = await suspect(buses, "a")
    assert await first.bus.begin(delivery)
    await asyncio.sleep(1.5)  # until the broker's management knows of the connections
    assert await asyncio.to_thread(rabbitmq_server.close_connections) >= 2
    again = await take_one(buses, first)  # as another worker would
    assert again.begins == 0
    assert await first.bus.begin(again)
    assert list(await first.bus.settle([(delivery, Done())])) == [False]
    await buses.kill(first)
    other = await opened(buses)
    assert (await take_one(buses, other)).begins == 1, "of the two starts one was taken back"


async def test_a_worker_that_stops_takes_its_starts_back(buses: RabbitBusHarness) -> None:
    for _ in range(3):
        engine, delivery = await suspect(buses, "a")
        assert delivery.begins == 0
        assert await engine.bus.begin(delivery)
        await engine.bus.close()
        other = await opened(buses)
        last = await take_one(buses, other)
        assert last.begins == 0
        await other.bus.settle([(last, Done())])
        await other.bus.close()


async def test_several_workers_note_starts_at_the_same_time(buses: RabbitBusHarness) -> None:
    names = [f"operation-{number}" for number in range(6)]
    engines = []
    for name in names:
        engine, delivery = await suspect(buses, name)
        engines.append((engine, delivery))
    assert all(await asyncio.gather(*(engine.bus.begin(each) for engine, each in engines)))
    await asyncio.gather(*(buses.kill(engine) for engine, _ in engines))
    workers = [await opened(buses) for _ in names]
    taken = await asyncio.gather(*(take_one(buses, worker) for worker in workers))
    assert sorted((each.travel.operation, each.begins) for each in taken) == [
        (name, 1) for name in names
    ]
