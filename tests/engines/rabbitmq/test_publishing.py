"""Messages on their way to the broker: nothing counts as stored before the broker has stored it."""

import asyncio
from datetime import timedelta

import pytest

from headway.errors import NotPublishedError, UnsendableError
from headway.testing.conformance.examples import (
    ORDERS,
    message,
    nothing_due,
    opened,
    publish,
    take_one,
    well_travelled,
)
from headway.testing.ports import Later
from headway.testing.proxy import Proxy
from headway.testing.servers import RabbitMQ
from tests.engines.rabbitmq.by_hand import channel_to
from tests.engines.rabbitmq.engine import RabbitEngineHarness, drained

WINDOW = 1_000
"""Messages that may be on their way at once."""


def depth(url: str) -> int:
    with channel_to(url) as channel:
        return int(channel.queue_declare(ORDERS.name, passive=True).method.message_count)


async def test_one_message_that_cannot_be_written_keeps_all_others_back(
    harness: RabbitEngineHarness,
) -> None:
    bus = (await harness.opened()).bus
    beyond_a_frame = well_travelled("odd", harness.clock.now(), attempts=200)
    batch = [message(f"operation-{number}") for number in range(2 * WINDOW)]
    with pytest.raises(UnsendableError) as refused:
        await bus.publish([*batch, message("odd", travel=beyond_a_frame), message("last")])
    assert refused.value.stored == frozenset()
    assert list(await bus.publish([message("after")])) == [1]
    assert depth(harness.url) == 1


async def test_what_the_broker_refuses_on_the_way_says_what_is_stored(
    harness: RabbitEngineHarness, rabbitmq_server: RabbitMQ
) -> None:
    bus = (await harness.opened()).bus
    names = [f"operation-{number}" for number in range(20)]
    batch, large = [message(name) for name in names], message("large", body=bytes(20_000))
    rabbitmq_server.limit_messages(10_000)
    try:
        with pytest.raises(UnsendableError) as refused:
            await bus.publish([*batch[:10], large, *batch[10:]])
        with pytest.raises(UnsendableError, match="10000") as known:  # the broker has named it
            await bus.publish([*batch, large])
        assert known.value.stored == frozenset()
    finally:
        rabbitmq_server.limit_messages()
    stored = refused.value.stored
    assert 10 not in stored
    assert stored >= set(range(10)), "they came before it, and were sent one by one"
    await bus.publish(batch)  # all of them again, under the same ids
    found = await drained(bus, 1)
    assert set(found) == set(names)
    for position in stored - {10}:
        name = names[position] if position < 10 else names[position - 1]
        assert found.count(name) >= 2, "it was stored the first time, too"


async def test_a_connection_that_is_lost_on_the_way_says_what_is_stored(
    harness: RabbitEngineHarness, rabbitmq_server: RabbitMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.adapters.rabbitmq.sending._PATIENCE", 1.0)
    await harness.opened()
    direct = harness.url
    names = [f"operation-{number}" for number in range(20_000)]
    with Proxy("127.0.0.1", rabbitmq_server.port) as proxy:
        harness.url = proxy.through(direct)
        bus = harness.open_parts().bus
        await bus.publish([message("first")])
        publishing = asyncio.create_task(bus.publish([message(name) for name in names]))
        async with asyncio.timeout(20):
            while await asyncio.to_thread(depth, direct) <= 1_000:
                assert not publishing.done()
    async with asyncio.timeout(20):
        with pytest.raises(NotPublishedError) as lost:
            await publishing
    stored = {names[position] for position in lost.value.stored}
    assert 0 < len(stored) < len(names)
    harness.url = direct
    found = set(await drained(harness.open_parts().bus, len(stored)))
    assert stored <= found
    assert len(found - stored - {"first"}) <= WINDOW, "so many may be on their way"


async def test_an_event_that_a_full_queue_refuses_is_not_published(
    harness: RabbitEngineHarness, rabbitmq_server: RabbitMQ
) -> None:
    bus = (await harness.opened()).bus
    rabbitmq_server.set_policy(harness.url, f"^{ORDERS.name}$", max_length=1)
    stored: list[str] = []

    async def fill() -> None:
        for number in range(1_000):  # the broker applies a policy some time after it was set
            await bus.publish([message(f"operation-{number}")])
            stored.append(f"operation-{number}")

    with pytest.raises(NotPublishedError) as refused:
        await fill()
    assert refused.value.stored == frozenset()
    assert await drained(bus, 1) == stored


async def test_an_event_that_cannot_be_delayed_is_not_lost_with_its_worker(
    harness: RabbitEngineHarness, rabbitmq_server: RabbitMQ
) -> None:
    engine = await opened(harness)
    await publish(engine, "a")
    delivery = await take_one(harness, engine)
    for queue in rabbitmq_server.queue_types(harness.url):
        if queue.startswith("headway.delay."):
            rabbitmq_server.delete_queue(harness.url, queue)
    later = Later(harness.clock.now() + timedelta(seconds=10), delivery.travel)
    with pytest.raises(NotPublishedError):
        await engine.bus.settle([(delivery, later)])
    await harness.kill(engine)
    assert (await take_one(harness, await opened(harness))).travel.operation == "a"


async def test_an_event_due_after_the_longest_delay_goes_round_until_then(
    harness: RabbitEngineHarness,
) -> None:
    engine = await opened(harness)
    await publish(engine, "a")
    delivery = await take_one(harness, engine)
    tomorrow = harness.clock.now() + timedelta(days=1)
    await engine.bus.settle([(delivery, Later(tomorrow, delivery.travel))])
    with channel_to(harness.url) as by_hand:  # does what the broker does after 15 minutes
        _, properties, body = by_hand.basic_get("headway.delay.900000", auto_ack=True)
        assert body == delivery.body
        by_hand.basic_publish("", ORDERS.name, body, properties)
    async with asyncio.timeout(20):
        while not sum(each.delayed for each in (await engine.places.depths()).queues):
            await nothing_due(harness, engine)
