"""An engine: the ports that belong together."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from headway.ports.bus import Bus, Queue
from headway.ports.commit import Finisher
from headway.ports.documents import Documents
from headway.ports.letters import Letters
from headway.ports.places import Places
from headway.ports.records import DoneRecords


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What a worker runs on. Where one adapter gives all of it, one commit holds all of it."""

    bus: Bus
    finisher: Finisher
    letters: Letters
    records: DoneRecords
    documents: Documents
    places: Places
    has_store: bool = True
    """False: nothing remembers what was done. It is at least once, and nothing can be written."""
    open_store: Callable[[], Awaitable[None]] | None = None
    """Makes sure of a store that the bus does not know of, before anything is taken."""
    close_store: Callable[[], Awaitable[None]] | None = None
    """Lets go of a store that the bus does not know of."""

    async def open(self, queues: Sequence[Queue]) -> None:
        """Make sure of the store, and declare queues; safe to repeat."""
        if self.open_store is not None:
            await self.open_store()
        await self.bus.open(queues)

    async def close(self) -> None:
        """Hand back what is still taken and let go of everything."""
        try:
            await self.bus.close()
        finally:
            if self.close_store is not None:
                await self.close_store()
