"""Engines of two systems: the memory engine's bus, with a store of another kind or with none."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.adapters.memory.bus import MemoryBus
from headway.adapters.memory.history import MemoryHistory
from headway.adapters.memory.letters import MemoryLetters
from headway.adapters.memory.places import MemoryPlaces
from headway.adapters.memory.unrouted import MemoryUnrouted
from headway.adapters.sqlite.connection import Location
from headway.adapters.sqlite.records import row_of, write
from headway.adapters.sqlite.schema import open_file
from headway.adapters.sqlite.timeline import Moment
from headway.clock import Clock
from headway.testing.chance import Fixed
from headway.testing.clock import VirtualClock
from headway.testing.conformance.harness import Capability, EngineHarness
from headway.testing.engines import (
    SqliteStore,
    State,
    StoreParts,
    sqlite_store,
    with_store,
    without_store,
)
from headway.testing.ports import Bus, BusPlaces, DoneRecord, Engine, History, Letters, Unrouted


@dataclass(frozen=True)
class Parts:
    """A bus, with letters and places that know nothing of records."""

    bus: Bus
    letters: Letters
    places: BusPlaces
    unrouted: Unrouted
    history: History


class Uncounted(MemoryPlaces):
    """Places of a bus that finds only what waits in it."""

    async def where(self, operations: Sequence[str]) -> Mapping[str, Sequence[str]]:
        found = await super().where(operations)
        return {operation: places for operation, places in found.items() if places}


def bus_parts(state: State, clock: Clock) -> Parts:
    return Parts(
        MemoryBus(state, clock, Fixed()),
        MemoryLetters(state, clock),
        Uncounted(state, clock),
        MemoryUnrouted(state, clock),
        MemoryHistory(state.notes),
    )


class StoreHarness(EngineHarness):
    """The bus in memory, the store in a file; a test may put something around either."""

    lacks = frozenset({Capability.ONE_COMMIT, Capability.ACCEPTED, Capability.BOOKS})

    def __init__(self, path: Path, state: State | None = None) -> None:
        self.clock: Clock = VirtualClock()
        self.state = state or State()
        self.path = path
        self.stores: list[SqliteStore] = []
        self.wrap_parts: Callable[[Parts], Parts] = lambda parts: parts
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
        with closing(open_file(Location(path=self.path))) as connection:
            assert write(connection, [row_of(record, "0", Moment(self.clock.now()))])

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
