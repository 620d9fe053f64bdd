"""Events that no queue takes: kept by their publisher, and routed when their type has a queue."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from headway import ConfigurationError
from headway.errors import NotPublishedError
from headway.testing.conformance.examples import (
    MAILS,
    ORDERS,
    PAID,
    PLACED,
    QUEUES,
    message,
    well_travelled,
)
from headway.testing.engines import RabbitParts
from headway.testing.ports import MALFORMED, Queue
from headway.testing.servers import RabbitMQ
from tests.engines.rabbitmq import killed
from tests.engines.rabbitmq.by_hand import channel_to, contents, put, set_policy
from tests.engines.rabbitmq.engine import RabbitEngineHarness, drained

UNROUTED = "headway.unrouted"
OTHER = "NoServiceTakesThis"
Harness = RabbitEngineHarness


async def waiting(harness: Harness, number: int, event_type: str = PAID) -> list[str]:
    """Publish events from a process that declares nothing; give their operations."""
    parts = harness.open_parts()
    names = [f"{event_type}-{each}" for each in range(number)]
    batch = [message(each, event_type=event_type) for each in names]
    assert list(await parts.bus.publish(batch)) == [0] * number
    await parts.bus.close()
    return names


async def operations(parts: RabbitParts) -> list[str]:
    return [each.travel.operation for each in await parts.unrouted.read(100_000)]


async def routed(harness: Harness, parts: RabbitParts, event_type: str) -> None:
    """Wait until nothing of this type waits, and no process has anything of it in hand."""
    async with asyncio.timeout(60):
        while (await parts.unrouted.counts()).get(event_type):
            await harness.pass_time(harness.moment)


# Kept, and routed once


async def test_nothing_waits_where_nothing_was_ever_declared(harness: Harness) -> None:
    parts = harness.open_parts()
    assert await parts.unrouted.counts() == {}
    assert await parts.unrouted.read(10) == []
    assert await parts.unrouted.route() == 0
    assert await parts.unrouted.purge([PAID]) == 0
    assert await parts.unrouted.taken_types() == []
    assert (await parts.places.depths()).unrouted == 0


async def test_event_is_routed_as_its_publisher_sent_it(harness: Harness) -> None:
    long_type = PLACED + "!" * 300  # too long for a property
    queue = Queue(name="long.type", event_types=(long_type,), failed="long.failed")
    travel = well_travelled("travelled", harness.clock.now())
    sent = message("travelled", travel=travel, event_type=long_type)
    publisher = harness.open_parts()
    assert list(await publisher.bus.publish([sent])) == [0]
    (kept,) = await publisher.unrouted.read(10)
    assert (kept.event_type, kept.body, kept.travel) == (long_type, sent.body, travel)
    await harness.open_parts().bus.open([queue])
    (routed,) = contents(harness.url, queue.name)
    await publisher.bus.publish([sent])
    _, published = contents(harness.url, queue.name)
    for properties, body in (routed, published):
        (properties.headers or {}).pop("x-delivery-count", None)
        assert body == sent.body
    assert routed[0] == published[0]


async def test_only_the_types_of_a_new_queue_move_and_the_others_stay_in_order(
    harness: Harness,
) -> None:
    parts = harness.open_parts()
    names = [f"event-{number}" for number in range(600)]
    types = [OTHER, PAID, "AlsoUnknown"]
    await parts.bus.publish(
        [message(name, event_type=types[number % 3]) for number, name in enumerate(names)]
    )
    assert await parts.unrouted.route([PAID]) == 0  # no queue takes it
    assert await operations(parts) == names
    assert await parts.places.where(names[:1]) == {names[0]: [f"unrouted {OTHER}"]}
    await parts.bus.open(QUEUES)
    assert await drained(parts.bus, 200) == names[1::3]
    assert await operations(parts) == [n for number, n in enumerate(names) if number % 3 != 1]
    assert await parts.unrouted.counts() == {OTHER: 200, "AlsoUnknown": 200}


async def test_event_kept_after_its_service_started_is_routed_soon(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker returned it, then the service started, and then the publisher kept it."""
    worker, publisher = harness.open_parts(for_worker=True), harness.open_parts()
    keep = publisher.unrouted.keep

    async def late(events: Any) -> None:
        await worker.bus.open(QUEUES)
        await keep(events)

    monkeypatch.setattr(publisher.unrouted, "keep", late)
    assert list(await publisher.bus.publish([message("late")])) == [0]
    assert await drained(worker.bus, 1) == ["late"]
    assert await worker.unrouted.counts() == {}


