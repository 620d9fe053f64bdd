"""Events that no queue takes: kept by their publisher, and routed when their type has a queue."""

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path

import pika
import pytest

from headway import ConfigurationError
from headway.adapters.rabbitmq import looks
from headway.adapters.rabbitmq.outgoing import Outgoing
from headway.adapters.rabbitmq.scanning import QueueHeldError
from headway.adapters.rabbitmq.topology import EXCHANGE
from headway.clock import SystemChance
from headway.errors import NotPublishedError
from headway.operations import UnroutedEvents
from headway.testing.conformance.examples import (
    MAILS,
    ORDERS,
    PAID,
    PLACED,
    QUEUES,
    message,
    well_travelled,
)
from headway.testing.conformance.unrouted import UnroutedConformance
from headway.testing.engines import RabbitParts, without_store
from headway.testing.ports import MALFORMED, Bus, Done, Queue
from headway.testing.servers import RabbitMQ
from tests.engines.rabbitmq.by_hand import channel_to, contents, put
from tests.engines.rabbitmq.engine import RabbitEngineHarness

pytestmark = pytest.mark.usefixtures("coarse_delays")

UNROUTED = "headway.unrouted"
ROOT = Path(__file__).parents[3]
OTHER = "NoServiceTakesThis"
Harness = RabbitEngineHarness


@pytest.fixture
async def harness(rabbitmq_vhost: str) -> AsyncIterator[RabbitEngineHarness]:
    harness = RabbitEngineHarness(rabbitmq_vhost)
    yield harness
    await harness.close()


class TestUnrouted(UnroutedConformance): ...


async def waiting(harness: Harness, number: int, event_type: str = PAID) -> list[str]:
    """Publish events from a process that declares nothing; give their operations."""
    parts = harness.open_parts()
    names = [f"{event_type}-{each}" for each in range(number)]
    batch = [message(each, event_type=event_type) for each in names]
    assert list(await parts.bus.publish(batch)) == [0] * number
    await parts.bus.close()
    return names


async def drained(bus: Bus, count: int, *queues: str) -> list[str]:
    """Take and settle at least so many, and all that follow; give the operations."""
    found: list[str] = []
    async with asyncio.timeout(60):
        while True:
            taken = await bus.take(queues or [ORDERS.name], 1_000, timedelta(seconds=1))
            found += [each.travel.operation for each in taken]
            await bus.settle([(each, Done()) for each in taken])
            if not taken and len(found) >= count:
                return found


async def operations(parts: RabbitParts) -> list[str]:
    return [each.travel.operation for each in await parts.unrouted.read(100_000)]


async def emptied(harness: Harness, parts: RabbitParts) -> None:
    """Wait until nothing waits, and no process has anything of it in hand."""
    async with asyncio.timeout(60):
        while await parts.unrouted.counts():
            await harness.pass_time(harness.moment)


async def policy_holds() -> None:
    """Wait until the broker has told its queues."""
    await asyncio.sleep(1)


# Kept, and routed once


async def test_event_published_before_its_service_arrives_once_when_the_service_starts(
    harness: Harness,
) -> None:
    names = await waiting(harness, 3)
    parts = harness.open_parts()
    assert await parts.unrouted.counts() == {PAID: 3}
    assert (await parts.places.depths()).unrouted == 3
    assert await parts.places.where(names) == {each: [f"unrouted {PAID}"] for each in names}
    await parts.bus.open(QUEUES)
    assert await drained(parts.bus, len(names)) == names
    assert await parts.unrouted.counts() == {}
    assert (await parts.places.depths()).unrouted == 0
    await parts.bus.open(QUEUES)
    assert await drained(parts.bus, 0) == []


