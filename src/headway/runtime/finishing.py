"""Finish units where the store and the bus are two different things.

The order is the promise: commit in the store (effects, record, and what has to be sent), send and
have it confirmed, take down that it was sent, and only then settle the delivery. A crash between
any two steps repeats a step, and every step can be repeated: the record recognises the delivery,
and what is sent again has the same ids.
"""

from collections.abc import Sequence
from typing import Protocol

from headway.core.letter import Letter
from headway.ports.bus import Bus, Message
from headway.ports.commit import LOST, Finish, Outcome, Unit
from headway.ports.letters import Letters
from headway.ports.records import DoneRecord, DoneRecords


class Store(Protocol):
    """Commits effects and records, each unit as one."""

    async def commit(self, units: Sequence[Unit]) -> Sequence[Finish]:
        """Write effects, record, and inside the record what is to be sent."""
        ...


async def dispatch(records: Sequence[DoneRecord], bus: Bus, letters: Letters) -> None:
    """Send what records still hold, and have it confirmed."""
    outgoing: list[Message] = []
    by_queue: dict[str, list[Letter]] = {}
    for record in records:
        outgoing.extend(record.outgoing)
        if record.letter is not None:
            by_queue.setdefault(record.failed_queue, []).append(record.letter)
    for queue, written in by_queue.items():
        await letters.write(queue, written)
    if outgoing:
        await bus.publish(outgoing)


class StoreThenBus:
    """The finisher for a bus with a store beside it."""

    def __init__(self, store: Store, records: DoneRecords, bus: Bus, letters: Letters) -> None:
        self._store = store
        self._records = records
        self._bus = bus
        self._letters = letters

    async def finish(self, units: Sequence[Unit]) -> Sequence[Finish]:
        finishes = await self._commit(units)
        kept = [unit for unit in units if unit.record is not None]
        held = await self._records.find([unit.record.key for unit in kept if unit.record])
        unsent = [record for record in held.values() if record.outgoing or record.letter]
        if unsent:
            await dispatch(unsent, self._bus, self._letters)
            await self._records.dispatched([record.key for record in unsent])
        return await self._settle(units, finishes)

    async def _commit(self, units: Sequence[Unit]) -> list[Finish]:
        to_commit = [unit for unit in units if unit.record is not None and not unit.resumes]
        committed = iter(await self._store.commit(to_commit)) if to_commit else iter(())
        return [
            Finish(Outcome.COMMITTED) if unit.record is None or unit.resumes else next(committed)
            for unit in units
        ]

    async def _settle(self, units: Sequence[Unit], finishes: Sequence[Finish]) -> Sequence[Finish]:
        ended = [
            (unit, finish)
            for unit, finish in zip(units, finishes, strict=True)
            if finish.outcome is not Outcome.REFUSED
        ]
        settled = iter(await self._bus.settle([(unit.delivery, unit.then) for unit, _ in ended]))
        # Whoever settles late has committed all the same, unless somebody else had: then the
        # record said so. So a delivery that was lost in between is no reason to say LOST here.
        return [
            finish
            if finish.outcome is Outcome.REFUSED
            else finish
            if next(settled) or unit.record is not None
            else LOST
            for unit, finish in zip(units, finishes, strict=True)
        ]
