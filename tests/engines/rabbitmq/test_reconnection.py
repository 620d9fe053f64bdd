"""Whatever happens to its connections, a worker comes back and consumes."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from headway import Event, Service, Work
from headway.adapters.rabbitmq.alive import Alive
from headway.adapters.rabbitmq.connecting import parameters
from headway.adapters.rabbitmq.consuming import Consumers
from headway.adapters.rabbitmq.link import Link
from headway.clock import SystemChance, SystemClock
from headway.runtime.observers import Observers
from headway.testing.conformance.examples import MAILS, ORDERS, message, opened, publish, take
from headway.testing.engines import Worker, message_of, rabbitmq_parts, without_store
from headway.testing.ports import Done, Engine, encode
from headway.testing.proxy import Proxy
from headway.testing.servers import RabbitMQ
from tests.engines.rabbitmq.harness import RabbitBusHarness
from tests.engines.rabbitmq.test_reading import OURS, Recording, delivery

QUEUE = "shop.order.placed"
BACK_WITHIN = 5.0


@dataclass
class Shop:
    """A worker in this process, and what reached its handler."""

    url: str
    heartbeat: int = 10
    seen: Counter[str] = field(default_factory=Counter)
    published: int = 0

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        service = Service("shop")

        @service.on("OrderPlaced")
        async def handle(event: Event, work: Work) -> None:
            self.seen[event.event_id] += 1

        clock, chance = SystemClock(), SystemChance()
        self.parts = rabbitmq_parts(self.url, clock, chance, heartbeat=self.heartbeat)
        worker = Worker(
            [service],
            without_store(self.parts),
            clock=clock,
            chance=chance,
            observer=Observers(),
        )
        running = asyncio.create_task(worker.run())
        try:
            await self.until(lambda: self.parts.bus._taker.consumers.channel is not None, 20)
            yield
        finally:
            worker.stop()
            await asyncio.wait_for(running, 40)

    async def publish(self, count: int) -> None:
        messages = []
        for _ in range(count):
            self.published += 1
            name = f"order-{self.published}"
            messages.append(message_of(encode(Event("OrderPlaced", name)), "OrderPlaced", name))
        await self.parts.bus.publish(messages)

    async def all_seen(self, seconds: float = BACK_WITHIN) -> None:
        await self.until(lambda: len(self.seen) == self.published, seconds)

    async def until(self, fact: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not fact():
            assert time.monotonic() < deadline, f"{len(self.seen)} of {self.published} seen"
            await asyncio.sleep(0.02)


@pytest.fixture
def shop(rabbitmq_vhost: str) -> Shop:
    return Shop(rabbitmq_vhost)


async def force(server: RabbitMQ) -> None:
    """Close by force; management lists a connection only some time after it was made."""
    deadline = time.monotonic() + 10
    while not await asyncio.to_thread(server.close_connections):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)


async def closed_by_force(
    shop: Shop, server: RabbitMQ, times: int, record_property: Callable[[str, object], None]
) -> None:
    longest = 0.0
    async with shop.working():
        await shop.publish(100)
        await shop.all_seen(20)
        for _ in range(times):
            publishing = asyncio.create_task(shop.publish(500))
            await force(server)
            began = time.monotonic()
            await publishing
            await shop.all_seen()
            longest = max(longest, time.monotonic() - began)
    record_property(
        "shown",
        f"{times} forced closes under load: {shop.published} events, none lost, "
        f"{sum(shop.seen.values()) - shop.published} handled again, back after {longest:.1f} s "
        "at most",
    )


@pytest.mark.timeout(120)
async def test_connections_that_are_closed_by_force(
    shop: Shop, rabbitmq_server: RabbitMQ, record_property: Callable[[str, object], None]
) -> None:
    await closed_by_force(shop, rabbitmq_server, 4, record_property)


@pytest.mark.chaos
@pytest.mark.timeout(600)
async def test_thirty_forced_reconnections_under_load(
    shop: Shop, rabbitmq_server: RabbitMQ, record_property: Callable[[str, object], None]
) -> None:
    await closed_by_force(shop, rabbitmq_server, 30, record_property)


@pytest.mark.timeout(120)
async def test_a_queue_that_is_deleted_is_declared_anew_and_consumed(
    shop: Shop, rabbitmq_server: RabbitMQ
) -> None:
    async with shop.working():
        await shop.publish(10)
        await shop.all_seen()
        rabbitmq_server.delete_queue(shop.url, QUEUE)
        for _ in range(100):
            before = shop.published
            with contextlib.suppress(AssertionError):
                await shop.publish(1)
                await shop.all_seen(0.2)
                break
            shop.published = before
        else:
            pytest.fail("the worker did not come back to its queue")
        await shop.publish(10)
        await shop.until(lambda: shop.seen[f"order-{shop.published}"] > 0, BACK_WITHIN)
        source = shop.parts.bus._taker.consumers.sources[QUEUE]
        assert source.window == source.wanted > 1


@pytest.mark.timeout(120)
async def test_a_connection_of_which_nobody_hears_any_more(
    rabbitmq_server: RabbitMQ, rabbitmq_vhost: str
) -> None:
    """Half-open: nothing arrives and nothing is refused. Heartbeats find out."""
    with Proxy(*rabbitmq_server.address) as proxy:
        shop = Shop(proxy.through(rabbitmq_vhost), heartbeat=1)
        async with shop.working():
            await shop.publish(10)
            await shop.all_seen()
            proxy.black_hole()
            publishing = asyncio.create_task(shop.publish(10))
            await asyncio.sleep(4)
            assert not publishing.done()
            proxy.heal()
            await publishing
            await shop.all_seen(15)


@pytest.mark.timeout(120)
async def test_a_broker_without_memory_blocks_publishing_and_nothing_else(
    shop: Shop, rabbitmq_server: RabbitMQ, caplog: pytest.LogCaptureFixture
) -> None:
    async with shop.working():
        await shop.publish(1)
        await shop.all_seen()
        rabbitmq_server.run_out_of_memory()
        try:
            publishing = asyncio.create_task(shop.publish(10))
            await asyncio.sleep(2)
            assert not publishing.done()
            assert "takes no messages" in caplog.text
        finally:
            rabbitmq_server.recover_memory()
        await publishing
        await shop.all_seen()
    assert "takes messages again" in caplog.text


@pytest.mark.timeout(180)
async def test_a_broker_that_is_killed_and_started_again(
    shop: Shop, rabbitmq_server: RabbitMQ
) -> None:
    async with shop.working():
        await shop.publish(10)
        await shop.all_seen()
        for queue in (QUEUE, f"{QUEUE}.suspects", "shop.failed"):
            rabbitmq_server.wait_for_quorum_queue(shop.url, queue)
        rabbitmq_server.kill()
        rabbitmq_server.start()  # in this thread, whose end would be the server's
        await shop.publish(100)
        await shop.all_seen(15)
        proven = shop.parts.bus._pulse.proven
        await shop.until(lambda: shop.parts.bus._pulse.proven != proven, 15)


# Queues that cannot be consumed from


@pytest.fixture
async def harness(rabbitmq_vhost: str) -> AsyncIterator[RabbitBusHarness]:
    harness = RabbitBusHarness(rabbitmq_vhost)
    yield harness
    await harness.close()


@pytest.mark.timeout(60)
async def test_a_queue_that_is_missing_when_it_is_first_asked_for(
    harness: RabbitBusHarness, rabbitmq_server: RabbitMQ, caplog: pytest.LogCaptureFixture
) -> None:
    engine = await opened(harness)
    rabbitmq_server.delete_queue(harness.url, ORDERS.name)
    assert not await engine.bus.take([ORDERS.name], 10, 10 * harness.moment)
    await publish(engine, "a")
    (taken,) = await take(harness, engine, 1)
    assert taken.travel.operation == "a"
    (bus,) = harness.buses
    assert len(bus._taker.consumers.link._connection._channels) <= 3  # type: ignore[union-attr]
    assert caplog.text.count("closed the channel") <= 3
    assert await until_proven(harness, engine)


@pytest.mark.timeout(60)
async def test_a_queue_that_the_broker_does_not_let_anybody_read(
    harness: RabbitBusHarness, rabbitmq_server: RabbitMQ, caplog: pytest.LogCaptureFixture
) -> None:
    """As with one that somebody else has for himself."""
    engine = await opened(harness)
    rabbitmq_server.allow_reading(harness.url, f"^(?!{ORDERS.name}$).*")
    both = [ORDERS.name, MAILS.name]
    while f"gives nothing of {ORDERS.name}" not in caplog.text:
        assert not await engine.bus.take(both, 10, harness.moment)
    await engine.bus.publish([message("mail", event_type="OrderPlaced", queue=MAILS.name)])
    (mail,) = await take(harness, engine, 1, *both)
    await engine.bus.take(both, 10, 10 * harness.moment)  # it is tried, and costs nobody his
    assert await engine.bus.settle([(mail, Done())]) == [True]
    assert await engine.bus.proven() is None
    rabbitmq_server.allow_reading(harness.url)
    await publish(engine, "a")
    assert [each.travel.operation for each in await take(harness, engine, 1)] == ["a"]
    assert await until_proven(harness, engine)


async def until_proven(harness: RabbitBusHarness, engine: Engine) -> bool:
    for _ in range(50):
        if await engine.bus.proven() is not None:
            return True
        await asyncio.sleep(harness.moment.total_seconds())
    return False


# Without a broker


class FakeIo:
    """Takes down what would be done later."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.put_off: list[Callable[[], None]] = []

    def later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.pauses.append(seconds)
        self.put_off.append(callback)