async def test_event_is_routed_as_its_publisher_sent_it(harness: Harness) -> None:
    long_type = PLACED + "!" * 300  # too long for a property
    queue = Queue(name="long.type", event_types=(long_type,), failed="long.failed")
    travel = well_travelled("travelled", harness.clock.now())
    sent = message("travelled", travel=travel, event_type=long_type)
    before = harness.clock.now()
    publisher = harness.open_parts()
    assert list(await publisher.bus.publish([sent])) == [0]
    (kept,) = await publisher.unrouted.read(10)
    assert (kept.event_type, kept.body, kept.travel) == (long_type, sent.body, travel)
    assert before <= kept.at <= harness.clock.now()
    worker = harness.open_parts()
    await worker.bus.open([queue])
    (routed,) = contents(harness.url, queue.name)
    await publisher.bus.publish([sent])
    _, published = contents(harness.url, queue.name)
    for properties, body in (routed, published):
        (properties.headers or {}).pop("x-delivery-count", None)
        assert body == sent.body
    assert routed[0] == published[0]


async def test_what_needs_no_consumer_is_dropped_and_what_has_one_is_not_kept(
    harness: Harness,
) -> None:
    parts = harness.open_parts()
    await parts.bus.open(QUEUES)
    batch = [
        message("announced", event_type=OTHER, needs_consumer=False),
        message("kept", event_type=OTHER),
        message("taken"),
        message("straight", event_type=OTHER, queue=MAILS.name),
    ]
    assert list(await parts.bus.publish(batch)) == [0, 0, 1, 1]
    assert await operations(parts) == ["kept"]


async def test_only_the_named_types_move_and_the_others_stay_in_order(harness: Harness) -> None:
    parts = harness.open_parts()
    names = [f"event-{number}" for number in range(1_200)]
    types = [OTHER, PAID, "AlsoUnknown"]
    for at in range(0, len(names), 300):
        batch = [
            message(name, event_type=types[number % 3])
            for number, name in enumerate(names[at : at + 300])
        ]
        await parts.bus.publish(batch)
    assert await parts.unrouted.route([PAID]) == 0  # no queue takes it
    assert await operations(parts) == names
    await parts.bus.open(QUEUES)
    assert await drained(parts.bus, len(names[1::3])) == names[1::3]
    stayed = [name for number, name in enumerate(names) if number % 3 != 1]
    assert await operations(parts) == stayed
    assert await parts.unrouted.counts() == {OTHER: 400, "AlsoUnknown": 400}
    found = await parts.unrouted.read(2, event_types=[OTHER])
    assert [each.travel.operation for each in found] == [names[0], names[3]]
    (found_one,) = await parts.unrouted.read(10, operations=[names[3], "unknown"])
    assert found_one.travel.operation == names[3]


async def test_purge_removes_what_is_named_and_nothing_else(harness: Harness) -> None:
    first, *others = await waiting(harness, 3, OTHER)
    await waiting(harness, 2, PAID)
    parts = harness.open_parts()
    assert await parts.unrouted.purge() == 0
    assert await parts.unrouted.purge(operations=[first, "unknown"]) == 1
    assert await parts.unrouted.purge([PAID], operations=[others[0]]) == 0
    assert await parts.unrouted.purge([PAID]) == 2
    assert await operations(parts) == others
    assert await parts.unrouted.purge(["Unknown"]) == 0


async def test_nothing_waits_where_nothing_was_ever_declared(harness: Harness) -> None:
    parts = harness.open_parts()
    assert await parts.unrouted.counts() == {}
    assert await parts.unrouted.read(10) == []
    assert await parts.unrouted.route() == 0
    assert await parts.unrouted.purge([PAID]) == 0
    assert await parts.unrouted.taken_types() == []
    assert (await parts.places.depths()).unrouted == 0
    await parts.bus.open(QUEUES)
    assert await parts.unrouted.taken_types() == [PAID, PLACED]


