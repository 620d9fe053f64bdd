"""The two engines under test: one commit for everything, and a store with a bus beside it."""

from dataclasses import dataclass

from headway.adapters.memory.engine import MemoryFinisher
from headway.adapters.memory.history import MemoryHistory
from headway.adapters.memory.letters import MemoryLetters
from headway.adapters.memory.places import MemoryPlaces
from headway.adapters.memory.unrouted import MemoryUnrouted
from headway.runtime.decided_letters import DecidedLetters
from headway.runtime.finishing import Store, StoreThenBus
from headway.testing.engines import MemoryStore
from headway.testing.ports import Delivery, Engine, Letters
from tests.chaos.simulation.ports import (
    FaultyBus,
    FaultyDecisions,
    FaultyDocuments,
    FaultyFinisher,
    FaultyLetters,
    FaultyRecords,
    FaultyStore,
)
from tests.chaos.simulation.process import Process
from tests.chaos.simulation.state import WatchedState


@dataclass(frozen=True, slots=True)
class Parts:
    """What an engine is built of; a planted bug replaces one of them."""

    state: type[WatchedState] = WatchedState
    bus: type[FaultyBus] = FaultyBus
    finisher: type[StoreThenBus] = StoreThenBus
    memory: type[MemoryStore] = MemoryStore

    def store(self, process: Process, store: MemoryStore) -> Store:
        return FaultyStore(process, store)

    def engine(self, process: Process, seen: list[Delivery], *, one_commit: bool) -> Engine:
        """Build the engine of one process."""
        state = process.disks.state
        store = self.memory(state)
        bus = self.bus(process, seen)
        letters: Letters = FaultyLetters(process, MemoryLetters(state, process))
        if not one_commit:
            letters = DecidedLetters(letters, FaultyDecisions(process, store))
        records = FaultyRecords(process, store.records)
        inner = MemoryFinisher(state, process.bus, process)
        return Engine(
            bus=bus,
            finisher=FaultyFinisher(process, inner)
            if one_commit
            else self.finisher(self.store(process, store), records, bus, letters),
            letters=letters,
            records=records,
            documents=FaultyDocuments(process, store.documents),
            places=MemoryPlaces(state, process.disks.clock),
            unrouted=MemoryUnrouted(state, process.disks.clock),
            history=MemoryHistory(state.notes),
        )
