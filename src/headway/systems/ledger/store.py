"""What the ledger needs of a database."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from headway.facts import Observer
from headway.systems.ledger.entities import Entity
from headway.systems.ledger.events import Event
from headway.systems.ledger.rows import StoredEvent

Row = Mapping[str, Any]


class Store(Protocol):
    """Keeps events and entities. Nothing of an event is kept unless all of it is."""

    async def prepare(self) -> None:
        """Make the tables unless they are there; several processes may do so at once."""
        ...

    def opened(self) -> AbstractAsyncContextManager[None]:
        """Hold a prepared store open for the block.

        The database may be away meanwhile: a worker that is started then answers when it is back.
        """
        ...

    async def append(
        self,
        event: Event,
        *,
        token: str,
        attempts: int,
        context: Mapping[str, str],
        observer: Observer,
    ) -> bool:
        """Store the event and its effect in one transaction, retried up to `attempts` in all.

        Answers whether this call stored it; False: an earlier call with the same token did.
        """
        ...

    async def find_event(self, event_id: str) -> StoredEvent | None: ...

    async def find_entity(self, entity_id: str) -> Entity | None: ...

    async def events_after(self, event_id: str, limit: int) -> Sequence[Row]:
        """List events by id, in the order of the bytes."""
        ...

    async def entities_after(self, entity_id: str, limit: int) -> Sequence[Entity]: ...

    async def totals(self) -> Sequence[Row]: ...
