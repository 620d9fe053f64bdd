"""The history of changes, in the database that was changed."""

from collections.abc import Sequence
from typing import Any

import msgspec

from headway.adapters.postgres.link import Link
from headway.adapters.postgres.values import json_text
from headway.core.writes import Document
from headway.ports.history import KEPT, appended_at

_APPEND = "insert into headway_notes (at, entry) values ($1, $2)"
_FORGET = "delete from headway_notes where id <= (select max(id) from headway_notes) - $1::bigint"
_LATEST = "select entry from headway_notes order by at desc, id desc limit $1"
_ENTRY = msgspec.json.Decoder(Document)


class PostgresHistory:
    """Entries are rows, each with a higher number than the last."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def append(self, entry: Document) -> None:
        at, text = appended_at(entry), json_text(entry)

        async def work(connection: Any) -> None:
            await connection.execute(_APPEND, at, text)
            await connection.execute(_FORGET, KEPT)

        await self._link.run(work)

    async def latest(self, limit: int) -> Sequence[Document]:
        return [_ENTRY.decode(row[0]) for row in await self._link.fetch(_LATEST, limit)]
