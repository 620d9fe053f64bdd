"""What processes share on a broker survives readers, their deaths, and an operator's policies."""

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from headway.testing.conformance.examples import (
    MAILS,
    ORDERS,
    message,
    opened,
    publish,
    take_one,
)
from headway.testing.conformance.history import HistoryConformance
from headway.testing.ports import SUSPECT_AFTER, Delivery, Done, Engine, History, instant
from headway.testing.servers import RabbitMQ
from tests.engines.rabbitmq import killed
from tests.engines.rabbitmq.by_hand import channel_to, contents, declare
from tests.engines.rabbitmq.engine import QuickRabbitHarness as Quick
from tests.engines.rabbitmq.engine import RabbitEngineHarness as Harness

CATALOGUE = "headway.catalogue"
NAMES = [MAILS.failed, ORDERS.failed]


# The catalogue


async def test_no_delivery_limit_removes_the_catalogue_however_often_it_is_read(
    harness: Harness, rabbitmq_server: RabbitMQ
) -> None:
    await harness.opened()
    rabbitmq_server.set_policy(harness.url, ".*", delivery_limit=0)
    for _ in range(4):
        parts = harness.open_parts()  # a command of its own each time
        for _ in range(3):
            assert list(await parts.letters.names()) == NAMES
        count = await parts.places.depths()
        assert [each.queue for each in count.queues] == [MAILS.name, ORDERS.name]
        assert list(await parts.bus.publish([message("a", queue=ORDERS.name)])) == [1]
        await parts.bus.close()
    assert len(contents(harness.url, CATALOGUE)) == 1


async def test_readers_that_are_killed_lose_nothing_of_the_catalogue(
    harness: Harness, rabbitmq_server: RabbitMQ
) -> None:
    await harness.opened()
    rabbitmq_server.set_policy(harness.url, ".*", delivery_limit=2)
    for at in ("taken", "published"):
        await killed.dies(harness.url, "catalogue", at)
    assert list(await harness.open_parts().letters.names()) == NAMES
    assert len(contents(harness.url, CATALOGUE)) == 1


async def test_a_running_worker_writes_a_catalogue_again_that_was_deleted(
    harness: Harness, rabbitmq_server: RabbitMQ
) -> None:
    parts = await harness.opened()
    rabbitmq_server.delete_queue(harness.url, CATALOGUE)
    await harness.open_parts().bus.open([MAILS])
    await parts.places.depths()
    assert list(await harness.open_parts().letters.names()) == NAMES


async def test_a_worker_that_runs_does_not_wear_out_the_catalogue_of_a_broker_without_memory(
    harness: Harness, rabbitmq_server: RabbitMQ
) -> None:
    parts = await harness.opened()
    rabbitmq_server.set_policy(harness.url, ".*", delivery_limit=0)
    await asyncio.to_thread(rabbitmq_server.run_out_of_memory)
    try:
        async with asyncio.timeout(20):
            for _ in range(5):
                count = await parts.places.depths()
                assert [each.queue for each in count.queues] == [MAILS.name, ORDERS.name]
    finally:
        await asyncio.to_thread(rabbitmq_server.recover_memory)
    assert list(await harness.open_parts().letters.names()) == NAMES


# The starts of suspects


async def suspect(quick: Quick, operation: str) -> tuple[Engine, Delivery]:
    """Publish an event, let its takers die until it is a suspect, and take it."""
    engine = await opened(quick)
    await publish(engine, operation)
    for _ in range(SUSPECT_AFTER):
        await take_one(quick, engine)
        await quick.kill(engine)
        engine = await opened(quick)
    return engine, await take_one(quick, engine)


async def test_each_start_counts_once_however_often_it_is_noted_and_read(
    quick: Quick, rabbitmq_server: RabbitMQ
) -> None:
    engine, delivery = await suspect(quick, "a")
    rabbitmq_server.set_policy(quick.url, "^headway[.]", delivery_limit=2)
    for starts in range(3):
        assert delivery.begins == starts
        for _ in range(2):  # repeated, because the answer was lost
            assert await engine.bus.begin(delivery)
        await quick.kill(engine)
        engine = await opened(quick)
        delivery = await take_one(quick, engine)
    assert delivery.begins == 3


