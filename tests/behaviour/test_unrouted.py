"""An event that no service takes is kept, said, and delivered once to the first that takes it."""

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headway import ConfigurationError, Service, connect
from headway.clock import SystemChance, SystemClock
from headway.facts import EventsUnrouted
from headway.logs import LogObserver
from headway.operations import verify
from headway.runtime.overview import Verdict
from headway.runtime.unrouted import nearest_type
from headway.testing.engines import Publisher, State, Worker, memory_engine, sqlite_engine
from headway.testing.facts import Recorder
from headway.testing.ports import Engine
from headway.testing.trial import Trial, at_rest

CLOCK, CHANCE = SystemClock(), SystemChance()
ORDERS = 20


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
        assert (report.verdict, report.difference, report.astray) == (Verdict.OK, 0, 0)
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
    names = [f"order-{n}" for n in range(ORDERS)]
    await site.publish("OrderPlaced", *names)
    assert await site.unrouted() == {"OrderPlaced": ORDERS}
    await site.run(orders_service())
    assert await site.unrouted() == {"OrderShipped": ORDERS}
    shipped: list[str] = []
    for _ in range(2):
        await site.run(shipping_service(shipped))
        assert sorted(shipped) == sorted(names)
    assert await site.unrouted() == {}


async def test_what_a_starting_service_receives_is_said_once_for_each_type(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    await site.publish("OrderShipped", *[f"order-{n}" for n in range(12)])
    await site.publish("OrderPlaced", "one")
    mails = Service("mails")

    @mails.on("OrderShipped")
    async def mail(event: Any, work: Any) -> None: ...

    observer = LogObserver()
    with caplog.at_level(logging.INFO, logger="headway"):
        worker = Worker(
            [orders_service(), shipping_service([]), mails],
            site.engine(),
            clock=CLOCK,
            chance=CHANCE,
            observer=observer,
        )
        task = asyncio.create_task(worker.run())
        while not any(line.startswith("Running") for line in caplog.messages):  # noqa: ASYNC110 (for a line)
            await asyncio.sleep(0)
        worker.stop()
        await task
    assert [line for line in caplog.messages if line.startswith("Routed")] == [
        "Routed 1 unrouted OrderPlaced event to service orders",
        "Routed 12 unrouted OrderShipped events to service shipping",
        "Routed 12 unrouted OrderShipped events to service mails",
    ]


async def test_services_started_in_the_wrong_order_lose_nothing(site: Site) -> None:
    shipped: list[str] = []
    await site.run(shipping_service(shipped))
    await site.publish("OrderPlaced", "a", "b")
    await site.run(orders_service(), shipping_service(shipped))
    assert sorted(shipped) == ["a", "b"]
    assert await site.unrouted() == {}


async def test_a_new_handler_of_an_old_service_gets_what_waited(site: Site) -> None:
    await site.publish("OrderPlaced", "a")
    orders = orders_service()
    await site.run(orders)
    shipped: list[str] = []

    @orders.on("OrderShipped")
    async def ship(event: Any, work: Any) -> None:
        shipped.append(event.data["order"])

    await site.run(orders)
    assert shipped == ["a"]
    assert await site.unrouted() == {}


async def test_types_that_are_announced_or_of_failures_need_no_consumer(site: Site) -> None:
    await site.publish("OrderPlaced", "good", "bad")
    await site.run(orders_service(announces=["OrderShipped"]))
    assert await site.unrouted() == {}
    assert site.facts.of(EventsUnrouted) == []


async def test_a_failure_that_a_handler_announces_itself_needs_no_consumer(site: Site) -> None:
    await site.publish("OrderPlaced", "a")
    await site.run(orders_service("OrderFailed"))
    assert await site.unrouted() == {}


async def test_the_published_id_is_recognised_after_it_was_routed(site: Site) -> None:
    shipped: list[str] = []
    await site.publish("OrderShipped", "a", "a")
    await site.run(shipping_service(shipped))
    await site.publish("OrderShipped", "a")
    await site.run(shipping_service(shipped))
    assert shipped == ["a"]


async def test_a_typo_is_said_with_the_name_that_was_meant(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    await site.publish("OrderPlaced", *[f"order-{n}" for n in range(ORDERS)])
    await site.run(shipping_service([]))
    with caplog.at_level(logging.WARNING, logger="headway"):
        await site.run(orders_service("OrderShiped"))
    (fact,) = site.facts.of(EventsUnrouted)
    assert (fact.service, fact.event_type, fact.meant) == ("orders", "OrderShiped", "OrderShipped")
    LogObserver().tell(fact)
    (said,) = caplog.messages
    assert said == (
        "No service takes OrderShiped, which orders publishes: its events are kept as unrouted "
        "until one does. Did you mean OrderShipped? Start a service that handles it (see 'headway "
        "unrouted list'), or name it in Service(announces=...) if none has to"
    )


@pytest.mark.parametrize("order", ["bad", "good"])
async def test_a_typo_in_a_type_that_needs_no_consumer_is_said_once(
    site: Site, caplog: pytest.LogCaptureFixture, order: str
) -> None:
    orders, others = Service("orders", announces=["OrderShiped", "OrderSeen"]), Service("others")

    @orders.on("OrderPlaced", failed="OrderFaild")
    async def place(event: Any, work: Any) -> None:
        if event.data["order"].startswith("bad"):
            raise ValueError("bad order")
        work.publish("OrderSeen", event.data)
        work.publish("OrderShiped", event.data)

    others.on("OrderFailed")(place)
    others.on("OrderShipped")(place)
    await site.publish("OrderPlaced", f"{order}-1", f"{order}-2")
    await site.run(orders, others)
    (fact,) = site.facts.of(EventsUnrouted)
    LogObserver().tell(fact)
    typo, meant = {
        "bad": ("OrderFaild", "OrderFailed"),
        "good": ("OrderShiped", "OrderShipped"),
    }[order]
    assert caplog.messages[-1] == (
        f"No service takes {typo}, which orders publishes: its events are dropped, because "
        "failed= or announces= says that it needs no consumer. "
        f"Did you mean {meant}, which a service takes?"
    )
    assert await site.unrouted() == {}


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


async def test_publishing_from_outside_keeps_the_event_and_says_where(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{tmp_path}/headway.db"
    async with connect(url) as headway:
        await headway.declare(shipping_service([]))
        for number in range(3):
            assert await headway.publish("OrderShiped", {"order": str(number)}) == 0
        assert await headway.publish_all([("OrderShipped", {}), ("OrderShiped", {})]) == 1
        (listed,) = await headway.unrouted.list()
    assert (listed.event_type, listed.events, listed.meant) == ("OrderShiped", 4, "OrderShipped")
    (said,) = caplog.messages
    assert said.startswith(
        "No service takes OrderShiped, which this program publishes: its events are kept as "
        f"unrouted on sqlite:///{tmp_path}/headway.db until one does. Did you mean OrderShipped?"
    )


@pytest.mark.parametrize("announces", ["OrderShipped", ["no type!"], [1]])
def test_announces_of_the_wrong_shape_is_refused(announces: Any) -> None:
    with pytest.raises(ConfigurationError, match="announces"):
        Service("orders", announces=announces)


@pytest.mark.parametrize(
    ("published", "meant"),
    [
        ("OrderPlacd", "OrderPlaced"),
        ("order_placed", "OrderPlaced"),
        ("ORDERPLACED", "OrderPlaced"),
        ("OrdersPlaced", "OrderPlaced"),
        ("OrderPlaced", ""),
        ("OrderCancelled", ""),
        ("InvoicePaid", ""),
    ],
)
def test_only_close_names_are_meant(published: str, meant: str) -> None:
    assert nearest_type(published, ["OrderPlaced", "OrderPaid", "InvoiceSent"]) == meant