@pytest.mark.parametrize("by", ["the start", "a round of the worker"])
async def test_event_kept_after_its_service_started_is_routed_soon(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """The broker returned it, then the service started, and then the publisher kept it."""
    if by != "the start":
        monkeypatch.setattr("headway.adapters.rabbitmq.bus._ROUTED_AGAIN_AFTER", ())
    worker, publisher = harness.open_parts(for_worker=True), harness.open_parts()
    keep = publisher.unrouted.keep

    async def late(events: Sequence[tuple[str, Outgoing]]) -> None:
        await worker.bus.open(QUEUES)
        await keep(events)

    monkeypatch.setattr(publisher.unrouted, "keep", late)
    assert list(await publisher.bus.publish([message("late")])) == [0]
    if by != "the start":
        assert await worker.unrouted.route([PAID, PLACED]) == 1
    assert await drained(worker.bus, 1) == ["late"]
    assert await worker.unrouted.counts() == {}


async def test_event_published_while_its_queue_was_gone_arrives_when_it_is_declared_anew(
    harness: Harness, rabbitmq_server: RabbitMQ
) -> None:
    worker = harness.open_parts(for_worker=True)
    await worker.bus.open([ORDERS])
    assert await drained(worker.bus, 0) == []
    publisher = harness.open_parts()
    declare, go_on = worker.bus._queues.declare, asyncio.Event()

    async def later(queues: Sequence[Queue] = ()) -> None:
        await go_on.wait()
        await declare(queues)

    worker.bus._queues.declare = later  # type: ignore[method-assign]
    rabbitmq_server.delete_queue(harness.url, ORDERS.name)
    assert list(await publisher.bus.publish([message("between")])) == [0]
    go_on.set()
    assert await drained(worker.bus, 1) == ["between"]


# Several at once


async def test_services_that_start_together_for_one_type_route_each_event_once(
    harness: Harness,
) -> None:
    names = await waiting(harness, 600)
    workers = [harness.open_parts() for _ in range(4)]
    await asyncio.gather(*(each.bus.open([ORDERS]) for each in workers))
    await emptied(harness, workers[0])
    found = Counter(properties.message_id for properties, _ in contents(harness.url, ORDERS.name))
    assert found == dict.fromkeys(names, 1)


async def test_services_that_start_together_for_different_types_each_get_their_own(
    harness: Harness,
) -> None:
    paid, other = await waiting(harness, 300, PAID), await waiting(harness, 300, OTHER)
    await waiting(harness, 10, "StillUnknown")
    queue = Queue(name="other.queue", event_types=(OTHER,), failed="other.failed")
    first, second = harness.open_parts(), harness.open_parts()
    await asyncio.gather(first.bus.open([ORDERS]), second.bus.open([queue]))
    assert sorted(await drained(first.bus, len(paid))) == sorted(paid)
    assert sorted(await drained(second.bus, len(other), queue.name)) == sorted(other)
    assert await first.unrouted.counts() == {"StillUnknown": 10}


async def test_readers_at_once_each_see_everything(harness: Harness) -> None:
    names = await waiting(harness, 120)
    readers = [harness.open_parts() for _ in range(3)]
    for found in await asyncio.gather(*(operations(each) for each in readers)):
        assert found == names


async def test_start_does_not_wait_for_a_reader(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "_PATIENCE", 0.3)
    names = await waiting(harness, 60)
    reader, worker = harness.open_parts(), harness.open_parts()
    look = await reader.unrouted._looks.start(UNROUTED)
    assert look is not None
    async with asyncio.timeout(10):
        await worker.bus.open(QUEUES)
    with pytest.raises(QueueHeldError):
        await worker.unrouted.counts()
    await reader.unrouted._looks.end()
    await emptied(harness, reader)
    assert await drained(worker.bus, len(names)) == names


@pytest.mark.parametrize("limit", [1, 2])
async def test_no_policy_removes_events_that_are_looked_at(
    harness: Harness, rabbitmq_server: RabbitMQ, limit: int
) -> None:
    names = await waiting(harness, 120, OTHER)
    paid = await waiting(harness, 30)
    rabbitmq_server.set_policy(harness.url, UNROUTED, delivery_limit=limit)
    await policy_holds()
    for number in range(8):
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


async def test_delivery_limit_of_zero_removes_no_event_and_the_log_names_the_cure(
    harness: Harness, rabbitmq_server: RabbitMQ, caplog: pytest.LogCaptureFixture
) -> None:
    names = await waiting(harness, 5_500, OTHER)
    rabbitmq_server.set_policy(harness.url, UNROUTED, delivery_limit=0)
    await policy_holds()
    parts = harness.open_parts()
    with pytest.raises(ConfigurationError, match=r"Cannot read headway\.unrouted: .*policy"):
        await parts.unrouted.counts()
    await parts.bus.open(QUEUES)  # a worker starts all the same
    assert any("Cannot read headway.unrouted" in each.getMessage() for each in caplog.records)
    await parts.bus.close()
    rabbitmq_server.set_policy(harness.url, UNROUTED, delivery_limit=5)
    await policy_holds()
    assert sorted(await operations(harness.open_parts())) == sorted(names)


# Faults


async def test_publish_fails_when_the_broker_dies_between_return_and_keep(
    harness: Harness, rabbitmq_server: RabbitMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.adapters.rabbitmq.sending._PATIENCE", 1.0)
    publisher = harness.open_parts()
    await publisher.bus.open([MAILS])
    for queue in (UNROUTED, MAILS.name, MAILS.failed, "headway.catalogue"):
        rabbitmq_server.wait_for_quorum_queue(harness.url, queue)
    keep = publisher.unrouted.keep

    async def killed(events: Sequence[tuple[str, Outgoing]]) -> None:
        rabbitmq_server.kill()
        try:
            await keep(events)
        finally:
            rabbitmq_server.start()

    batch = [message("taken", event_type=PLACED), message("kept")]
    monkeypatch.setattr(publisher.unrouted, "keep", killed)
    with pytest.raises(NotPublishedError) as refused:
        await publisher.bus.publish(batch)
    assert refused.value.stored == {0}
    monkeypatch.undo()
    assert list(await publisher.bus.publish(batch)) == [1, 0]
    worker = harness.open_parts()
    assert set(await operations(worker)) == {"kept"}
    await worker.bus.open([ORDERS])
    assert set(await drained(worker.bus, 1)) == {"kept"}


async def test_publish_goes_on_when_the_broker_restarts_between_return_and_keep(
    harness: Harness, rabbitmq_server: RabbitMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = harness.open_parts(for_worker=True)
    await publisher.bus.open([MAILS])
    rabbitmq_server.wait_for_quorum_queue(harness.url, UNROUTED)
    keep = publisher.unrouted.keep

    async def restarted(events: Sequence[tuple[str, Outgoing]]) -> None:
        rabbitmq_server.kill()
        rabbitmq_server.start()
        await keep(events)

    monkeypatch.setattr(publisher.unrouted, "keep", restarted)
    assert list(await publisher.bus.publish([message("kept")])) == [0]
    assert await operations(harness.open_parts()) == ["kept"]


async def test_queue_that_was_deleted_is_declared_anew_by_the_next_publish(
    harness: Harness,
) -> None:
    parts = harness.open_parts()
    await parts.bus.publish([message("gone")])
    with channel_to(harness.url) as channel:
        channel.queue_delete(UNROUTED)
    await parts.bus.publish([message("kept")])
    assert await operations(parts) == ["kept"]


@pytest.mark.parametrize("limit", [None, 2])
async def test_killed_while_routing_loses_nothing_and_repeats_only_under_the_same_ids(
    harness: Harness, rabbitmq_server: RabbitMQ, limit: int | None
) -> None:
    names = await waiting(harness, 1_200)
    if limit is not None:
        rabbitmq_server.set_policy(harness.url, UNROUTED, delivery_limit=limit)
        await policy_holds()
    for pages in (0, 1):
        await killed_router(harness.url, pages)
    worker = harness.open_parts()
    await worker.bus.open([ORDERS])
    await emptied(harness, worker)
    found = Counter(await drained(worker.bus, len(names)))
    assert set(found) == set(names)
    assert max(found.values()) > 1  # they were killed between publish and ack


async def killed_router(url: str, pages: int) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.engines.rabbitmq.killed_router"),
        *(url, ORDERS.name, PAID, str(pages)),
        cwd=ROOT,
    )
    assert await process.wait() == -9


async def test_message_of_another_program_is_shown_and_kept_until_it_is_purged(
    harness: Harness,
) -> None:
    parts = harness.open_parts()
    await parts.bus.open(QUEUES)
    with channel_to(harness.url) as channel:  # a program that takes whatever is published
        channel.queue_declare("everything", durable=True)
        channel.queue_bind("everything", EXCHANGE, "#")
    put(harness.url, UNROUTED, b"\xff no event", headers={"headway-event-type": 7})
    put(harness.url, UNROUTED, b"{}")
    put(harness.url, UNROUTED, b'{"event_type":"OrderPaid","event_id":"by-hand","data":{}}')
    assert await parts.unrouted.counts() == {MALFORMED: 2, PAID: 1}
    shown, _, by_hand = await parts.unrouted.read(10)
    assert (shown.event_type, shown.body) == (MALFORMED, b"\xff no event")
    assert (by_hand.event_type, by_hand.travel.operation) == (PAID, "by-hand")
    assert await parts.unrouted.route() == 1
    assert await drained(parts.bus, 1) == [""]  # its event names it
    assert await parts.unrouted.counts() == {MALFORMED: 2}
    assert await parts.unrouted.purge([MALFORMED]) == 2
    assert await parts.unrouted.counts() == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_command_that_is_interrupted_records_what_it_moved(
    harness: Harness, number: int
) -> None:
    names = await waiting(harness, 3_000)
    service, keeper = harness.open_parts(), harness.open_parts()
    kept = [each.body for each in await keeper.unrouted.read(len(names))]
    await keeper.unrouted.purge([PAID])
    await service.bus.open([ORDERS])
    await service.bus.close()
    with channel_to(harness.url) as channel:  # as if kept a moment after that
        for name, body in zip(names, kept, strict=True):
            beside = {"headway-event-type": PAID}
            properties = pika.BasicProperties(delivery_mode=2, message_id=name, headers=beside)
            channel.basic_publish("", UNROUTED, body, properties)
    command = (sys.executable, "-m", "headway.apps.cli", "unrouted")
    process = await asyncio.create_subprocess_exec(
        *(*command, "route", "--bus", harness.url), cwd=ROOT
    )
    with channel_to(harness.url) as channel:
        while not channel.queue_declare(ORDERS.name, passive=True).method.message_count:
            assert process.returncode is None
    process.send_signal(number)
    assert await process.wait() == 128 + number
    left = (await keeper.unrouted.counts())[PAID]
    assert 0 < left < len(names)
    (entry,) = await UnroutedEvents(without_store(keeper), harness.clock, SystemChance()).history()
    assert (entry["chosen"], entry["done"]) == (len(names), len(names) - left)
    assert sorted(await drained(keeper.bus, len(names) - left)) == sorted(
        {*names} - {*await operations(keeper)}
    )


@pytest.mark.timeout(300)
async def test_ten_thousand_events_are_routed_in_the_midst_of_others(harness: Harness) -> None:
    publisher = harness.open_parts()
    names = [f"event-{number}" for number in range(10_000)]
    for at in range(0, len(names), 1_000):
        batch = [message(name) for name in names[at : at + 1_000]]
        batch += [message(f"{name}-other", event_type=OTHER) for name in names[at : at + 100]]
        await publisher.bus.publish(batch)
    worker = harness.open_parts()
    await worker.bus.open([ORDERS])
    async with asyncio.timeout(120):
        while (await worker.unrouted.counts()).get(PAID):
            await harness.pass_time(harness.moment)
    assert Counter(await drained(worker.bus, len(names))) == dict.fromkeys(names, 1)
    assert await worker.unrouted.counts() == {OTHER: 1_000}


async def test_policy_on_the_length_drops_no_event_that_was_confirmed(
    harness: Harness, rabbitmq_server: RabbitMQ
) -> None:
    publisher, confirmed = harness.open_parts(patient=False), await waiting(harness, 1)
    rabbitmq_server.set_policy(harness.url, UNROUTED, max_length=10)
    await policy_holds()
    for batch in range(4):
        names = [f"late-{batch}-{number}" for number in range(30)]
        try:
            await publisher.bus.publish([message(name) for name in names])
        except NotPublishedError:
            break  # the broker refuses what is too much
        confirmed += names
    assert len(confirmed) > 1
    assert set(await operations(publisher)) >= set(confirmed)