async def test_a_worker_that_lost_its_connection_takes_its_start_back(
    quick: Quick, rabbitmq_server: RabbitMQ
) -> None:
    first, delivery = await suspect(quick, "a")
    assert await first.bus.begin(delivery)
    await asyncio.sleep(1.5)  # until the broker's management knows of the connections
    assert await asyncio.to_thread(rabbitmq_server.close_connections) >= 2
    again = await take_one(quick, first)  # as another worker would
    assert again.begins == 0
    assert await first.bus.begin(again)
    assert list(await first.bus.settle([(delivery, Done())])) == [False]
    await quick.kill(first)
    other = await opened(quick)
    assert (await take_one(quick, other)).begins == 1, "of the two starts one was taken back"


# Live versions

VERSIONS = "headway.versions"
MARKERS = ("headway.version.shop/1", "headway.version.shop/2")
LONG, SHORT = timedelta(minutes=10), timedelta(seconds=2)
GARBAGE = (
    b"\xff",
    b"[]",
    b'{"headway.version.shop/3": {"version": 3, "queues": 1}}',
    b'{"headway.version.shop/3": {"version": "3", "queues": ["shop.orders"]}}',
)


async def announced(harness: Harness, grace: timedelta) -> Engine:
    """Have two versions alive; give the engine of the first."""
    first, second = await opened(harness), await opened(harness)
    await first.bus.announce("shop", "1", [ORDERS.name], grace)
    await second.bus.announce("shop", "2", [ORDERS.name], grace)
    assert set(await first.bus.live_versions(ORDERS.name)) == {"1", "2"}
    return first


@pytest.mark.parametrize("loss", ["journal deleted", "journal purged", "marker expired", "garbage"])
async def test_version_stays_alive_whatever_its_journal_loses(harness: Harness, loss: str) -> None:
    """The broker deletes the marker of a version if it is down for longer than the grace."""
    first = await announced(harness, SHORT if loss == "marker expired" else LONG)
    with channel_to(harness.url) as channel:
        if loss == "journal deleted":
            channel.queue_delete(VERSIONS)
        elif loss == "journal purged":
            channel.queue_purge(VERSIONS)
        elif loss == "marker expired":
            channel.queue_delete(MARKERS[1])
        else:
            for body in GARBAGE:
                channel.basic_publish("", VERSIONS, body)
    assert set(await first.bus.live_versions(ORDERS.name)) == {"1", "2"}


async def test_lost_queues_of_versions_name_every_live_version_again(
    harness: Harness,
) -> None:
    await announced(harness, SHORT)
    with channel_to(harness.url) as channel:
        for queue in (VERSIONS, *MARKERS):
            channel.queue_delete(queue)
    newcomer = await opened(harness)
    async with asyncio.timeout(60):
        while set(await newcomer.bus.live_versions(ORDERS.name)) != {"1", "2"}:
            await harness.pass_time(harness.moment)


# The history of changes, where there is no store

HISTORY = "headway.history"


class TestHistory(HistoryConformance): ...


async def written(harness: Harness, number: int) -> History:
    history = harness.open_parts().history
    for n in range(number):
        await history.append({"at": instant(harness.clock.now()), "n": n})
    return history


async def numbers(history: History) -> list[int]:
    return [each["n"] for each in await history.latest(10_000)]


async def test_reading_uses_up_no_deliveries_of_a_queue_that_limits_them(
    harness: Harness,
) -> None:
    assert await numbers(harness.open_parts().history) == []  # and makes none
    declare(harness.url, HISTORY, {"x-delivery-limit": 1})
    history = await written(harness, 250)
    for _ in range(6):
        assert await numbers(history) == list(reversed(range(250)))


@pytest.mark.parametrize("after", [0, 1])
async def test_a_reader_that_dies_loses_and_repeats_nothing(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Killed before, and between, the messages that it publishes anew."""
    history = await written(harness, 5)
    real, published = BlockingChannel.basic_publish, 0

    def publish(channel: BlockingChannel, exchange: str, key: str, *rest: Any, **more: Any) -> None:
        nonlocal published
        if key == HISTORY:
            if published == after:
                raise SystemError("killed")
            published += 1
        real(channel, exchange, key, *rest, **more)

    with monkeypatch.context() as killing:
        killing.setattr("headway.adapters.rabbitmq.history._LARGEST", 50)
        killing.setattr(BlockingChannel, "basic_publish", publish)
        with pytest.raises(SystemError):
            await history.latest(10)
    for reader in (harness.open_parts().history, history):
        assert await numbers(reader) == [4, 3, 2, 1, 0]
    (only,) = contents(harness.url, HISTORY)  # the copies are gone, and all entries in one message
    assert len(msgspec.json.decode(only[1])) == 5
