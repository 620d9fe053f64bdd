"""Whatever happens to its connections, a worker comes back and consumes."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest

from headway import Event, Service, Work
from headway.clock import SystemChance, SystemClock
from headway.testing.engines import Worker, message_of, rabbitmq_parts, without_store
from headway.testing.facts import Recorder
from headway.testing.ports import encode
from headway.testing.proxy import Proxy
from headway.testing.servers import RabbitMQ

QUEUE = "shop.order.placed"
BACK_WITHIN = 5.0
pytestmark = [pytest.mark.usefixtures("coarse_delays"), pytest.mark.timeout(180)]


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
        engine = without_store(self.parts)
        worker = Worker([service], engine, clock=clock, chance=chance, observer=Recorder())
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


@pytest.mark.timeout(600)
@pytest.mark.parametrize("times", [4, pytest.param(30, marks=pytest.mark.chaos)])
async def test_connections_that_are_closed_by_force_under_load(
    shop: Shop,
    rabbitmq_server: RabbitMQ,
    record_property: Callable[[str, object], None],
    times: int,
) -> None:
    longest = 0.0
    async with shop.working():
        await shop.publish(100)
        await shop.all_seen(20)
        for _ in range(times):
            publishing = asyncio.create_task(shop.publish(500))
            await force(rabbitmq_server)
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


async def test_a_half_open_connection_is_replaced(
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
