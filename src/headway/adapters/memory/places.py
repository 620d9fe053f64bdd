"""Where everything is in the memory engine."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from headway.adapters.memory.state import Item, Owned, State
from headway.ports.clock import Clock
from headway.ports.places import Astray, Balance, Depths, Fault, QueueCount
from headway.ports.records import Ended

_SUSPECT = 2
_NO_PLACE = frozenset({Ended.FAILED, Ended.REQUEUED})
"""Their operation is elsewhere: in its letter, or in a queue again."""


class MemoryPlaces:
    """Counts what there is. Nobody can change anything meanwhile: it never waits."""

    def __init__(self, state: State, clock: Clock) -> None:
        self._state = state
        self._clock = clock

    async def depths(self) -> Depths:
        state = self._state
        return Depths(
            queues=[self._count_queue(name) for name in sorted(state.queues)],
            failed={name: len(letters) for name, letters in sorted(state.letters.items())},
            workers=len(state.workers),
            unrouted=len(state.unrouted),
        )

    async def balance(self) -> Balance:
        state, ended = self._state, self._ended()
        return Balance.of(
            await self.depths(),
            done=len(ended) + state.forgotten.done,
            purged=sum(e is Ended.PURGED for e in ended.values()) + state.forgotten.purged,
            accepted=len(state.accepted) + state.forgotten.done,
        )

    async def astray(self, limit: int) -> tuple[int, Sequence[Astray]]:
        places = self._places()
        found = [
            Astray(operation=owned[1], queue=owned[0], fault=fault, places=tuple(there))
            for owned, there in places.items()
            if (fault := self._fault(owned, there)) is not None
        ]
        return len(found), found[:limit]

    async def where(self, operations: Sequence[str]) -> Mapping[str, Sequence[str]]:
        now = self._clock.now()
        wanted = frozenset(operations)
        places: dict[str, list[str]] = {
            operation: [] for _, operation in self._state.accepted if operation in wanted
        }
        there = [(i.travel.operation, f"{_place(i, now)} in {i.queue}") for i in self._items()]
        for name, letters in self._state.letters.items():
            there += [(letter.operation, f"failed in {name}") for letter in letters.values()]
        there += [(operation, f"done in {queue}") for queue, operation in self._ended()]
        there += [(operation, place) for place, operation in self._state.unrouted]
        for operation, place in there:
            if operation in wanted:
                places.setdefault(operation, []).append(place)
        return places

    def _items(self) -> Collection[Item]:
        return self._state.items.values()

    def _count_queue(self, name: str) -> QueueCount:
        now = self._clock.now()
        items = [item for item in self._items() if item.queue == name]
        there = Counter(_place(item, now) for item in items)
        return QueueCount(
            queue=name,
            ready=there["ready"],
            leased=there["leased"],
            delayed=there["delayed"],
            parked=there["parked"],
            suspects=sum(item.returns >= _SUSPECT for item in items),
            oldest=min((i.due for i in items if _place(i, now) == "ready"), default=None),
        )

    def _ended(self) -> dict[Owned, Ended]:
        """Give what has come to an end, once for each operation in a queue.

        An operation that was sent again on purpose, under another generation, is where that one is.
        """
        again: dict[Owned, set[str]] = {}
        for item in self._items():
            again.setdefault(item.owned, set()).add(item.travel.generation)
        for letters in self._state.letters.values():
            for letter in letters.values():
                owned = letter.queue, letter.operation
                again.setdefault(owned, set()).add(letter.generation)
        return {
            owned: kept.record.ended
            for kept in self._state.records.values()
            if kept.record.ended not in _NO_PLACE
            for owned in [(kept.record.queue, kept.record.operation)]
            if not again.get(owned, set()) - {kept.generation}
        }

    def _places(self) -> dict[Owned, list[str]]:
        """Name the places of each operation: in a right world, one."""
        now = self._clock.now()
        places: dict[Owned, list[str]] = {owned: [] for owned in self._state.accepted}
        for item in self._items():
            places.setdefault(item.owned, []).append(_place(item, now))
        for letters in self._state.letters.values():
            for letter in letters.values():
                places.setdefault((letter.queue, letter.operation), []).append("failed")
        for owned in self._ended():
            places.setdefault(owned, []).append("done")
        for owned in self._state.unrouted:
            places.setdefault(owned, []).append("unrouted")
        return places

    def _fault(self, owned: Owned, there: Sequence[str]) -> Fault | None:
        if owned not in self._state.accepted:
            return "surplus"
        if not there:
            return "missing"
        return "twice" if len(there) > 1 else None


def _place(item: Item, now: datetime) -> str:
    if item.taker is not None:
        return "leased"
    if item.parked:
        return "parked"
    return "ready" if item.due <= now else "delayed"
