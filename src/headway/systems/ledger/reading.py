"""The questions that a ledger answers, the same for every store; only the asking differs."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from headway.systems.ledger import rows
from headway.systems.ledger.entities import Entity
from headway.systems.ledger.store import Row


class Reading(ABC):
    """Asks by statements whose parameters are marked as the database wants them."""

    marks: ClassVar[tuple[str, str]]

    async def find_event(self, event_id: str) -> rows.StoredEvent | None:
        found = await self._ask(rows.STORED_EVENT, event_id)
        return rows.stored_event_from(found[0] if found else None)

    async def find_entity(self, entity_id: str) -> Entity | None:
        found = await self._ask(rows.ENTITY, entity_id)
        return rows.entity_from(found[0] if found else None)

    async def events_after(self, event_id: str, limit: int) -> Sequence[Row]:
        return await self._ask(rows.EVENTS_AFTER, event_id, limit)

    async def entities_after(self, entity_id: str, limit: int) -> Sequence[Entity]:
        found = await self._ask(rows.ENTITIES_AFTER, entity_id, limit)
        return [entity for row in found if (entity := rows.entity_from(row))]

    async def totals(self) -> Sequence[Row]:
        return await self._ask(rows.TOTALS)

    async def _ask(self, statement: str, *values: object) -> Sequence[Row]:
        return await self._read(statement.format(*self.marks), *values)

    @abstractmethod
    async def _read(self, statement: str, *values: object) -> Sequence[Row]:
        """Give the rows that a statement finds, on a connection of its own."""
