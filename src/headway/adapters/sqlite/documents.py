"""Documents as rows of JSON text, and what a commit writes to them."""

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from sys import maxsize
from typing import Any

import msgspec

from headway.adapters.sqlite.reader import Readers
from headway.adapters.sqlite.selecting import OVER, PUT, fetch_rows, read_row, shown_row
from headway.adapters.sqlite.statements import as_json, insert
from headway.adapters.sqlite.stuck import alike
from headway.adapters.sqlite.tallying import read_alike
from headway.adapters.sqlite.writer import Writer
from headway.core.beginning import Beginning, Begun, How, begun_together
from headway.core.changes import Changes, wanted
from headway.core.document import LEASE_TOKEN, LEASE_UNTIL, WAITING
from headway.core.lifecycle import Lifecycle, State, by_state
from headway.core.travel import instant
from headway.core.writes import ID, Document, Write, is_exact, matches, nearby

_FETCH = """
select '[' || coalesce(group_concat(
    '[' || json_quote(id) || ',' || case typeof(body) when 'text' then body else 'null' end || ']'
, ','), '') || ']'
from headway_documents where collection = ? and id in (select value from json_each(?))
"""
_FETCHED = msgspec.json.Decoder(list[tuple[str, Document]])

# Other programs may have written something else.
_IS_DOCUMENT = """
case when typeof(body) <> 'text' then false when not json_valid(body) then false
else json_type(body) = 'object' end
"""
_PLAIN_FIELD = re.compile(r"[A-Za-z0-9_-]+")
_MOST_CONDITIONS = 50
_WIDEST = 1 << 63
_KINDS = {str: "text", list: "array", dict: "object"}


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

    async def count(self, collection: str, where: Mapping[str, Any]) -> int:
        return await self._readers.run(lambda c: _count(c, collection, where))

    async def tally(self, lifecycle: Lifecycle) -> Mapping[State, int]:
        statement = alike(lifecycle)
        rows = await self._readers.run(lambda connection: connection.execute(statement).fetchall())
        return by_state(lifecycle, map(read_alike(lifecycle), rows))

    async def begin(self, beginnings: Sequence[Beginning]) -> Sequence[Mapping[str, Begun]]:
        return await self._writer.run(lambda c: [_begin(c, beginning) for beginning in beginnings])

    async def renew(self, collection: str, tokens: Mapping[str, str], until: datetime) -> int:
        changes = {LEASE_UNTIL: instant(until)}
        return await self._writer.run(lambda c: _change(c, collection, tokens, changes))

    async def leave(self, collection: str, tokens: Mapping[str, str], until: datetime) -> int:
        changes = {LEASE_TOKEN: WAITING, LEASE_UNTIL: instant(until)}
        return await self._writer.run(lambda c: _change(c, collection, tokens, changes))


def fetch_for(connection: sqlite3.Connection, writes: Iterable[Write]) -> Changes:
    """Read what writes are about, inside the transaction."""
    return Changes(
        {
            (collection, one): document
            for collection, ids in wanted(writes).items()
            for one, document in _fetch(connection, collection, ids).items()
        }
    )


def store(connection: sqlite3.Connection, changes: Changes) -> None:
    rows = [(*key, as_json(document)) for key, document in changes.changed.items()]
    insert(connection, PUT, rows, OVER)


def _fetch(
    connection: sqlite3.Connection, collection: str, ids: Sequence[str]
) -> dict[str, Document]:
    """Give what is there; for what nobody can read, a stand-in, which no write changes."""
    found = connection.execute(_FETCH, (collection, as_json(ids))).fetchone()[0]
    try:
        return dict(_FETCHED.decode(found))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        # One of them is no document: which, comes out row by row.
        rows = fetch_rows(connection, collection, ids)
        return {one: shown_row(one, body) for one, body in rows}


