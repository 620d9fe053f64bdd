"""Engines of two systems: the memory engine's bus, with a store of another kind or with none."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec.structs import replace as replaced

from headway.clock import Clock
from headway.testing.chance import Fixed
from headway.testing.clock import VirtualClock
from headway.testing.conformance.harness import Capability, EngineHarness
from headway.testing.engines import (
    SqliteStore,
    State,
    StoreParts,
    memory_engine,
    sqlite_store,
    with_store,
    without_store,
)
from headway.testing.ports import Delivery, Done, DoneRecord, Engine, Travel, Unit


class Uncounted:
    """Places of a bus that finds only what waits in it."""

    def __init__(self, places: Any) -> None:
        self._places = places

    async def where(self, operations: Sequence[str]) -> Mapping[str, Sequence[str]]:
        found = await self._places.where(operations)
        return {operation: places for operation, places in found.items() if places}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._places, name)


def bus_parts(state: State, clock: Clock) -> Engine:
    """Give the memory engine, of whose parts only those of a bus are meant."""
    engine = memory_engine(clock, Fixed(), state)
    places: Any = Uncounted(engine.places)
    return replace(engine, places=places)


def unsent(record: DoneRecord) -> Unit:
    """Give the unit whose commit leaves such a record: nothing of it has been sent yet."""
    travel = Travel(operation=record.operation)
    delivery = Delivery(queue=record.queue, body=b"", travel=travel, receipt=None)
    return Unit(
        delivery=delivery,
        then=Done(),
        record=replaced(record, outgoing=(), letter=None, failed_queue=""),
        outgoing=record.outgoing,
        letter=record.letter,
        failed_queue=record.failed_queue,
    )


class StoreHarness(EngineHarness):
    """The bus in memory, the store in a file; a test may put something around either."""

    lacks = frozenset({Capability.ONE_COMMIT, Capability.ACCEPTED, Capability.BOOKS})

    def __init__(self, path: Path, state: State | None = None) -> None:
        self.clock: Clock = VirtualClock()
        self.state = state or State()
        self.path = path
        self.stores: list[SqliteStore] = []
        self.wrap_parts: Callable[[Engine], Engine] = lambda parts: parts
        self.wrap_store: Callable[[SqliteStore], StoreParts] = lambda store: store

    async def open_engine(self) -> Engine:
        store = sqlite_store(self.path, self.clock, synchronous="off")
        self.stores.append(store)
        return with_store(
            self.wrap_parts(bus_parts(self.state, self.clock)), self.wrap_store(store)
        )

    async def kill(self, engine: Engine) -> None:
        self.state.crash(getattr(engine.bus, "inner", engine.bus))

    async def keep_record(self, record: DoneRecord) -> None:
        store = sqlite_store(self.path, self.clock, synchronous="off")
        await store.commit([unsent(record)])
        await store.close()

    def write_row(self, session: Any, text: str) -> None:
        session.execute("create table if not exists own (text)")
        session.execute("insert into own values (?)", (text,))

    async def rows(self) -> list[str]:
        with closing(sqlite3.connect(self.path)) as connection:
            there = connection.execute("select 1 from sqlite_master where name = 'own'").fetchone()
            query = "select text from own order by rowid"
            return [text for (text,) in connection.execute(query)] if there else []

    async def close(self) -> None:
        for store in self.stores:
            await store.close()


class BusHarness(EngineHarness):
    """The bus in memory, and nothing else."""

    lacks = frozenset(
        {
            Capability.ONE_COMMIT,
            Capability.ACCEPTED,
            Capability.BOOKS,
            Capability.RECORDS,
            Capability.UNSENT_RECORDS,
            Capability.OWN_TABLES,
        }
    )

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.state = State()

    async def open_engine(self) -> Engine:
        return without_store(bus_parts(self.state, self.clock))

    async def kill(self, engine: Engine) -> None:
        self.state.crash(engine.bus)