class FakeChannel:
    """Takes down what the broker is asked."""

    channel_number = OURS
    is_open = True

    def __init__(self) -> None:
        self.connection: Any = Old()
        self.on_close = 0
        self.consumed: list[str] = []
        self.cancelled: list[tuple[str, Any]] = []

    def add_on_cancel_callback(self, _callback: object) -> None: ...

    def add_on_close_callback(self, _callback: object) -> None:
        self.on_close += 1

    def basic_qos(self, prefetch_count: int) -> None: ...

    def basic_consume(self, _queue: str, _late: Any, consumer_tag: str, callback: Any) -> None:
        self.consumed.append(consumer_tag)
        callback(answer(consumer_tag))

    def basic_cancel(self, tag: str, callback: Any) -> None:
        self.cancelled.append((tag, callback))


class Old(Recording):
    """A connection that is not there any more, and of which bytes still come."""

    is_open = True
    channels = 0

    def channel(self, on_open_callback: object) -> None:
        self.channels += 1


def answer(tag: str) -> Any:
    return SimpleNamespace(method=SimpleNamespace(consumer_tag=tag))


def consumers(io: Any, told: list[Any]) -> Any:
    return Consumers(
        io,
        parameters("amqp://localhost"),
        alive="alive",
        began=told.append,
        came=lambda: None,
        gone=lambda: None,
    )


