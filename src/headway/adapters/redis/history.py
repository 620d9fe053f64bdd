"""The history of changes to sequences, beside them: a list, the newest entry first."""

from collections.abc import Sequence
from typing import Any

import msgspec

from headway.core.writes import Document
from headway.ports.history import KEPT, newest_first

_ENTRY = msgspec.json.Decoder(Document)


class RedisHistory:
    """Entries under one key, `<prefix>:history`, which never expires."""

    def __init__(self, client: Any, key: str) -> None:
        self._client = client
        self._key = key

    async def append(self, entry: Document) -> None:
        await self._client.lpush(self._key, msgspec.json.encode(entry))
        await self._client.ltrim(self._key, 0, KEPT - 1)

    async def latest(self, limit: int) -> Sequence[Document]:
        found = await self._client.lrange(self._key, 0, limit - 1)
        return newest_first(map(_ENTRY.decode, found))
