"""Services on a bus with PostgreSQL beside it: documents, leases, tables of their own."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from headway import Event, Lifecycle, Service, Work
from headway.clock import SystemClock
from headway.testing.chance import Seeded
from headway.testing.conformance.examples import QUEUES, opened, wrote
from headway.testing.engines import Publisher, Worker
from headway.testing.facts import Recorder
from headway.testing.ports import Engine, InsertNew
from tests.engines.pairs.postgres_harness import PostgresHarness, connected

pytestmark = pytest.mark.server("postgresql")
LEASED = Lifecycle("orders", lease=timedelta(seconds=1))


@pytest.fixture
async def harness(postgres_database: str) -> AsyncIterator[PostgresHarness]:
    harness = PostgresHarness(postgres_database)
    harness.clock = SystemClock()
    yield harness
    await harness.close()


class Shop:
    """Orders, each a document, whose work takes longer than their lease."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.service = Service("orders", lifecycles=[LEASED])

        @self.service.on("BasketFilled", documents=("orders", "ids"))
        async def pack(event: Event, work: Work) -> None:
            (one,) = event.data["ids"]
            self.calls.append(one)
            if one == "slow":
                await asyncio.sleep(1.6)

            async def book(connection: Any) -> None:
                async with connection.transaction():
                    await connection.execute("insert into books values ($1)", one)

            work.transaction(book)
            work.documents("log").add({"order": one})

    async def run(self, engine: Engine, harness: PostgresHarness) -> None:
        """Let a worker run until nothing waits."""
        worker = Worker(
            [self.service],
            engine,
            clock=harness.clock,
            chance=Seeded(),
            observer=Recorder(),
            beats_in_thread=True,
        )
        running = asyncio.create_task(worker.run())
        while (await engine.places.depths()).waiting:
            await harness.pass_time(timedelta(milliseconds=10))
        worker.stop()
        await running


async def test_work_takes_effect_once_while_its_connections_are_ended(
    harness: PostgresHarness,
) -> None:
    shop = Shop()
    ids = ["slow", *(f"{n}" for n in range(10))]
    desk = await opened(harness, [*QUEUES, *shop.service.queues()])
    await harness.stores[0].open()
    async with connected(harness.url) as connection:
        await connection.execute("create table books (text text)")
        await wrote(harness, desk, *(InsertNew("orders", {"_id": one}) for one in ids))
        publisher = Publisher(desk.bus, harness.clock, Seeded())
        for one in ids:
            await publisher.publish("BasketFilled", {"ids": [one]}, event_id=f"event {one}")
        running = asyncio.create_task(shop.run(await harness.open_engine(), harness))
        while not running.done():
            await asyncio.sleep(0.3)
            await connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where datname = current_database() and application_name = 'headway'"
            )
        await running
        rows = await connection.fetch("select text from books")
    assert sorted(row[0] for row in rows) == sorted(ids)
    log = await desk.documents.find("log", {}, 100)
    assert sorted(each["order"] for each in log) == sorted(ids)
    assert shop.calls.count("slow") == 1
    for document in await desk.documents.find("orders", {}, 100):
        assert (document["status"], document["leaseToken"]) == ("processed", None)
        assert document["attemptCount"] == 1
