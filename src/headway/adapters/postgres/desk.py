"""Documents on the desk of an operator, and the book in which it is noted."""

# ruff: noqa: S608 (statements are put together from parts of our own; names in them are quoted)

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from headway.adapters.postgres.link import Link
from headway.adapters.postgres.selecting import AsRead
from headway.adapters.postgres.values import document
from headway.adapters.postgres.views import (
    TABLE,
    given_up_id,
    has_flag,
    in_state,
    quoted,
    text_of,
)
from headway.core.document import STATUS
from headway.core.lifecycle import Lifecycle, State
from headway.core.unreadable import UNREADABLE, is_stand_in
from headway.core.writes import ID, Document

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
_REMOVE_UNREADABLE = f"""
delete from {TABLE} there using unnest($2::text[], $3::text[]) as was (id, body)
where there.collection = $1 and there.id = was.id and there.body::text = was.body
returning there.id
"""
_BY_WORDS = frozenset({State.PENDING, State.FAILED, State.GIVEN_UP})


class PostgresDesk:
    """Changes documents where their status is as it was read."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def browse(
        self, lifecycle: Lifecycle, states: Sequence[State], *, page: int
    ) -> AsyncIterator[Sequence[Document]]:
        statement, after = _page(lifecycle, frozenset(states)), ""
        while states:
            rows = await self._link.fetch(statement, after, page)
            read = [document(one, body) for one, body in rows]
            if found := [each for each in read if lifecycle.state(each) in states]:
                yield found
            if len(rows) < page:
                return
            after = rows[-1][0]

    async def collections(self) -> Sequence[str]:
        return [row[0] for row in await self._link.fetch(_COLLECTIONS)]

    async def change(
        self, collection: str, documents: Sequence[Document], changes: Mapping[str, Any]
    ) -> frozenset[str]:
        if not documents:
            return frozenset()
        as_read = AsRead(collection, (STATUS,), documents)
        each = {document[ID]: changes for document in documents}
        return await self._link.run(lambda connection: as_read.change(connection, each))

    async def remove(self, collection: str, documents: Sequence[Document]) -> frozenset[str]:
        if not documents:
            return frozenset()
        readable = [each for each in documents if not is_stand_in(each)]
        as_read = AsRead(collection, (STATUS,), readable)
        others = {each[ID]: each[UNREADABLE] for each in documents if is_stand_in(each)}
        values = collection, list(others), list(others.values())

        async def work(connection: Any) -> frozenset[str]:
            removed = await as_read.remove(connection) if readable else frozenset()
            rows = await connection.fetch(_REMOVE_UNREADABLE, *values) if others else ()
            return removed | {row[0] for row in rows}

        return await self._link.run(work)

    async def move(self, collection: str, documents: Sequence[Document], to: str) -> frozenset[str]:
        if not documents:
            return frozenset()
        as_read = AsRead(collection, (STATUS,), documents)
        return await self._link.run(lambda connection: as_read.move(connection, to))


def _page(lifecycle: Lifecycle, states: frozenset[State]) -> str:
    """Give the statement for a page in the order of ids, without most of what is not wanted."""
    if states == {State.GIVEN_UP}:
        key = given_up_id(lifecycle)
        return f"""
            select id, body::text from {TABLE}
            where {key} is not null and {key} > $1 order by {key} limit $2
        """
    wanted = ""
    if states <= _BY_WORDS:
        if states & {State.PENDING, State.FAILED}:
            states |= {State.PENDING, State.FAILED}  # by times, which it may read differently
        named = " or ".join(f"({in_state(lifecycle, state)})" for state in sorted(states))
        wanted = f"and ({named})"
    elif State.PROCESSED not in states and lifecycle.flag is not None:
        wanted = f"and not {has_flag(lifecycle.flag)}"
    elif State.PROCESSED not in states:
        words = ", ".join(map(quoted, lifecycle.processed_words))
        wanted = f"and coalesce({text_of(STATUS)} not in ({words}), true)"
    return f"""
        select id, body::text from {TABLE}
        where collection = {quoted(lifecycle.collection)} {wanted} and id > $1
        order by id limit $2
    """
