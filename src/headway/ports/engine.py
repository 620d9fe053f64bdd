"""An engine: the ports that belong together."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from headway.ports.bus import Bus, Queue
from headway.ports.candidates import Candidates
from headway.ports.commit import Finisher
from headway.ports.desk import DocumentDesk
from headway.ports.documents import Documents
from headway.ports.history import History
from headway.ports.leases import Leases
from headway.ports.letters import Letters
from headway.ports.places import Places
from headway.ports.records import DoneRecords
from headway.ports.totals import Totals
from headway.ports.unrouted import OnStep, Unrouted


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweeping:
    """What a sweeper, and an operator of documents, need of a store."""

    candidates: Candidates
    desk: DocumentDesk
    leases: Leases
    totals: Totals


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What a worker runs on. Where one adapter gives all of it, one commit holds all of it."""

    bus: Bus
    finisher: Finisher
    letters: Letters
    records: DoneRecords
    documents: Documents
    places: Places
    unrouted: Unrouted
    history: History
    """Of what operators changed: in the store, or else on the bus."""
    has_store: bool = True
    """False: nothing remembers what was done. It is at least once, and nothing can be written."""
    open_store: Callable[[], Awaitable[None]] | None = None
    """Makes sure of a store that the bus does not know of, before anything is taken."""
    close_store: Callable[[], Awaitable[None]] | None = None
    """Lets go of a store that the bus does not know of."""
    aside: Callable[[], AbstractAsyncContextManager[Documents]] | None = None
    """Gives the documents over connections of their own. None: they serve any event loop."""
    history_without_store: History | None = None
    """Of what operators changed on the bus while they named no store. None: there is no such."""
    sweeping: Sweeping | None = None
    """None: there is no store, so nothing can be swept."""

    @asynccontextmanager
    async def documents_aside(self) -> AsyncIterator[Documents]:
        """Give the documents for use in another event loop."""
        if self.aside is None:
            yield self.documents
        else:
            async with self.aside() as documents:
                yield documents

    async def open(self, queues: Sequence[Queue], on_routed: OnStep | None = None) -> None:
        """Make sure of the store, and declare queues; safe to repeat."""
        if self.open_store is not None:
            await self.open_store()
        await self.bus.open(queues, on_routed)

    async def close(self) -> None:
        """Hand back what is still taken and let go of everything."""
        try:
            await self.bus.close()
        finally:
            if self.close_store is not None:
                await self.close_store()