def _begin(connection: sqlite3.Connection, beginning: Beginning) -> dict[str, Begun]:
    collection = beginning.lifecycle.collection
    found = _fetch(connection, collection, beginning.ids)
    answers = begun_together(found, beginning)
    rows = [
        (collection, one, as_json(answer.document))
        for one, answer in answers.items()
        if answer.how is How.BEGUN
    ]
    insert(connection, PUT, rows, OVER)
    return answers


def _change(
    connection: sqlite3.Connection, collection: str, tokens: Mapping[str, str], changes: Document
) -> int:
    """Change documents that still bear their tokens."""
    found = _fetch(connection, collection, list(tokens))
    rows = [
        (collection, one, as_json({**document, **changes}))
        for one, document in found.items()
        if document.get(LEASE_TOKEN) == tokens[one]
    ]
    insert(connection, PUT, rows, OVER)
    return len(rows)


def _find(
    connection: sqlite3.Connection, collection: str, where: Mapping[str, Any], limit: int
) -> Iterator[Document]:
    conditions, values = _narrowed(where)
    rows = connection.execute(
        f"select id, body from headway_documents "  # noqa: S608 (values are bound)
        f"where collection = :collection{conditions} order by id",
        {"collection": collection, **values},
    )
    for one, body in rows:
        if limit <= 0:
            return
        document = read_row(one, body)
        if document is not None and matches(document, where):
            limit -= 1
            yield document


def _count(connection: sqlite3.Connection, collection: str, where: Mapping[str, Any]) -> int:
    if not is_exact(where):
        return sum(1 for _ in _find(connection, collection, where, maxsize))
    conditions, values = _narrowed(where)
    (number,) = connection.execute(
        f"select count(*) from headway_documents "  # noqa: S608 (values are bound)
        f"where collection = :collection and {_IS_DOCUMENT}{conditions}",
        {"collection": collection, **values},
    ).fetchone()
    return int(number)


def _narrowed(where: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Let SQLite leave out what does not match; `matches` compares what is in lists and objects."""
    conditions, values = list[str](), dict[str, Any]()
    for number, (field, value) in enumerate(list(where.items())[:_MOST_CONDITIONS]):
        name = f"field{number}"
        if field == ID:
            conditions.append(f"id = :{name}")
            values[name] = value if isinstance(value, str) else None
            continue
        if _PLAIN_FIELD.fullmatch(field):
            values[name] = f'$."{field}"'
            kind, held = f"json_type(body, :{name})", f"json_extract(body, :{name})"
        else:
            values[name] = field
            kind, held = (
                f"(select {column} from json_each(body) where key = :{name})"  # noqa: S608 (names of our own)
                for column in ("type", "value")
            )
        condition, its = _condition(kind, held, value, f"value{number}")
        # Other programs may have written what is no JSON.
        conditions.append(f"case when json_valid(body) then {condition} end")
        values |= its
    return "".join(f" and {each}" for each in conditions), values


def _condition(  # noqa: PLR0911 (one for each kind of value)
    kind: str, held: str, value: Any, name: str
) -> tuple[str, dict[str, Any]]:
    """Ask whether a field, of which the JSON type and the value are given, holds a value."""
    match value:
        case None:
            return f"coalesce({kind}, 'null') = 'null'", {}
        case bool():
            return f"{kind} = '{'true' if value else 'false'}'", {}
        case int() | float():
            lowest, highest = nearby(value)
            bounds = {f"{name}_lowest": lowest, f"{name}_highest": highest}
            near = f"{held} between :{name}_lowest and :{name}_highest"
            if isinstance(value, int) and abs(value) < _WIDEST:
                exact = (
                    f"case {kind} when 'integer' then {held} = :{name} when 'real' then {near} end"
                )
                return exact, {name: value, **bounds}
            return f"{kind} in ('integer', 'real') and {near}", bounds
        case str() if "\0" not in value:  # some versions of SQLite read no further than that
            return f"{kind} = 'text' and {held} = :{name}", {name: value}
        case str() | list() | dict():
            return f"{kind} = '{_KINDS[type(value)]}'", {}
        case _:
            return "true", {}
