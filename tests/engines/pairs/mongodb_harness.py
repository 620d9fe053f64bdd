"""The bus in memory, the store in MongoDB."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from pymongo import AsyncMongoClient

from headway.clock import Clock, SystemClock
from headway.testing.conformance.harness import Capability, EngineHarness
from headway.testing.engines import MongoStore, State, mongodb_store, with_store
from headway.testing.ports import DoneRecord, Engine
from tests.engines.pairs.harnesses import bus_parts


class MongoHarness(EngineHarness):
    """Every engine has a client of its own, as processes have."""

    moment = timedelta(milliseconds=50)
    lacks = frozenset({Capability.ONE_COMMIT, Capability.ACCEPTED, Capability.BOOKS})

    def __init__(self, url: str) -> None:
        self.clock: Clock = SystemClock()
        self.state = State()
        self.url = url
        self.stores: list[MongoStore] = []
        self.client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(url, tz_aware=True)
        self.database = self.client.get_default_database()

    def open_store(self, url: str = "") -> MongoStore:
        store = mongodb_store(url or self.url, self.clock)
        self.stores.append(store)
        return store

    async def open_engine(self) -> Engine:
        return with_store(bus_parts(self.state, self.clock), self.open_store())

    async def kill(self, engine: Engine) -> None:
        self.state.crash(engine.bus)

    async def set_clock(self, step: timedelta) -> None:
        """Set the clock of the server: its times move away from those that it stored."""
        before = {"$subtract": ["$until", step // timedelta(milliseconds=1)]}
        await self.database["headway_leases"].update_many({}, [{"$set": {"until": before}}])

    async def keep_record(self, record: DoneRecord) -> None:
        await self.open_store().records.keep(record, "0")

    async def write_row(self, session: Any, text: str) -> None:
        await session.database["own"].insert_one({"text": text}, session=session.session)

    async def rows(self) -> list[str]:
        return [row["text"] async for row in self.database["own"].find().sort("_id", 1)]

    @asynccontextmanager
    async def locking(self, collection: str, one: str) -> AsyncIterator[None]:
        async with self.client.start_session() as session, await session.start_transaction():
            changed = {"$set": {"locked": True}}
            await self.database[collection].update_one({"_id": one}, changed, session=session)
            yield
            await session.abort_transaction()

    async def close(self) -> None:
        for store in self.stores:
            await store.close()
        # Emptied, and not dropped: to make collections and indexes takes longer than most tests.
        for name in await self.database.list_collection_names():
            await self.database[name].delete_many({})
        await self.client.close()
