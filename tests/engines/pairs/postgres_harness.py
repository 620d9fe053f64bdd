"""The memory engine's bus with PostgreSQL as its store, emptied before each test."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg

from headway.clock import Clock
from headway.testing.clock import VirtualClock
from headway.testing.conformance.harness import Capability, EngineHarness
from headway.testing.engines import PostgresStore, State, postgres_store, with_store
from headway.testing.ports import DoneRecord, Engine
from tests.engines.pairs.harnesses import bus_parts, unsent


class PostgresHarness(EngineHarness):
    """Time is virtual for all but the server, whose leases go by its own clock."""

    lacks = frozenset({Capability.ONE_COMMIT, Capability.ACCEPTED, Capability.BOOKS})
    moment = timedelta(milliseconds=100)

    def __init__(self, url: str, *, store_url: str | None = None) -> None:
        """Take the URL of the database, and the way of the store to it if that is another."""
        self.clock: Clock = VirtualClock()
        self.state = State()
        self.url = url
        self._store_url = store_url or url
        self.stores: list[PostgresStore] = []
        self.wall_clock_step = timedelta()

    def store(self) -> PostgresStore:
        store = postgres_store(self._store_url, self.clock)
        self.stores.append(store)
        return store

    async def open_engine(self) -> Engine:
        return with_store(bus_parts(self.state, self.clock), self.store())

    async def kill(self, engine: Engine) -> None:
        self.state.crash(getattr(engine.bus, "inner", engine.bus))

    async def pass_time(self, delay: timedelta) -> None:
        await asyncio.sleep(delay.total_seconds())
        await self.clock.wait(delay)

    async def set_clock(self, step: timedelta) -> None:
        """Set the clock of the server."""
        self.wall_clock_step += step
        async with connected(self.url) as connection:
            await connection.execute(_SERVER_TIME.format(self.wall_clock_step.total_seconds()))

    async def keep_record(self, record: DoneRecord) -> None:
        store = self.store()
        await store.open()
        await store.commit([unsent(record)])

    def write_row(self, session: Any, text: str) -> Awaitable[object]:
        async def write_it() -> None:
            await session.execute("create table if not exists own (n serial, text text)")
            await session.execute("insert into own (text) values ($1)", text)

        return write_it()

    async def rows(self) -> list[str]:
        async with connected(self.url) as connection:
            if await connection.fetchval("select to_regclass('own')") is None:
                return []
            return [row[0] for row in await connection.fetch("select text from own order by n")]

    @asynccontextmanager
    async def locking(self, collection: str, one: str) -> AsyncIterator[None]:
        async with connected(self.url) as connection:
            await connection.execute("begin")
            await connection.execute(
                "update headway_documents set body = body || '{\"locked\": true}' "
                "where collection = $1 and id = $2",
                collection,
                one,
            )
            yield
            await connection.execute("rollback")

    async def close(self) -> None:
        for store in self.stores:
            await store.close()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    """Give a connection as a person or another program has it."""
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


_SERVER_TIME = """
create or replace function headway_now() returns timestamptz language sql volatile parallel safe
as 'select clock_timestamp() + interval ''{} seconds'''
"""
_EMPTY = """
delete from headway_documents; delete from headway_done; delete from headway_leases;
delete from headway_totals; delete from headway_notes; drop table if exists own;
update headway_forgotten set done = 0, purged = 0
"""
_MANY_INDEXES = 20


async def emptied(url: str) -> None:
    """Make a store as good as new: quicker than a new one, which has dozens of files."""
    async with connected(url) as connection:
        await connection.execute(_EMPTY)
        await connection.execute(_SERVER_TIME.format(0))
        views = await connection.fetch(
            "select indexname from pg_indexes where schemaname = current_schema() "
            "and starts_with(indexname, 'headway_view_')"
        )
        if len(views) > _MANY_INDEXES:
            await connection.execute(f"drop index {', '.join(row[0] for row in views)}")


async def made_ready(url: str) -> None:
    """Have the tables made."""
    store = postgres_store(url, VirtualClock())
    await store.open()
    await store.close()
