"""A store that fails for one document, or one key: that event ends, and no other waits for it."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from headway import Event, RetryPolicy, Service, Work
from headway.clock import SystemClock
from headway.retrying import Exponential
from headway.testing.chance import Seeded
from headway.testing.conformance.examples import QUEUES, opened, wrote
from headway.testing.conformance.harness import EngineHarness
from headway.testing.engines import Publisher, Worker
from headway.testing.facts import Recorder
from headway.testing.ports import Engine, InsertNew
from tests.engines.pairs.harnesses import StoreHarness
from tests.engines.pairs.mongodb_harness import MongoHarness
from tests.engines.pairs.postgres_harness import PostgresHarness, connected

IDS = [f"o{n}" for n in range(20)]
_A_MOMENT = timedelta(milliseconds=50)
SOON = RetryPolicy(max_attempts=2, backoff=Exponential(base=_A_MOMENT, cap=_A_MOMENT))
Break = Callable[[], Awaitable[None]]

_OF_SQLITE = """
create trigger broken_{0} before {0} on headway_documents when new.id = 'bad'
begin select json('no JSON'); end
"""
_OF_POSTGRESQL = """
create function broken() returns trigger language plpgsql as $$ begin
    if new.id = 'bad' then raise exception 'unexpected' using errcode = 'XX000'; end if;
    return new;
end $$;
create trigger broken before insert or update on headway_documents
    for each row execute function broken();
"""


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.server("postgresql")),
        pytest.param("mongodb", marks=pytest.mark.server("mongodb")),
    ]
)
async def broken(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[tuple[EngineHarness, Break]]:
    """A store, and what makes it fail for the document `bad`."""
    harness: Any
    if request.param == "sqlite":
        harness = StoreHarness(tmp_path / "store.db")

        async def break_it() -> None:
            with closing(sqlite3.connect(harness.path)) as connection:
                for change in ("insert", "update"):
                    connection.execute(_OF_SQLITE.format(change))

    elif request.param == "postgresql":
        harness = PostgresHarness(request.getfixturevalue("postgres_database"))

        async def break_it() -> None:
            async with connected(harness.url) as connection:
                await connection.execute(_OF_POSTGRESQL)

    else:
        harness = MongoHarness(request.getfixturevalue("mongodb_database"))

        async def break_it() -> None:
            others = {"$or": [{"_id": {"$ne": "bad"}}, {"never": True}]}
            await harness.database.command("collMod", "orders", validator=others)

    harness.clock = SystemClock()
    yield harness, break_it
    await harness.close()


async def run(engine: Engine, service: Service, harness: EngineHarness) -> None:
    worker = Worker([service], engine, clock=harness.clock, chance=Seeded(), observer=Recorder())
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(10):
        while (await engine.places.depths()).waiting:
            await harness.clock.wait(timedelta(milliseconds=20))
    worker.stop()
    await running


async def published(harness: EngineHarness, service: Service) -> None:
    engine = await opened(harness, [*QUEUES, *service.queues()])
    await wrote(harness, engine, *(InsertNew("orders", {"_id": one}) for one in (*IDS, "bad")))
    publisher = Publisher(engine.bus, harness.clock, Seeded())
    for one in (*IDS[:10], "bad", *IDS[10:]):
        await publisher.publish("BasketFilled", {"order": one}, event_id=f"event {one}")


async def test_a_store_that_fails_for_one_document_ends_one_event(
    broken: tuple[EngineHarness, Break],
) -> None:
    harness, break_it = broken
    orders = Service("orders", transient=SOON)

    @orders.on("BasketFilled", documents=("orders", "order"))
    async def place(event: Event, work: Work) -> None:
        work.documents("placed").add({"order": event.data["order"]})

    await published(harness, orders)
    await break_it()
    await run(await harness.open_engine(), orders, harness)
    reader = await harness.open_engine()
    placed = [each["order"] for each in await reader.documents.find("placed", {}, 100)]
    assert sorted(placed) == sorted(IDS)
    (letter,) = await reader.letters.read("orders.failed", 10)
    assert letter.idempotency_key == "orders-event bad"


async def test_a_key_that_no_index_takes_stops_no_other_event(
    broken: tuple[EngineHarness, Break],
) -> None:
    harness, _ = broken
    orders = Service("orders", transient=SOON)
    endless = "".join(sha256(f"{n}".encode()).hexdigest() for n in range(1000))

    def key(event: Event) -> str:
        return endless if event.data["order"] == "bad" else str(event.data["order"])

    @orders.on("BasketFilled", dedup=key)
    async def place(event: Event, work: Work) -> None:
        work.documents("placed").add({"order": event.data["order"]})

    await published(harness, orders)
    await run(await harness.open_engine(), orders, harness)
    reader = await harness.open_engine()
    placed = {each["order"] for each in await reader.documents.find("placed", {}, 100)}
    letters = await reader.letters.read("orders.failed", 10)
    assert placed >= set(IDS)
    assert len(placed) + len(letters) == len(IDS) + 1