def test_what_an_old_connection_still_brings_is_left_alone() -> None:
    made = consumers(FakeIo(), [])
    old, new = FakeChannel(), FakeChannel()
    made.widen(QUEUE, 5)
    made._opened(old)
    (tag,) = old.consumed
    old.connection._on_data_available(delivery(1, b"x", consumer=tag))
    made._lost(RuntimeError("silent"))
    made._opened(new)
    old.connection._on_data_available(delivery(2, b"x", consumer=tag))
    new.connection._on_data_available(delivery(1, b"x", consumer=new.consumed[0]))
    found = [(each.epoch, each.tag) for each in made.sources[QUEUE].arrived]
    assert found == [(1, 1), (2, 1)]


def test_a_worker_has_its_own_queue_once_on_each_connection() -> None:
    io, old, new = FakeIo(), FakeChannel(), FakeChannel()
    alive = Alive(io, "alive")  # type: ignore[arg-type]
    alive.keep(old.connection)
    alive._closed(old, RuntimeError("the connection is lost"))
    alive.keep(new.connection)
    alive.keep(new.connection)
    for callback in io.put_off:
        callback()
    assert (old.connection.channels, new.connection.channels) == (1, 1)
    alive._closed(new, RuntimeError("locked"))
    io.put_off[-1]()
    assert new.connection.channels == 2


def test_to_stop_consuming_leaves_nothing_behind_on_its_channel() -> None:
    made, channel, done = consumers(FakeIo(), []), FakeChannel(), []
    made._opened(channel)
    for number in range(3):
        made.widen(QUEUE, 5)
        made.cancel([QUEUE], lambda number=number: done.append(number))
        assert len(done) == number
        tag, callback = channel.cancelled[-1]
        callback(answer(tag))
    made.widen(QUEUE, 5)
    made.cancel([QUEUE], lambda: done.append(3))
    made._lost(RuntimeError("gone"))
    assert (done, channel.on_close, made._cancelling) == ([0, 1, 2, 3], 0, [])


def test_what_is_on_its_way_while_consuming_ends_arrives_like_all_else() -> None:
    made, channel = consumers(FakeIo(), []), FakeChannel()
    made._opened(channel)
    made.widen(QUEUE, 5)
    (tag,) = channel.consumed
    made.cancel([QUEUE], lambda: None)
    channel.connection._on_data_available(delivery(1, b"x", consumer=tag))
    assert [each.tag for each in made.sources[QUEUE].arrived] == [1]


def test_a_channel_that_is_closed_again_and_again_is_opened_less_and_less_often() -> None:
    io: Any = FakeIo()
    link = Link(
        io,
        parameters("amqp://localhost"),
        purpose="taking",
        opened=lambda _: None,
        lost=lambda _: None,
    )
    link._connection = SimpleNamespace(is_open=True)  # type: ignore[assignment]
    for _ in range(7):
        channel: Any = FakeChannel()
        link._channel_opened(channel)
        link._channel_closed(channel, RuntimeError("NOT_FOUND"))
    assert io.pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
