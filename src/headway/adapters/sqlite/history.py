"""The history of changes, in the file that was changed."""

import sqlite3
from collections.abc import Sequence

import msgspec

from headway.adapters.sqlite.reader import Readers
from headway.adapters.sqlite.rows import seconds
from headway.adapters.sqlite.statements import as_json
from headway.adapters.sqlite.writer import Writer
from headway.core.writes import Document
from headway.ports.history import KEPT, appended_at

_APPEND = "insert into headway_notes (at, body) values (?, ?)"
_FORGET = "delete from headway_notes where id <= (select max(id) from headway_notes) - ?"
_LATEST = "select body from headway_notes order by at desc, id desc limit ?"
_ENTRY = msgspec.json.Decoder(Document)


class SqliteHistory:
    """Entries are rows, each with the next number."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def append(self, entry: Document) -> None:
        at = seconds(appended_at(entry))

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(_APPEND, (at, as_json(entry)))
            connection.execute(_FORGET, (KEPT,))

        await self._writer.run(work)

    async def latest(self, limit: int) -> Sequence[Document]:
        rows = await self._readers.run(lambda c: c.execute(_LATEST, (limit,)).fetchall())
        return [_ENTRY.decode(body) for (body,) in rows]
