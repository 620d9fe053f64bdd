"""Whatever happens to its connections, a worker comes back and consumes."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest

from headway import Event, Service, Work
from headway.adapters.rabbitmq.engine import rabbitmq_parts
from headway.adapters.system.chance import SystemChance
from headway.adapters.system.clock import SystemClock
from headway.core.event import encode
from headway.runtime.joined_engine import without_store
from headway.runtime.observers import Observers
from headway.runtime.publisher import message_of
from headway.runtime.worker import Worker
from headway.testing.proxy import Proxy
from headway.testing.servers import RabbitMQ

QUEUE = "shop.order.placed"
BACK_WITHIN = 5.0


@dataclass
class Shop:
    """A worker in this process, and what reached its handler."""

    url: str
    seen: Counter[str] = field(default_factory=Counter)
    published: int = 0

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        service = Service("shop")

        @service.on("OrderPlaced")
        async def handle(event: Event, work: Work) -> None:
            self.seen[event.event_id] += 1

        clock, chance = SystemClock(), SystemChance()
        self.parts = rabbitmq_parts(self.url, clock, chance)
        worker = Worker(
            [service],
            without_store(self.parts),
            clock=clock,
            chance=chance,
            observer=Observers(),
        )
        running = asyncio.create_task(worker.run())
        try:
            await self.until(lambda: self.parts.bus._taker._channel is not None, 20)
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


@pytest.mark.timeout(120)
async def test_a_connection_of_which_nobody_hears_any_more(
    rabbitmq_server: RabbitMQ, rabbitmq_vhost: str
) -> None:
    """Half-open: nothing arrives and nothing is refused. Heartbeats find out."""
    with Proxy(*rabbitmq_server.address) as proxy:
        shop = Shop(f"{proxy.through(rabbitmq_vhost)}?heartbeat=1")
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
async def test_a_broker_that_is_killed_and_started_again() -> None:
    with RabbitMQ() as server:
        shop = Shop(server.create_vhost())
        async with shop.working():
            await shop.publish(10)
            await shop.all_seen()
            for queue in (QUEUE, f"{QUEUE}.suspects", "shop.failed"):
                server.wait_for_quorum_queue(shop.url, queue)
            server.kill()
            server.start()  # in this thread, whose end would be the server's
            await shop.publish(100)
            await shop.all_seen(15)
            proven = shop.parts.bus._pulse.proven
            await shop.until(lambda: shop.parts.bus._pulse.proven != proven, 15)
