"""Unrouted events of the memory engine."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice

from headway.adapters.memory.state import Owned, State
from headway.ports.clock import Clock
from headway.ports.unrouted import OnStep, UnroutedEvent


class MemoryUnrouted:
    """Events in the order in which they came."""

    def __init__(self, state: State, clock: Clock) -> None:
        self._state = state
        self._clock = clock

    async def counts(self) -> Mapping[str, int]:
        return Counter(event.event_type for event in self._state.unrouted.values())

    async def oldest(self) -> Mapping[str, datetime]:
        return {event.event_type: event.at for event in reversed(self._state.unrouted.values())}

    async def taken_types(self) -> Sequence[str]:
        return sorted({each for q in self._state.queues.values() for each in q.event_types})

    async def takers(self, event_type: str) -> Sequence[str]:
        queues = self._state.queues.items()
        return sorted(name for name, queue in queues if event_type in queue.event_types)

    async def read(
        self,
        limit: int,
        *,
        event_types: Sequence[str] | None = None,
        operations: Sequence[str] | None = None,
    ) -> Sequence[UnroutedEvent]:
        chosen = islice(self._chosen(event_types, operations), limit)
        return [self._state.unrouted[owned] for owned in chosen]

    async def route(
        self, event_types: Sequence[str] | None = None, *, on_step: OnStep | None = None
    ) -> int:
        moved = self._state.route(event_types, self._clock.now())
        if on_step is not None:
            on_step(moved)
        return moved.total()

    async def purge(
        self,
        event_types: Sequence[str] | None = None,
        *,
        operations: Sequence[str] | None = None,
        on_step: OnStep | None = None,
    ) -> int:
        if event_types is None and operations is None:
            return 0
        removed: Counter[str] = Counter()
        for owned in list(self._chosen(event_types, operations)):
            removed[self._state.unrouted.pop(owned).event_type] += 1
            del self._state.accepted[owned]
        self._state.forgotten.done += removed.total()
        self._state.forgotten.purged += removed.total()
        if on_step is not None:
            on_step(removed)
        return removed.total()

    def _chosen(
        self, event_types: Sequence[str] | None, operations: Sequence[str] | None
    ) -> Iterator[Owned]:
        for owned, event in self._state.unrouted.items():
            if (event_types is None or event.event_type in event_types) and (
                operations is None or event.travel.operation in operations
            ):
                yield owned
