"""Orders are published before shipping exists, on RabbitMQ with every store and without one."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from headway import Event, Service, Work
from headway.clock import CHANCE, CLOCK
from headway.operations import verify
from headway.runtime.overview import Verdict
from headway.testing.engines import Publisher, Worker, open_engine
from headway.testing.facts import Recorder
from headway.testing.ports import Engine

pytestmark = pytest.mark.usefixtures("coarse_delays")

NUMBERS = list(range(40))
MOMENT = timedelta(milliseconds=50)
ROOT = Path(__file__).parents[3]


class Shop:
    """Orders, of which shipping is told; both count what they did, once for each event."""

    def __init__(self, *, has_store: bool) -> None:
        self.shipped: Counter[int] = Counter()
        self.orders = Service("orders")
        self.shipping = Service("shipping")

        @self.orders.on("OrderPlaced")
        async def place(event: Event, work: Work) -> None:
            work.publish("OrderReady", event.data)

        @self.shipping.on("OrderReady")
        async def ship(event: Event, work: Work) -> None:
            self.shipped[event.data["number"]] += 1
            if has_store:
                work.documents("parcels").add({"number": event.data["number"]})
                work.documents("totals").increment("all", "parcels")


@pytest.fixture(params=["none", "sqlite", "postgresql", "mongodb"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str | None:
    """Name the store in the environment, as a user does."""
    databases: dict[str, Callable[[], str]] = {
        "sqlite": lambda: f"sqlite:///{tmp_path / 'store.db'}",
        "postgresql": lambda: str(request.getfixturevalue("postgres_database")),
        "mongodb": lambda: str(request.getfixturevalue("mongodb_database")),
    }
    if request.param == "none":
        monkeypatch.delenv("HEADWAY_STORE", raising=False)
        return None
    url = databases[request.param]()
    monkeypatch.setenv("HEADWAY_STORE", url)
    return url


@asynccontextmanager
async def running(url: str, *services: Service) -> AsyncIterator[Engine]:
    """Run a worker; give an engine beside it, to look."""
    engine = open_engine(url)
    worker = Worker(
        services,
        open_engine(url, for_worker=True),
        clock=CLOCK,
        chance=CHANCE,
        observer=Recorder(),
    )
    working = asyncio.create_task(worker.run())
    try:
        yield engine
    finally:
        worker.stop()
        await working
        await engine.close()


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not is_so():
            await CLOCK.wait(MOMENT)


async def parcels(engine: Engine) -> Counter[int]:
    found = await engine.documents.find("parcels", {}, 1_000)
    return Counter(each["number"] for each in found)


async def published(url: str, event_type: str) -> None:
    engine = open_engine(url, store=False)
    publisher = Publisher(engine.bus, CLOCK, CHANCE)
    for number in NUMBERS:
        name = f"{event_type}-{number}"
        await publisher.publish(event_type, {"number": number}, event_id=name)
    await engine.close()


@pytest.mark.timeout(120)
async def test_orders_of_a_handler_arrive_once_when_shipping_starts(
    rabbitmq_vhost: str, store: str | None
) -> None:
    shop = Shop(has_store=store is not None)
    async with running(rabbitmq_vhost, shop.orders) as engine:
        await published(rabbitmq_vhost, "OrderPlaced")
        async with asyncio.timeout(30):
            while await engine.unrouted.counts() != {"OrderReady": len(NUMBERS)}:
                await CLOCK.wait(MOMENT)
        assert (await engine.places.depths()).unrouted == len(NUMBERS)
    async with running(rabbitmq_vhost, shop.shipping) as engine:
        await until(lambda: len(shop.shipped) == len(NUMBERS))
        await engine.bus.open(shop.shipping.queues())  # starts again
        assert await engine.unrouted.counts() == {}
    assert shop.shipped == dict.fromkeys(NUMBERS, 1)
    if store is not None:
        engine = open_engine(rabbitmq_vhost)
        assert await parcels(engine) == dict.fromkeys(NUMBERS, 1)
        report = await verify(engine.places, against=[f"OrderPlaced-{n}" for n in NUMBERS])
        assert report.verdict is Verdict.OK
        await engine.close()


@pytest.mark.timeout(120)
async def test_orders_from_outside_arrive_once_when_shipping_starts(
    rabbitmq_vhost: str, store: str | None
) -> None:
    shop = Shop(has_store=store is not None)
    await published(rabbitmq_vhost, "OrderReady")
    async with running(rabbitmq_vhost, shop.shipping):
        await until(lambda: len(shop.shipped) == len(NUMBERS))
    assert shop.shipped == dict.fromkeys(NUMBERS, 1)


@pytest.mark.timeout(120)
async def test_shipping_killed_between_publish_and_ack_ships_each_order_once(
    rabbitmq_vhost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_STORE", f"sqlite:///{tmp_path / 'store.db'}")
    shop = Shop(has_store=True)
    await published(rabbitmq_vhost, "OrderReady")
    (queue,) = shop.shipping.queues()
    router = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.engines.rabbitmq.killed_router"),
        *(rabbitmq_vhost, queue.name, "OrderReady", "0"),
        cwd=ROOT,
    )
    assert await router.wait() == -9
    async with running(rabbitmq_vhost, shop.shipping) as engine:
        await until(lambda: len(shop.shipped) == len(NUMBERS))
        async with asyncio.timeout(30):
            while (depths := await engine.places.depths()).unrouted or depths.waiting:
                await CLOCK.wait(MOMENT)
    engine = open_engine(rabbitmq_vhost)
    assert await parcels(engine) == dict.fromkeys(NUMBERS, 1)
    assert (await engine.documents.fetch("totals", ["all"]))["all"]["parcels"] == len(NUMBERS)
    await engine.close()
