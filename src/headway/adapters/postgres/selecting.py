"""Change documents that are as they were read, many by one statement.

Rows are locked in the order of an index, that of their ids. Whoever has to wait for one looks at it
again when it is theirs: who comes second finds what the first one made of it. A sweeper does not
wait: what somebody else has locked is for its next run.
"""

# ruff: noqa: S608 (statements are put together from parts of our own; names in them are quoted)

from collections.abc import Mapping, Sequence
from typing import Any

from headway.adapters.postgres import document_rows
from headway.adapters.postgres.values import by_id, findable, jsonb
from headway.adapters.postgres.views import TABLE, quoted
from headway.core.writes import ID, Document

_INSERT = f"""
insert into {TABLE} (collection, id, body)
select $3, id, body from {TABLE} where collection = $1 and id = any($2::text[]) order by id
on conflict do nothing returning id
"""
_CHANGE = f"""
update {TABLE} set body = body || ($3::jsonb -> id)
where collection = $1 and id = any($2::text[])
"""
_DELETE = f"delete from {TABLE} where collection = $1 and id = any($2::text[])"


class AsRead:
    """Documents as they were read, and the fields that tell whether they still are."""

    def __init__(
        self, collection: str, fields: Sequence[str], documents: Sequence[Document]
    ) -> None:
        self._collection = collection
        self._fields = fields
        self._odd = {
            document[ID]: document
            for document in documents
            if any(_is_inexact(document.get(field)) for field in fields)
        }
        was = {
            one: jsonb({field: document.get(field) for field in fields}, f"{collection}/{one}")
            for one, document in ((document[ID], document) for document in documents)
            if findable(one)
        }
        now = ", ".join(f"{quoted(field)}, body -> {quoted(field)}" for field in fields)
        self._which = (
            "collection = $1 and id = any($2::text[]) "
            f"and jsonb_build_object({now}) = $3::jsonb -> id"
        )
        self._ids = list(was)
        self._was = by_id(was)

    async def change(
        self, connection: Any, changes: Mapping[str, Mapping[str, Any]]
    ) -> frozenset[str]:
        """Change fields, given by document."""
        fields = {one: jsonb(changes[one], f"{self._collection}/{one}") for one in self._ids}
        statement = f"update {TABLE} set body = body || ($4::jsonb -> id) where {self._which}"
        return await self._say(connection, f"{statement} returning id", by_id(fields))

    async def change_free(
        self, connection: Any, changes: Mapping[str, Mapping[str, Any]]
    ) -> frozenset[str]:
        """Likewise, without waiting: what somebody else has locked is about to change anyway."""
        statement = f"select id from {TABLE} where {self._which} order by id for update skip locked"
        free = sorted(await self._say(connection, statement) | await self._same_odd(connection))
        fields = {one: jsonb(changes[one], f"{self._collection}/{one}") for one in free}
        await connection.execute(_CHANGE, self._collection, free, by_id(fields))
        return frozenset(free)

    async def _same_odd(self, connection: Any) -> frozenset[str]:
        """Lock those of which the database keeps more digits than we do; compare what we read."""
        keys = [(self._collection, one) for one in self._odd]
        found = await document_rows.lock(connection, keys, waits=False) if keys else {}
        return frozenset(
            one
            for (_, one), document in found.items()
            if all(document.get(field) == self._odd[one].get(field) for field in self._fields)
        )

    async def remove(self, connection: Any) -> frozenset[str]:
        return await self._say(connection, f"delete from {TABLE} where {self._which} returning id")

    async def move(self, connection: Any, to: str) -> frozenset[str]:
        statement = f"select id from {TABLE} where {self._which} order by id for update"
        held = await self._say(connection, statement)
        rows = await connection.fetch(_INSERT, self._collection, list(held), to)
        moved = [row[0] for row in rows]
        await connection.execute(_DELETE, self._collection, moved)
        return frozenset(moved)

    async def _say(self, connection: Any, statement: str, *more: str) -> frozenset[str]:
        values = self._collection, self._ids, self._was
        rows = await connection.fetch(statement, *values, *more)
        return frozenset(row[0] for row in rows)


def _is_inexact(value: object) -> bool:
    """Say whether a value may hold more digits in the database, somewhere inside."""
    if isinstance(value, dict):
        return any(map(_is_inexact, value.values()))
    return any(map(_is_inexact, value)) if isinstance(value, list) else isinstance(value, float)
