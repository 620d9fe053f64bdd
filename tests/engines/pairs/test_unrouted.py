"""Orders are published before shipping exists, on RabbitMQ with every store and without one."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from headway import Event, Service, Work
from headway.clock import CHANCE, CLOCK
from headway.operations import verify
from headway.testing.engines import Publisher, Worker, open_engine
from headway.testing.facts import Recorder
from headway.testing.ports import Engine

NUMBERS = list(range(40))
MOMENT = timedelta(milliseconds=50)


@pytest.fixture(params=["none", "sqlite", "postgresql", "mongodb"])
def has_store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> bool:
    """Name the store in the environment, as a user does."""
    databases: dict[str, Callable[[], str]] = {
        "none": lambda: "",
        "sqlite": lambda: f"sqlite:///{tmp_path / 'store.db'}",
        "postgresql": lambda: str(request.getfixturevalue("postgres_database")),
        "mongodb": lambda: str(request.getfixturevalue("mongodb_database")),
    }
    monkeypatch.delenv("HEADWAY_STORE", raising=False)
    if url := databases[request.param]():
        monkeypatch.setenv("HEADWAY_STORE", url)
    return bool(url)


@asynccontextmanager
async def running(url: str, service: Service) -> AsyncIterator[Engine]:
    """Run a worker; give an engine beside it, to look."""
    engine, its_own = open_engine(url), open_engine(url, for_worker=True)
    worker = Worker([service], its_own, clock=CLOCK, chance=CHANCE, observer=Recorder())
    working = asyncio.create_task(worker.run())
    try:
        async with asyncio.timeout(60):
            yield engine
    finally:
        worker.stop()
        await working
        await engine.close()


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("coarse_delays")
async def test_orders_of_a_handler_arrive_once_when_shipping_starts(
    rabbitmq_vhost: str,
    has_store: bool,  # noqa: FBT001 (a fixture)
) -> None:
    orders, shipping = Service("orders"), Service("shipping")
    shipped: Counter[int] = Counter()

    @orders.on("OrderPlaced")
    async def place(event: Event, work: Work) -> None:
        work.publish("OrderReady", event.data)

    @shipping.on("OrderReady")
    async def ship(event: Event, work: Work) -> None:
        shipped[event.data["number"]] += 1
        if has_store:
            work.documents("parcels").add({"number": event.data["number"]})

    async with running(rabbitmq_vhost, orders) as engine:
        publisher = Publisher(engine.bus, CLOCK, CHANCE)
        for number in NUMBERS:
            await publisher.publish("OrderPlaced", {"number": number}, event_id=f"order-{number}")
        while await engine.unrouted.counts() != {"OrderReady": len(NUMBERS)}:
            await CLOCK.wait(MOMENT)
        assert (await engine.places.depths()).unrouted == len(NUMBERS)
    async with running(rabbitmq_vhost, shipping) as engine:
        while len(shipped) < len(NUMBERS) or (await engine.places.depths()).waiting:
            await CLOCK.wait(MOMENT)
        await engine.bus.open(shipping.queues())  # starts again
        assert await engine.unrouted.counts() == {}
        assert shipped == dict.fromkeys(NUMBERS, 1)
        if has_store:
            found = await engine.documents.find("parcels", {}, 1_000)
            assert sorted(each["number"] for each in found) == NUMBERS
            report = await verify(engine.places, against=[f"order-{n}" for n in NUMBERS])
            assert report.verdict == "ok"
