"""Where everything is, when queues and letters are on a bus and ends in a store, or nowhere.

Nobody counts what such a bus accepts, and nobody can look for an event that waits in a queue.
"""

from collections.abc import Mapping, Sequence

from headway.ports.letters import Letters
from headway.ports.places import Astray, Balance, BusPlaces, Depths, Ends, Undecided
from headway.runtime.failed_reading import walk

_MOST_UNDECIDED = 100_000


class StorelessPlaces:
    """What a bus without a store knows: nothing of what was done."""

    def __init__(self, places: BusPlaces) -> None:
        self._places = places

    async def depths(self) -> Depths:
        return await self._places.depths()

    async def balance(self) -> Balance:
        return Balance.of(await self._places.depths(), done=0, remembers=False)

    async def astray(self, _limit: int) -> tuple[int, Sequence[Astray]]:
        return 0, []

    async def where(self, operations: Sequence[str]) -> Mapping[str, Sequence[str]]:
        return await self._places.where(operations)


class JoinedPlaces:
    """What a bus and a store know together."""

    def __init__(self, places: BusPlaces, letters: Letters, ends: Ends) -> None:
        self._places = places
        self._letters = letters
        self._ends = ends

    async def depths(self) -> Depths:
        """Count what waits on the bus; raise if the store is unavailable, as work then waits."""
        await self._ends.ping()
        return await self._places.depths()

    async def balance(self) -> Balance:
        depths = await self._places.depths()
        done, purged = await self._ends.count()
        return Balance.of(depths, done=done, purged=purged)

    async def astray(self, limit: int) -> tuple[int, Sequence[Astray]]:
        """Name what failed and has no letter, if nothing waits in any queue.

        What was requeued by somebody who died at once still says that it failed: while it may be
        waiting, nobody can know.
        """
        undecided = await self._ends.undecided(_MOST_UNDECIDED)
        unread = await self._without_letter(undecided)
        if not unread:
            return 0, []
        depths = await self._places.depths()
        if depths.waiting or depths.in_hand:
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
