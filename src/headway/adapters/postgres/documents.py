"""Documents, as handlers see them."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from math import isfinite
from sys import maxsize
from typing import Any

import asyncpg

from headway.adapters.postgres import document_rows
from headway.adapters.postgres.link import Link
from headway.adapters.postgres.tallying import alike, read_alike
from headway.adapters.postgres.values import document, findable, json_text
from headway.core.beginning import Beginning, Begun, How, begun_together
from headway.core.changes import Key
from headway.core.document import LEASE_TOKEN, LEASE_UNTIL, WAITING
from headway.core.errors import UnstorableError
from headway.core.lifecycle import Lifecycle, State, by_state
from headway.core.travel import instant
from headway.core.unreadable import is_stand_in
from headway.core.writes import ID, Document, is_exact, matches, nearby
from headway.ports.documents import locked

_FETCH = """
select id, body::text from headway_documents where collection = $1 and id = any($2::text[])
"""
_FIND = """
select id, body::text from headway_documents
where collection = $1 and id > $2{} order by id limit $3
"""
_COUNT = """
select count(*) from (
    select from headway_documents where collection = $1 and id > $2{} limit $3
) as found
"""
_CHANGE = f"""
with free as (
    select id from headway_documents
    where collection = $1 and id = any($2::text[]) and body ->> '{LEASE_TOKEN}' = $3::jsonb ->> id
    order by id for update skip locked
)
update headway_documents there set body = body || $4::jsonb
from free where there.collection = $1 and there.id = free.id
returning 1
"""  # noqa: S608 (names of our own)
_A_MOMENT = "set local lock_timeout = '1s'"
"""Our own transactions take less. Whoever keeps a document for longer is somebody else."""
_AT_ONCE = 500
_MOST_CONDITIONS = 50


class PostgresDocuments:
    """Reads documents, and takes down that operations have begun."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def fetch(self, collection: str, ids: Sequence[str]) -> Mapping[str, Document]:
        wanted = [one for one in dict.fromkeys(ids) if findable(one)]
        if not wanted or not findable(collection):
            return {}
        rows = await self._link.fetch(_FETCH, collection, wanted)
        found = {one: document(one, body) for one, body in rows}
        return {one: found[one] for one in wanted if one in found}

    async def find(
        self, collection: str, where: Mapping[str, Any], limit: int
    ) -> Sequence[Document]:
        conditions, values = _narrowed(where)
        statement = _FIND.format(conditions)
        found: list[Document] = []
        after, at_once = "", max(min(limit, _AT_ONCE), 1)
        while len(found) < limit and findable(collection):
            rows = await self._link.fetch(statement, collection, after, at_once, *values)
            every = (document(one, body) for one, body in rows)
            found += [each for each in every if matches(each, where) and not is_stand_in(each)]
            if len(rows) < at_once:
                break
            after = rows[-1][0]
        return found[:limit]

    async def count(self, collection: str, where: Mapping[str, Any]) -> int:
        if not is_exact(where):
            return len(await self.find(collection, where, maxsize))
        if not findable(collection):
            return 0
        conditions, values = _narrowed(where)
        rows = await self._link.fetch(_COUNT.format(conditions), collection, "", None, *values)
        return int(rows[0][0])

    async def tally(self, lifecycle: Lifecycle) -> Mapping[State, int]:
        if not findable(lifecycle.collection):
            return {}
        rows = await self._link.fetch(alike(lifecycle), lifecycle.collection)
        return by_state(lifecycle, map(read_alike(lifecycle), rows))

    async def begin(self, beginnings: Sequence[Beginning]) -> Sequence[Mapping[str, Begun]]:
        if not any(beginning.ids for beginning in beginnings):
            return [{} for _ in beginnings]
        try:
            answers = await self._link.run(lambda connection: _begin(connection, beginnings))
        except asyncpg.RaiseError as error:
            collections = {beginning.lifecycle.collection for beginning in beginnings}
            what = f"what a trigger of the database refuses: {error}"
            raise UnstorableError(", ".join(sorted(collections)), "", what) from error
        if kept := _unanswered(answers):
            late = [beginnings[number] for number in kept]
            for number, answer in zip(kept, await self._begin_late(late), strict=True):
                answers[number] = answer
        return [answer or {} for answer in answers]

    async def _begin_late(self, late: Sequence[Beginning]) -> Sequence[Mapping[str, Begun]]:
        """Begin with documents that others had locked: wait a moment for them, and no longer."""
        try:
            answers = await self._link.run(lambda connection: _begin_patiently(connection, late))
        except asyncpg.LockNotAvailableError:
            answers = await self._link.run(lambda connection: _begin(connection, late))
        for number in _unanswered(answers):
            beginning = late[number]
            found = await self.fetch(beginning.lifecycle.collection, beginning.ids)
            answers[number] = {one: locked(each, beginning) for one, each in found.items()}
        return [answer or {} for answer in answers]

    async def renew(self, collection: str, tokens: Mapping[str, str], until: datetime) -> int:
        return await self._change(collection, tokens, {LEASE_UNTIL: instant(until)})

    async def leave(self, collection: str, tokens: Mapping[str, str], until: datetime) -> int:
        changes = {LEASE_TOKEN: WAITING, LEASE_UNTIL: instant(until)}
        return await self._change(collection, tokens, changes)

    async def _change(self, collection: str, tokens: Mapping[str, str], changes: Document) -> int:
        """Change documents that still bear their tokens."""
        given = {one: token for one, token in tokens.items() if findable(f"{one}{token}")}
        if not given:
            return 0
        values = collection, list(given), json_text(given), json_text(changes)
        renewed = await self._link.run(lambda connection: connection.fetch(_CHANGE, *values))
        return len(renewed)