async def test_event_published_while_its_queue_was_gone_arrives_when_it_is_declared_anew(
    harness: Harness, rabbitmq_server: RabbitMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = harness.open_parts(for_worker=True)
    await worker.bus.open([ORDERS])
    assert await drained(worker.bus, 0) == []
    publisher = harness.open_parts()
    declare, go_on = worker.bus._queues.declare, asyncio.Event()

    async def later(queues: Sequence[Queue] = ()) -> None:
        await go_on.wait()
        await declare(queues)

    monkeypatch.setattr(worker.bus._queues, "declare", later)
    rabbitmq_server.delete_queue(harness.url, ORDERS.name)
    assert list(await publisher.bus.publish([message("between")])) == [0]
    go_on.set()
    assert await drained(worker.bus, 1) == ["between"]


# Several at once


async def test_services_that_start_together_get_each_event_of_their_types_once(
    harness: Harness,
) -> None:
    paid, other = await waiting(harness, 300, PAID), await waiting(harness, 300, OTHER)
    await waiting(harness, 10, "StillUnknown")
    queue = Queue(name="other.queue", event_types=(OTHER,), failed="other.failed")
    workers = [harness.open_parts() for _ in range(4)]
    declared = ([ORDERS], [queue], [ORDERS], [queue])
    await asyncio.gather(
        *(each.bus.open(queues) for each, queues in zip(workers, declared, strict=True))
    )
    for name, event_type, expected in ((ORDERS.name, PAID, paid), (queue.name, OTHER, other)):
        await routed(harness, workers[0], event_type)
        found = Counter(properties.message_id for properties, _ in contents(harness.url, name))
        assert found == dict.fromkeys(expected, 1)
    assert await workers[0].unrouted.counts() == {"StillUnknown": 10}


async def test_readers_at_once_see_everything_and_no_start_waits_for_one(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = await waiting(harness, 120)
    readers = [harness.open_parts() for _ in range(3)]
    for found in await asyncio.gather(*(operations(each) for each in readers)):
        assert found == names
    monkeypatch.setattr("headway.adapters.rabbitmq.looks._PATIENCE", 0.3)
    assert await readers[0].unrouted._looks.start(UNROUTED) is not None
    worker = harness.open_parts()
    async with asyncio.timeout(10):
        await worker.bus.open(QUEUES)
    with pytest.raises(ConnectionError):
        await worker.unrouted.counts()
    await readers[0].unrouted._looks.end()
    await routed(harness, readers[0], PAID)
    assert await drained(worker.bus, len(names)) == names


# Policies


async def test_no_delivery_limit_removes_events_that_are_looked_at(
    harness: Harness, rabbitmq_server: RabbitMQ
) -> None:
    names, paid = await waiting(harness, 120, OTHER), await waiting(harness, 30)
    await set_policy(rabbitmq_server, harness.url, UNROUTED, delivery_limit=1)
    for number in range(4):
        parts = harness.open_parts()
        if number % 2:
            assert [e.travel.operation for e in await parts.unrouted.read(2)] == names[:2]
        assert await parts.unrouted.counts() == {OTHER: 120, PAID: 30}
        assert await operations(parts) == names + paid
        assert await parts.unrouted.route([OTHER]) == 0
        assert await parts.places.where(["unknown"]) == {}
        await parts.bus.close()
    worker = harness.open_parts()
    await worker.bus.open(QUEUES)
    assert await drained(worker.bus, len(paid)) == paid
    assert await operations(worker) == names


async def test_delivery_limit_of_zero_removes_no_event_and_keeps_no_worker_from_starting(
    harness: Harness, rabbitmq_server: RabbitMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.adapters.rabbitmq.scanning._REMEMBERED", 500)
    names = await waiting(harness, 600, OTHER)
    await set_policy(rabbitmq_server, harness.url, UNROUTED, delivery_limit=0)
    parts = harness.open_parts()
    with pytest.raises(ConfigurationError, match=UNROUTED):
        await parts.unrouted.counts()
    await parts.bus.open(QUEUES)
    await parts.bus.close()
    await set_policy(rabbitmq_server, harness.url, UNROUTED, delivery_limit=5)
    assert sorted(await operations(harness.open_parts())) == sorted(names)


async def test_policy_on_the_length_drops_no_event_that_was_confirmed(
    harness: Harness, rabbitmq_server: RabbitMQ
) -> None:
    publisher, confirmed = harness.open_parts(patient=False), await waiting(harness, 1)
    await set_policy(rabbitmq_server, harness.url, UNROUTED, max_length=10)
    for batch in range(4):
        names = [f"late-{batch}-{number}" for number in range(30)]
        try:
            await publisher.bus.publish([message(name) for name in names])
        except NotPublishedError:
            break  # the broker refuses what is too much
        confirmed += names
    assert len(confirmed) > 1
    assert set(await operations(publisher)) >= set(confirmed)


# Faults


async def test_publish_fails_when_the_broker_dies_between_return_and_keep(
    harness: Harness, rabbitmq_server: RabbitMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = harness.open_parts()
    await publisher.bus.open([MAILS])
    for queue in (UNROUTED, MAILS.name, MAILS.failed, "headway.catalogue"):
        rabbitmq_server.wait_for_quorum_queue(harness.url, queue)
    keep = publisher.unrouted.keep

    async def dying(events: Any) -> None:
        rabbitmq_server.kill()
        try:
            await keep(events)
        finally:
            rabbitmq_server.start()

    batch = [message("taken", event_type=PLACED), message("kept")]
    with monkeypatch.context() as patched:
        patched.setattr("headway.adapters.rabbitmq.sending._PATIENCE", 1.0)
        patched.setattr(publisher.unrouted, "keep", dying)
        with pytest.raises(NotPublishedError) as refused:
            await publisher.bus.publish(batch)
    assert refused.value.stored == {0}
    assert list(await publisher.bus.publish(batch)) == [1, 0]
    worker = harness.open_parts()
    assert set(await operations(worker)) == {"kept"}
    await worker.bus.open([ORDERS])
    assert set(await drained(worker.bus, 1)) == {"kept"}


async def test_queue_that_was_deleted_is_declared_anew_by_the_next_publish(
    harness: Harness, rabbitmq_server: RabbitMQ
) -> None:
    parts = harness.open_parts()
    await parts.bus.publish([message("gone")])
    rabbitmq_server.delete_queue(harness.url, UNROUTED)
    await parts.bus.publish([message("kept")])
    assert await operations(parts) == ["kept"]


async def test_killed_while_routing_loses_nothing_and_repeats_only_under_the_same_ids(
    harness: Harness, rabbitmq_server: RabbitMQ
) -> None:
    names = await waiting(harness, 700)
    await set_policy(rabbitmq_server, harness.url, UNROUTED, delivery_limit=2)
    for pages in ("0", "1"):
        await killed.dies(harness.url, "route", ORDERS.name, PAID, pages)
    worker = harness.open_parts()
    await worker.bus.open([ORDERS])
    await routed(harness, worker, PAID)
    found = Counter(await drained(worker.bus, len(names)))
    assert set(found) == set(names)
    assert max(found.values()) > 1  # they were killed between publish and ack


async def test_message_of_another_program_is_shown_and_kept_until_it_is_purged(
    harness: Harness,
) -> None:
    parts = await harness.opened()
    with channel_to(harness.url) as channel:  # a program that takes whatever is published
        channel.queue_declare("everything", durable=True)
        channel.queue_bind("everything", "headway.events", "#")
    put(harness.url, UNROUTED, b"\xff no event", headers={"headway-event-type": 7})
    put(harness.url, UNROUTED, b"{}")
    put(harness.url, UNROUTED, b'{"event_type":"OrderPaid","event_id":"by-hand","data":{}}')
    assert await parts.unrouted.counts() == {MALFORMED: 2, PAID: 1}
    shown, _, by_hand = await parts.unrouted.read(10)
    assert (shown.event_type, shown.body) == (MALFORMED, b"\xff no event")
    assert (by_hand.event_type, by_hand.travel.operation) == (PAID, "by-hand")
    assert await parts.unrouted.route() == 1
    assert await drained(parts.bus, 1) == [""]  # its event names it
    assert await parts.unrouted.purge([MALFORMED]) == 2
    assert await parts.unrouted.counts() == {}
