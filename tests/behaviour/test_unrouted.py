"""An event that no service takes is kept, said, and delivered once to the first that takes it."""

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headway import Service, connect
from headway.clock import SystemChance, SystemClock
from headway.facts import EventsRouted, EventsUnrouted
from headway.operations import verify
from headway.testing.engines import Publisher, State, Worker, memory_engine, sqlite_engine
from headway.testing.facts import Recorder
from headway.testing.ports import Engine
from headway.testing.trial import Trial, at_rest

CLOCK, CHANCE = SystemClock(), SystemChance()
ORDERS = [f"order-{n}" for n in range(20)]


class Site:
    """One storage, and services that come and go on it as processes do."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._state = State()
        self.facts = Recorder()
        self.asked = self.engine()

    def engine(self) -> Engine:
        if self._folder is None:
            return memory_engine(CLOCK, CHANCE, self._state)
        return sqlite_engine(self._folder / "headway.db", CLOCK, CHANCE, synchronous="off")

    async def publish(self, event_type: str, *orders: str) -> None:
        publisher = Publisher(self.asked.bus, CLOCK, CHANCE)
        for one in orders:
            await publisher.publish(event_type, {"order": one}, event_id=one)

    async def run(self, *services: Service) -> None:
        """Let a worker run until every event has ended."""
        worker = Worker(services, self.engine(), clock=CLOCK, chance=CHANCE, observer=self.facts)
        await self.asked.bus.open([queue for each in services for queue in each.queues()])
        task = asyncio.create_task(worker.run())
        while not at_rest(await self.asked.places.depths()):  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.005)
        worker.stop()
        await task

    async def unrouted(self) -> dict[str, int]:
        """Count by type, and see that everything is in its one place."""
        report = await verify(self.asked.places)
        assert (report.verdict, report.difference, report.astray) == ("ok", 0, 0)
        counts = dict(await self.asked.unrouted.counts())
        assert report.places["unrouted"] == sum(counts.values())
        return counts


@pytest.fixture(params=["memory", "sqlite"])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    site = Site(None if request.param == "memory" else tmp_path)
    yield site
    await site.asked.close()


def orders_service(publishes: str = "OrderShipped", **options: Any) -> Service:
    orders = Service("orders", **options)

    @orders.on("OrderPlaced", failed="OrderFailed")
    async def place(event: Any, work: Any) -> None:
        if event.data["order"] == "bad":
            raise ValueError("bad order")
        work.publish(publishes, event.data)

    return orders


def shipping_service(shipped: list[str], name: str = "shipping") -> Service:
    shipping = Service(name)

    @shipping.on("OrderShipped")
    async def ship(event: Any, work: Any) -> None:
        shipped.append(event.data["order"])
        work.documents("shipped").insert_new({"_id": event.data["order"]})

    return shipping


async def test_what_a_handler_published_waits_for_a_service_that_starts_later(site: Site) -> None:
    await site.publish("OrderPlaced", *ORDERS)
    assert await site.unrouted() == {"OrderPlaced": len(ORDERS)}
    await site.run(orders_service())
    assert await site.unrouted() == {"OrderShipped": len(ORDERS)}
    shipped: list[str] = []
    for _ in range(2):
        await site.run(shipping_service(shipped))
        assert sorted(shipped) == sorted(ORDERS)
    assert await site.unrouted() == {}


async def test_what_a_starting_service_receives_is_told_once_for_each_type(site: Site) -> None:
    await site.publish("OrderShipped", *ORDERS)
    await site.publish("OrderPlaced", "one")
    services = [orders_service(), shipping_service([]), shipping_service([], "mails")]
    worker = Worker(services, site.engine(), clock=CLOCK, chance=CHANCE, observer=site.facts)
    task = asyncio.create_task(worker.run())
    while len(site.facts.of(EventsRouted)) < 3:  # noqa: ASYNC110 (for a fact)
        await asyncio.sleep(0)
    worker.stop()
    await task
    told = {(each.event_type, each.service): each.count for each in site.facts.of(EventsRouted)}
    shipped = {("OrderShipped", name): len(ORDERS) for name in ("shipping", "mails")}
    assert told == {("OrderPlaced", "orders"): 1} | shipped


async def test_services_started_in_the_wrong_order_lose_nothing(site: Site) -> None:
    shipped: list[str] = []
    await site.run(shipping_service(shipped))
    await site.publish("OrderPlaced", "a", "b")
    await site.run(orders_service(), shipping_service(shipped))
    assert sorted(shipped) == ["a", "b"]
    assert await site.unrouted() == {}


@pytest.mark.parametrize(
    "orders",
    [
        lambda: orders_service(announces=["OrderShipped"]),
        lambda: orders_service("OrderFailed"),
    ],
    ids=["announced", "of failures"],
)
async def test_types_that_are_announced_or_of_failures_need_no_consumer(
    site: Site, orders: Any
) -> None:
    await site.publish("OrderPlaced", "good", "bad")
    await site.run(orders())
    assert await site.unrouted() == {}
    assert site.facts.of(EventsUnrouted) == []


async def test_the_published_id_is_recognised_after_it_was_routed(site: Site) -> None:
    shipped: list[str] = []
    await site.publish("OrderShipped", "a", "a")
    await site.run(shipping_service(shipped))
    await site.publish("OrderShipped", "a")
    await site.run(shipping_service(shipped))
    assert shipped == ["a"]


@pytest.mark.parametrize("announced", [False, True])
async def test_a_typo_is_said_once_with_the_name_that_was_meant(
    site: Site, *, announced: bool
) -> None:
    await site.publish("OrderPlaced", *ORDERS)
    await site.run(shipping_service([]))
    announces = ["OrderShiped"] if announced else []
    await site.run(orders_service("OrderShiped", announces=announces))
    (fact,) = site.facts.of(EventsUnrouted)
    assert (fact.service, fact.event_type, fact.meant) == ("orders", "OrderShiped", "OrderShipped")
    assert await site.unrouted() == ({} if announced else {"OrderShiped": len(ORDERS)})


async def test_it_is_said_once_a_minute_for_each_type() -> None:
    trial = Trial(orders_service())
    async with trial.running():
        for number in range(6):
            for one in range(5):
                await trial.publish("OrderPlaced", {"order": f"order-{number}-{one}"})
            await trial.clock.wait(timedelta(seconds=25))
            expected = 1 if number < 3 else 2
            assert len(trial.facts.of(EventsUnrouted)) == expected
    assert [each.event_type for each in await trial.unrouted()] == ["OrderShipped"] * 30


async def test_publishing_from_outside_keeps_the_event_and_says_where_and_what_was_meant(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{tmp_path}/headway.db"
    meant = {"order_shipped": "OrderShipped", "OrdersShiped": "OrderShipped", "InvoicePaid": ""}
    async with connect(url) as headway:
        await headway.declare(shipping_service([]))
        with caplog.at_level(logging.WARNING, logger="headway"):
            for event_type in meant:
                assert await headway.publish(event_type, {}) == 0
            pair: list[tuple[str, Any]] = [("OrderShipped", {}), ("InvoicePaid", {})]
            assert await headway.publish_all(pair) == 1
        listed = {
            each.event_type: (each.events, each.meant) for each in await headway.unrouted.list()
        }
    assert listed == {name: (1 + (not what), what) for name, what in meant.items()}
    assert len(caplog.messages) == len(meant)
    assert all(f"{tmp_path}/headway.db" in line for line in caplog.messages)
