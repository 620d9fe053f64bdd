"""Where everything is in the memory engine."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from headway.adapters.memory.state import Item, Owned, State
from headway.ports.clock import Clock
from headway.ports.places import Astray, Count, Fault, QueueCount
from headway.ports.records import Ended

_SUSPECT = 2
_NO_PLACE = frozenset({Ended.FAILED, Ended.REQUEUED})
"""Their operation is elsewhere: in its letter, or in a queue again."""


class MemoryPlaces:
    """Counts what there is. Nobody can change anything meanwhile: it never waits."""

    def __init__(self, state: State, clock: Clock) -> None:
        self._state = state
        self._clock = clock

    async def count(self) -> Count:
        state = self._state
        ended = self._ended()
        return Count(
            queues=[self._count_queue(name) for name in sorted(state.queues)],
            failed={name: len(letters) for name, letters in sorted(state.letters.items())},
            done=len(ended) + state.forgotten.done,
            purged=sum(e is Ended.PURGED for e in ended.values()) + state.forgotten.purged,
            accepted=len(state.accepted) + state.forgotten.done,
            workers=len(state.workers),
        )

    async def astray(self, limit: int) -> tuple[int, Sequence[Astray]]:
        places = self._places()
        found = [
            Astray(operation=owned[1], queue=owned[0], fault=fault, places=tuple(there))
            for owned, there in places.items()
            if (fault := self._fault(owned, there)) is not None
        ]
        return len(found), found[:limit]

    def _count_queue(self, name: str) -> QueueCount:
        now = self._clock.now()
        items = [item for item in self._state.items.values() if item.queue == name]
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
        """Give what has come to an end, once for each operation in a queue."""
        records = [kept.record for kept in self._state.records.values()]
        return {(r.queue, r.operation): r.ended for r in records if r.ended not in _NO_PLACE}

    def _places(self) -> dict[Owned, list[str]]:
        """Name the places of each operation: in a right world, one."""
        now = self._clock.now()
        places: dict[Owned, list[str]] = {owned: [] for owned in self._state.accepted}
        for item in self._state.items.values():
            places.setdefault(item.owned, []).append(_place(item, now))
        for letters in self._state.letters.values():
            for letter in letters.values():
                places.setdefault((letter.queue, letter.operation), []).append("failed")
        for owned in self._ended():
            places.setdefault(owned, []).append("done")
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
    if item.due <= now:
        return "ready"
    return "parked" if item.parked else "delayed"
