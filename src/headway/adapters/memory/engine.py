"""The memory engine: all ports on one state, and one commit for everything."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from headway.adapters.memory.bus import MemoryBus
from headway.adapters.memory.history import MemoryHistory
from headway.adapters.memory.letters import MemoryLetters
from headway.adapters.memory.places import MemoryPlaces
from headway.adapters.memory.state import Item, State
from headway.adapters.memory.store import (
    MemoryStore,
    carry_out,
    is_duplicate,
    keep_record,
    sent,
)
from headway.adapters.memory.sweeping import memory_sweeping
from headway.adapters.memory.unrouted import MemoryUnrouted
from headway.core.errors import ConfigurationError, KeyTakenError
from headway.ports.bus import Done, unrouted_types
from headway.ports.chance import Chance
from headway.ports.clock import Clock
from headway.ports.commit import COMMITTED, DUPLICATE, LOST, Finish, Outcome, Unit
from headway.ports.engine import Engine


class MemoryFinisher:
    """Does all that belongs to a unit in one step."""

    at_once = 1

    def __init__(self, state: State, bus: MemoryBus, clock: Clock) -> None:
        self._state = state
        self._bus = bus
        self._clock = clock

    async def finish(self, units: Sequence[Unit]) -> Sequence[Finish]:
        return [self._finish(unit) for unit in units]

    def _finish(self, unit: Unit) -> Finish:
        item = self._state.taken(self._bus, unit.delivery)
        if item is None:
            return LOST
        try:
            if unit.resumes:
                unit = self._left_over(unit)
            elif is_duplicate(self._state, unit):
                self._state.settle(item, Done())
                return DUPLICATE
            for message in unit.outgoing:
                self._state.routes(message)
        except (ConfigurationError, KeyTakenError) as error:
            return Finish(Outcome.REFUSED, error=error)
        finish = COMMITTED if unit.resumes else carry_out(self._state, unit)
        if finish.outcome is Outcome.COMMITTED:
            unrouted = self._send_and_settle(unit, item)
            if unrouted:
                return replace(finish, unrouted=unrouted)
        return finish

    def _left_over(self, unit: Unit) -> Unit:
        """Give a unit with nothing but what its record still holds."""
        kept = self._state.records.get(unit.record.key) if unit.record else None
        if kept is None:
            return unit
        held = kept.record
        return msgspec.structs.replace(
            unit, record=held, outgoing=held.outgoing, letter=held.letter
        )

    def _send_and_settle(self, unit: Unit, item: Item) -> frozenset[str]:
        """Do the rest, of which nothing can fail any more; name the types that no queue took."""
        taken_by = self._state.publish(unit.outgoing, self._clock.now())
        if unit.letter is not None:
            letters = self._state.letters.setdefault(unit.failed_queue, {})
            letters.setdefault(unit.letter.letter_id, unit.letter)
        if unit.record is not None:
            record = msgspec.structs.replace(unit.record, failed_queue=unit.failed_queue)
            keep_record(self._state, unit, sent(record))
        self._state.settle(item, unit.then)
        return unrouted_types(unit.outgoing, taken_by)


def memory_engine(clock: Clock, chance: Chance, state: State | None = None) -> Engine:
    """Give an engine, as one worker process has it; those with the same state share all of it."""
    if state is None:
        state = State()
    bus = MemoryBus(state, clock, chance)
    store = MemoryStore(state)
    return Engine(
        bus=bus,
        finisher=MemoryFinisher(state, bus, clock),
        letters=MemoryLetters(state, clock),
        records=store.records,
        documents=store.documents,
        places=MemoryPlaces(state, clock),
        unrouted=MemoryUnrouted(state, clock),
        history=MemoryHistory(state.notes),
        sweeping=memory_sweeping(state, clock),
    )
