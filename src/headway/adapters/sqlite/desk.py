"""Documents on the desk of an operator, and the book in which it is noted."""

# ruff: noqa: S608 (statements are put together from parts of our own; names in them are quoted)

import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from headway.adapters.sqlite.reader import Readers
from headway.adapters.sqlite.selecting import as_read, fetch_rows, put, shown_row
from headway.adapters.sqlite.statements import as_json
from headway.adapters.sqlite.stuck import Expressions, literal
from headway.adapters.sqlite.writer import Writer
from headway.core.document import STATUS
from headway.core.lifecycle import Lifecycle, State
from headway.core.unreadable import is_stand_in
from headway.core.writes import ID, Document

_AMONG = "collection = ? and id in (select value from json_each(?))"
_REMOVE = f"delete from headway_documents where {_AMONG}"
_TAKEN = f"select id from headway_documents where {_AMONG}"
_MOVE = f"update headway_documents set collection = ? where {_AMONG}"
_COLLECTIONS = """
with recursive names (name) as (
    select min(collection) from headway_documents
    union all
    select (select min(collection) from headway_documents where collection > name)
    from names where name is not null
)
select name from names where name is not null
"""
"""From one to the next by their index: most documents are not looked at."""


class SqliteDesk:
    """Changes documents where their status is as it was read, many in one commit."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def browse(
        self, lifecycle: Lifecycle, states: Sequence[State], *, page: int
    ) -> AsyncIterator[Sequence[Document]]:
        statement, after = _page(lifecycle, states), ""
        while True:
            rows = await self._rows(statement, (lifecycle.collection, after, page))
            read = [shown_row(one, body) for one, body in rows]
            documents = [each for each in read if lifecycle.state(each) in states]
            if documents:
                yield documents
            if len(rows) < page:
                return
            after = rows[-1][0]

    async def collections(self) -> Sequence[str]:
        return [name for (name,) in await self._rows(_COLLECTIONS, ())]

    async def _rows(self, statement: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return await self._readers.run(lambda c: c.execute(statement, values).fetchall())

    async def change(
        self, collection: str, documents: Sequence[Document], changes: Mapping[str, Any]
    ) -> frozenset[str]:
        def work(connection: sqlite3.Connection) -> frozenset[str]:
            ours = as_read(connection, collection, documents, (STATUS,))
            put(connection, collection, ours, lambda _document: changes)
            return frozenset(ours)

        return await self._writer.run(work)

    async def remove(self, collection: str, documents: Sequence[Document]) -> frozenset[str]:
        def work(connection: sqlite3.Connection) -> frozenset[str]:
            readable = [each for each in documents if not is_stand_in(each)]
            ours = list(as_read(connection, collection, readable, (STATUS,)))
            ours += _still_unreadable(connection, collection, documents)
            connection.execute(_REMOVE, (collection, as_json(ours)))
            return frozenset(ours)

        return await self._writer.run(work)

    async def move(self, collection: str, documents: Sequence[Document], to: str) -> frozenset[str]:
        def work(connection: sqlite3.Connection) -> frozenset[str]:
            ours = list(as_read(connection, collection, documents, (STATUS,)))
            taken = {one for (one,) in connection.execute(_TAKEN, (to, as_json(ours)))}
            free = [one for one in ours if one not in taken]
            connection.execute(_MOVE, (to, collection, as_json(free)))
            return frozenset(free)

        return await self._writer.run(work)


def _still_unreadable(
    connection: sqlite3.Connection, collection: str, documents: Sequence[Document]
) -> list[str]:
    """Name what nobody can read, where it is word for word what was found before."""
    found = {each[ID]: each for each in documents if is_stand_in(each)}
    rows = fetch_rows(connection, collection, list(found))
    return [one for one, body in rows if shown_row(one, body) == found[one]]


def _page(lifecycle: Lifecycle, states: Sequence[State]) -> str:
    """Give the statement for a page in the order of ids, without most of what is not wanted.

    The plus keeps SQLite from looking by state: then it would sort all of them for every page.
    """
    words = set(states)
    if words & {State.PENDING, State.FAILED}:
        words |= {State.PENDING, State.FAILED}  # by their times, which it may read differently
    wanted = ""
    if not words & {State.PROCESSED, State.FOREIGN}:
        named = ", ".join(f"'{state}'" for state in sorted(words))
        wanted = f"and +({Expressions(lifecycle).state}) in ({named})"
    elif State.PROCESSED not in words and lifecycle.flag is not None:
        wanted = f"and coalesce(not {Expressions(lifecycle).flag}, true)"
    elif State.PROCESSED not in words:
        done = ", ".join(map(literal, lifecycle.processed_words))
        wanted = f"and coalesce({Expressions(lifecycle).word} not in ({done}), true)"
    return f"""
        select id, body from headway_documents
        where collection = ? and id > ? {wanted} order by id limit ?
    """
