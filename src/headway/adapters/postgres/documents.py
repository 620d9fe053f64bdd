"""Documents, as handlers see them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from headway.adapters.postgres import document_rows
from headway.adapters.postgres.link import Link
from headway.adapters.postgres.values import document, findable, json_text
from headway.core.beginning import Beginning, Begun, How, begun
from headway.core.changes import Key
from headway.core.document import LEASE_TOKEN, LEASE_UNTIL
from headway.core.travel import instant
from headway.core.writes import Document, matches

_FETCH = """
select id, body::text from headway_documents where collection = $1 and id = any($2::text[])
"""
_FIND = """
select id, body::text from headway_documents
where collection = $1 and id > $2{} order by id limit $3
"""
_RENEW = f"""
update headway_documents set body = body || jsonb_build_object('{LEASE_UNTIL}', $4::text)
where collection = $1 and id = any($2::text[]) and body ->> '{LEASE_TOKEN}' = $3::jsonb ->> id
returning 1
"""  # noqa: S608 (names of our own)
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
            found += [each for each in every if matches(each, where)]
            if len(rows) < at_once:
                break
            after = rows[-1][0]
        return found[:limit]

    async def begin(self, beginnings: Sequence[Beginning]) -> Sequence[Mapping[str, Begun]]:
        if not any(beginning.ids for beginning in beginnings):
            return [{} for _ in beginnings]
        return await self._link.run(lambda connection: _begin(connection, beginnings))

    async def renew(self, collection: str, tokens: Mapping[str, str], until: datetime) -> int:
        given = {one: token for one, token in tokens.items() if findable(f"{one}{token}")}
        if not given:
            return 0
        values = collection, list(given), json_text(given), instant(until)
        renewed = await self._link.run(lambda connection: connection.fetch(_RENEW, *values))
        return len(renewed)


async def _begin(connection: Any, beginnings: Sequence[Beginning]) -> list[dict[str, Begun]]:
    before = await document_rows.lock(
        connection,
        dict.fromkeys(
            (beginning.lifecycle.collection, one)
            for beginning in beginnings
            for one in beginning.ids
            if findable(one)
        ),
    )
    now = dict(before)
    after: dict[Key, Document] = {}
    answers: list[dict[str, Begun]] = []
    for beginning in beginnings:
        answer: dict[str, Begun] = {}
        for one in beginning.ids:
            key = beginning.lifecycle.collection, one
            if key not in now:
                continue
            answer[one] = begun(now[key], beginning)
            if answer[one].how is How.BEGUN:
                now[key] = after[key] = answer[one].document
        answers.append(answer)
    await document_rows.store(connection, before, after)
    return answers


def _narrowed(where: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Let PostgreSQL leave out most of what cannot match; `matches` has the last word."""
    conditions, values = "", []
    for field, value in list(where.items())[:_MOST_CONDITIONS]:
        if not findable(field) or (isinstance(value, str) and not findable(value)):
            continue
        if value is None:
            values.append(field)
            conditions += f" and body ->> ${len(values) + 3}::text is null"
        elif isinstance(value, str):
            values += (field, value)
            conditions += f" and body ->> ${len(values) + 2}::text = ${len(values) + 3}"
    return conditions, values
