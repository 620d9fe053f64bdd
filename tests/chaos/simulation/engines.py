"""The two engines under test: one commit for everything, and a store with a bus beside it."""

from dataclasses import dataclass, replace
from typing import Any

from headway.runtime.decided_letters import DecidedLetters
from headway.runtime.finishing import StoreThenBus
from headway.testing.engines import MemoryStore
from headway.testing.ports import Delivery, Engine
from tests.chaos.simulation.ports import Faulty, FaultyBus, FaultyLetters, FaultyStore, Fenced
from tests.chaos.simulation.process import Process
from tests.chaos.simulation.state import WatchedState


@dataclass(frozen=True, slots=True)
class Parts:
    """What an engine is built of; a planted bug replaces one of them."""

    state: type[WatchedState] = WatchedState
    bus: type[FaultyBus] = FaultyBus
    finisher: type[StoreThenBus] = StoreThenBus
    memory: type[MemoryStore] = MemoryStore
    store: type[FaultyStore] = FaultyStore

    def engine(self, process: Process, seen: list[Delivery], *, one_commit: bool) -> Engine:
        """Build the engine of one process."""
        store = self.memory(process.disks.state)
        bus: Any = self.bus(process, seen)
        letters: Any = FaultyLetters(process, process.engine.letters)
        records: Any = Faulty(process, store.records)
        documents: Any = Faulty(process, store.documents, step="fetch")
        finisher: Any = Faulty(process, Fenced(process))
        if not one_commit:
            decisions: Any = Faulty(process, store)
            letters = DecidedLetters(letters, decisions)
            finisher = self.finisher(self.store(process, store), records, bus, letters)
        return replace(
            process.engine,
            bus=bus,
            finisher=finisher,
            letters=letters,
            records=records,
            documents=documents,
            sweeping=None,
        )