def _unanswered(answers: Sequence[Mapping[str, Begun] | None]) -> list[int]:
    return [number for number, answer in enumerate(answers) if answer is None]


def _keys(beginnings: Sequence[Beginning]) -> dict[Key, None]:
    return dict.fromkeys(
        (beginning.lifecycle.collection, one)
        for beginning in beginnings
        for one in beginning.ids
        if findable(one)
    )


async def _begin_patiently(
    connection: Any, beginnings: Sequence[Beginning]
) -> list[Mapping[str, Begun] | None]:
    await connection.execute(_A_MOMENT)
    await document_rows.lock(connection, _keys(beginnings))
    return await _begin(connection, beginnings)


async def _begin(
    connection: Any, beginnings: Sequence[Beginning]
) -> list[Mapping[str, Begun] | None]:
    """Let operations begin; None for those of whose documents somebody else has locked one."""
    keys = _keys(beginnings)
    before = await document_rows.lock(connection, keys, waits=False)
    missing = [key for key in keys if key not in before]
    kept = await document_rows.there(connection, missing) if missing else set()
    now = dict(before)
    after: dict[Key, Document] = {}
    answers: list[Mapping[str, Begun] | None] = []
    for beginning in beginnings:
        collection = beginning.lifecycle.collection
        if any((collection, one) in kept for one in beginning.ids):
            answers.append(None)
            continue
        found = {one: now[collection, one] for one in beginning.ids if (collection, one) in now}
        answer = begun_together(found, beginning)
        for one, each in answer.items():
            if each.how is How.BEGUN:
                now[collection, one] = after[collection, one] = each.document
        answers.append(answer)
    await document_rows.store(connection, before, after)
    return answers


def _narrowed(where: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Let PostgreSQL leave out what does not match; `matches` compares lists and objects."""
    conditions, values = "", list[Any]()

    def bound(value: Any, kind: str) -> str:
        values.append(value)
        return f"${len(values) + 3}::{kind}"

    for field, value in list(where.items())[:_MOST_CONDITIONS]:
        if not findable(field) or (isinstance(value, str) and not findable(value)):
            conditions += "" if value is None else " and false"
        elif field == ID:
            conditions += f" and id = {bound(value if isinstance(value, str) else None, 'text')}"
        else:
            named = bound(field, "text")
            conditions += (
                f" and {_condition(f'body -> {named}', f'body ->> {named}', value, bound)}"
            )
    return conditions, values


def _condition(  # noqa: PLR0911 (one for each kind of value)
    held: str, text: str, value: Any, bound: Callable[[Any, str], str]
) -> str:
    """Ask whether a field, given as jsonb and as text, holds a value."""
    kind = f"jsonb_typeof({held})"
    match value:
        case None:
            return f"{text} is null"
        case bool():
            return f"{held} = '{'true' if value else 'false'}'::jsonb"
        case int() | float():
            lowest, highest = nearby(value)
            if not (isfinite(lowest) and isfinite(highest)):
                return f"{kind} = 'number'"
            bounds = f"{bound(Decimal(lowest), 'numeric')} and {bound(Decimal(highest), 'numeric')}"
            return f"case {kind} when 'number' then ({text})::numeric between {bounds} end"
        case str():
            return f"{kind} = 'string' and {text} = {bound(value, 'text')}"
        case list() | dict():
            return f"{kind} = '{'array' if isinstance(value, list) else 'object'}'"
        case _:
            return "true"
