"""Documents as rows of JSON text, and what a commit writes to them."""

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from headway.adapters.sqlite.reader import Readers
from headway.adapters.sqlite.statements import as_json, insert
from headway.adapters.sqlite.writer import Writer
from headway.core.document import begun
from headway.core.writes import Document, InsertNew, Write, applied, matches, target

Key = tuple[str, str]
"""A collection and an id in it."""

_FETCH = """
select '[' || coalesce(group_concat('[' || json_quote(id) || ',' || body || ']', ','), '') || ']'
from headway_documents where collection = ? and id in (select value from json_each(?))
"""
_FETCHED = msgspec.json.Decoder(list[tuple[str, Document]])
_DOCUMENT = msgspec.json.Decoder(Document)
_PUT = "into headway_documents (collection, id, body)"
_OVER = "on conflict (collection, id) do update set body = excluded.body"

_PLAIN_FIELD = re.compile(r"[A-Za-z0-9_-]+")


class SqliteDocuments:
    """Reads documents on connections for reading, and counts attempts in commits."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def fetch(self, collection: str, ids: Sequence[str]) -> Mapping[str, Document]:
        found = await self._readers.run(lambda connection: _fetch(connection, collection, ids))
        return {one: found[one] for one in ids if one in found}

    async def find(
        self, collection: str, where: Mapping[str, Any], limit: int
    ) -> Sequence[Document]:
        return await self._readers.run(lambda c: list(_find(c, collection, where, limit)))

    async def begin(
        self, collection: str, ids: Sequence[str], operation: str, now: datetime
    ) -> Mapping[str, Document]:
        found = await self._writer.run(lambda c: _begin(c, collection, ids, operation, now))
        return {one: found[one] for one in ids if one in found}


class Changes:
    """What the writes of one or many units make of documents, before any of it is stored."""

    def __init__(self, connection: sqlite3.Connection, writes: Iterable[Write]) -> None:
        self._connection = connection
        self._now: dict[Key, Document] = {}
        self._changed: dict[Key, None] = {}
        wanted: dict[str, list[str]] = {}
        for write in writes:
            wanted.setdefault(write.collection, []).append(target(write))
        for collection, ids in wanted.items():
            for one, document in _fetch(connection, collection, ids).items():
                self._now[collection, one] = document

    def apply(self, writes: Iterable[Write]) -> int:
        """Apply writes in their order; say how many documents of `insert_new` were there."""
        skipped = 0
        for write in writes:
            key = write.collection, target(write)
            current = self._now.get(key)
            after = applied(write, current)
            if after is not current:
                self._now[key] = after
                self._changed[key] = None
            elif isinstance(write, InsertNew):
                skipped += 1
        return skipped

    def store(self) -> None:
        rows = [(*key, as_json(self._now[key])) for key in self._changed]
        insert(self._connection, _PUT, rows, _OVER)


def _fetch(
    connection: sqlite3.Connection, collection: str, ids: Sequence[str]
) -> dict[str, Document]:
    found = connection.execute(_FETCH, (collection, as_json(ids))).fetchone()[0]
    return dict(_FETCHED.decode(found))


def _begin(
    connection: sqlite3.Connection,
    collection: str,
    ids: Sequence[str],
    operation: str,
    now: datetime,
) -> dict[str, Document]:
    found = _fetch(connection, collection, ids)
    rows = []
    for one, document in found.items():
        after = begun(document, operation, now)
        if after is not None:
            found[one] = after
            rows.append((collection, one, as_json(after)))
    insert(connection, _PUT, rows, _OVER)
    return found


def _find(
    connection: sqlite3.Connection, collection: str, where: Mapping[str, Any], limit: int
) -> Iterator[Document]:
    conditions, values = _narrowed(where)
    rows = connection.execute(
        f"select body from headway_documents where collection = ?{conditions} order by id",  # noqa: S608 (values are bound)
        (collection, *values),
    )
    for (body,) in rows:
        if limit <= 0:
            return
        document = _DOCUMENT.decode(body)
        if matches(document, where):
            limit -= 1
            yield document


def _narrowed(where: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Let SQLite leave out most of what cannot match; `matches` has the last word."""
    conditions, values = "", []
    for field, value in where.items():
        if not _PLAIN_FIELD.fullmatch(field):
            continue
        path = f'$."{field}"'
        if value is None:
            conditions += " and json_extract(body, ?) is null"
            values.append(path)
        elif isinstance(value, str):
            conditions += " and json_extract(body, ?) = ?"
            values += (path, value)
    return conditions, values
