"""Where everything is, when queues and letters are on a bus and ends in a store, or nowhere.

Nobody counts what such a bus accepts, and nobody can look for an event that waits in a queue.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headway.ports.letters import Letters
from headway.ports.places import Astray, Count, Ends, Places, Undecided
from headway.runtime.failed_reading import walk

_MOST_UNDECIDED = 100_000


class BusPlaces:
    """What a bus without a store knows: nothing of what was done."""

    def __init__(self, places: Places) -> None:
        self._places = places

    async def count(self) -> Count:
        count = await self._places.count()
        return replace(count, done=0, purged=0, accepted=None, remembers=False)

    async def astray(self, _limit: int) -> tuple[int, Sequence[Astray]]:
        return 0, []

    async def where(self, operations: Sequence[str]) -> Mapping[str, Sequence[str]]:
        return await self._places.where(operations)


class JoinedPlaces:
    """What a bus and a store know together."""

    def __init__(self, places: Places, letters: Letters, ends: Ends) -> None:
        self._places = places
        self._letters = letters
        self._ends = ends

    async def count(self) -> Count:
        count = await self._places.count()
        done, purged = await self._ends.count()
        return replace(count, done=done, purged=purged, accepted=None, remembers=True)

    async def astray(self, limit: int) -> tuple[int, Sequence[Astray]]:
        """Name what failed and has no letter, if nothing waits in any queue.

        What was requeued by somebody who died at once still says that it failed: while it may be
        waiting, nobody can know.
        """
        undecided = await self._ends.undecided(_MOST_UNDECIDED)
        unread = await self._without_letter(undecided)
        if not unread:
            return 0, []
        count = await self._places.count()
        if count.waiting or count.in_hand:
            return 0, []
        # What somebody decided about meanwhile is in order.
        still = {each.letter_id for each in await self._ends.undecided(_MOST_UNDECIDED)}
        missing = [
            Astray(operation=each.operation, queue=each.queue, fault="missing")
            for each in unread
            if each.letter_id in still
        ]
        return len(missing), missing[:limit]

    async def _without_letter(self, undecided: Sequence[Undecided]) -> Sequence[Undecided]:
        there: set[tuple[str, str]] = set()
        for queue in {each.failed_queue for each in undecided}:
            there.update([(queue, each.letter_id) async for each in walk(self._letters, queue)])
        return [each for each in undecided if (each.failed_queue, each.letter_id) not in there]

    async def where(self, operations: Sequence[str]) -> Mapping[str, Sequence[str]]:
        there = await self._places.where(operations)
        ended = await self._ends.where(operations)
        return {
            operation: list(dict.fromkeys([*there.get(operation, ()), *ended.get(operation, ())]))
            for operation in there.keys() | ended.keys()
        }
