"""Stores on one database of a real MongoDB, and units for them that need no bus."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pymongo import AsyncMongoClient

from headway.clock import SystemClock
from headway.testing.conformance.examples import ORDERS, unit
from headway.testing.engines import MongoStore, mongodb_store
from headway.testing.ports import (
    FIRST_GENERATION,
    Delivery,
    Document,
    Engine,
    Finish,
    InsertNew,
    Outcome,
    Sweeping,
    Travel,
    Unit,
    Write,
)

CLOCK = SystemClock()


class Site:
    """A database; stores come and go on it like worker processes."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(url, tz_aware=True)
        self.database = self.client.get_default_database()
        self._stores: list[MongoStore] = []

    def store(self, url: str = "") -> MongoStore:
        store = mongodb_store(url or self.url, CLOCK)
        self._stores.append(store)
        return store

    async def raw(self, collection: str, one: Any) -> dict[str, Any]:
        """Give a document as other clients see it."""
        found = await self.database[collection].find_one({"_id": one})
        assert found is not None
        return found

    async def count(self, collection: str) -> int:
        return await self.database[collection].count_documents({})

    @asynccontextmanager
    async def failing(self, *commands: str, **how: Any) -> AsyncIterator[None]:
        """Let the server fail commands; `how` is the data of the fail point, and `times`."""
        times = how.pop("times", 1)
        point = {
            "configureFailPoint": "failCommand",
            "mode": {"times": times},
            "data": {"failCommands": list(commands), **how},
        }
        await self.client.admin.command(point)
        try:
            yield
        finally:
            await self.client.admin.command({**point, "mode": "off", "data": {}})

    async def close(self) -> None:
        for store in self._stores:
            await store.close()
        await self.client.close()


def delivery(operation: str, generation: str = FIRST_GENERATION) -> Delivery:
    travel = Travel(operation=operation, generation=generation)
    return Delivery(queue=ORDERS.name, body=b"{}", travel=travel, receipt=None)


def doing(operation: str, *writes: Write, **fields: Any) -> Unit:
    """Make the unit of an event that is done with these writes."""
    return unit(delivery(operation), CLOCK.now(), writes=writes, **fields)


async def inserted(store: MongoStore, collection: str, *documents: Document) -> None:
    """Insert documents as a handler does."""
    writes = [InsertNew(collection, document) for document in documents]
    (finish,) = await store.commit([doing(f"inserting {collection} {documents!r:.80}", *writes)])
    assert finish.outcome is Outcome.COMMITTED, finish.error


def outcomes(finishes: Sequence[Finish]) -> list[str]:
    return [finish.outcome.value for finish in finishes]


def sweeping(store: MongoStore | Engine) -> Sweeping:
    assert store.sweeping is not None
    return store.sweeping
