"""Collections whose names are perhaps mistyped: nothing is in them, and in others there is."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches

from headway.core.decision import archived_from
from headway.ports.clock import Clock
from headway.ports.desk import DocumentDesk

_NEAR = 0.8
_ASKED_EVERY = timedelta(seconds=10)


def misnamed(names: Iterable[str], there: Sequence[str]) -> Mapping[str, str]:
    """Give, for a collection without any document, one of nearly the same name that has some."""
    names = list(names)
    others = [each for each in there if each not in names and archived_from(each) is None]
    near = {
        name: get_close_matches(name, others, n=1, cutoff=_NEAR)
        for name in names
        if name not in there
    }
    return {name: found[0] for name, found in near.items() if found}


class CollectionNames:
    """Says for a worker which collection was perhaps meant; it asks the store seldom."""

    def __init__(self, desk: DocumentDesk, clock: Clock) -> None:
        self._desk = desk
        self._clock = clock
        self._there: Sequence[str] = ()
        self._asked: datetime | None = None

    async def meant(self, collection: str) -> str:
        """Give a collection of nearly the same name, if there is no document in this one."""
        now = self._clock.now()
        if self._asked is None or not timedelta() <= now - self._asked < _ASKED_EVERY:
            self._asked = now
            try:
                self._there = await self._desk.collections()
            except Exception:  # noqa: BLE001 (whatever a driver raises: only the hint is missing)
                self._there = ()
        return misnamed([collection], self._there).get(collection, "")
