"""The history of changes, for as long as the process lives."""

from collections.abc import Sequence

import msgspec

from headway.core.writes import Document
from headway.ports.history import KEPT, newest_first


class MemoryHistory:
    """Entries as JSON in a list that engines share."""

    def __init__(self, entries: list[bytes]) -> None:
        self._entries = entries

    async def append(self, entry: Document) -> None:
        self._entries.append(msgspec.json.encode(entry))
        del self._entries[:-KEPT]

    async def latest(self, limit: int) -> Sequence[Document]:
        every: list[Document] = [msgspec.json.decode(entry) for entry in reversed(self._entries)]
        return newest_first(every)[:limit]
