"""What may be stuck, found by indexes and claimed by one statement."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from headway.adapters.postgres import document_rows
from headway.adapters.postgres.link import Link
from headway.adapters.postgres.preparing import prepare
from headway.adapters.postgres.selecting import AsRead
from headway.adapters.postgres.tallying import counting, read_tally
from headway.adapters.postgres.values import documents, jsonb
from headway.adapters.postgres.views import TABLE, Question, leased, question, text_of
from headway.core.beginning import UNCLAIMED
from headway.core.document import CLAIM_TOKEN
from headway.core.sweep import SweepRule, claimed, given_back, given_up, watched
from headway.core.writes import ID, Document
from headway.ports.candidates import Claim, Tally, View
from headway.ports.clock import Clock

IN_ORDER = "set local enable_sort = off"
"""A planner that knows little of a table would sort all of it for every page."""

# A claim on a document that somebody else has locked ends by itself.
_PUBLISHED = f"""
with free as (
    select id from {TABLE}
    where collection = $1 and id = any($2::text[]) and {text_of(CLAIM_TOKEN)} = $3
    order by id for update skip locked
)
update {TABLE} there set body = body || $4::jsonb
from free where there.collection = $1 and there.id = free.id
"""  # noqa: S608 (names of our own)

_Last = tuple[Any, str]


class PostgresCandidates:
    """Reads page by page, each in a transaction of its own: none is open between two pages."""

    def __init__(self, link: Link, clock: Clock) -> None:
        self._link = link
        self._clock = clock

    async def prepare(self, rules: Sequence[SweepRule]) -> None:
        await prepare(self._link, self._clock, [rule.lifecycle for rule in rules])

    async def scan(
        self, rule: SweepRule, view: View, now: datetime, *, newest_first: bool, page: int
    ) -> AsyncIterator[Sequence[Document]]:
        asked = question(rule, view, now)
        for within in reversed(asked.ranges) if newest_first else asked.ranges:
            last: _Last | None = None
            while True:
                statement = asked.page(within, newest_first=newest_first, follows=last is not None)
                rows = await self._page(statement, asked, page, last)
                if found := documents(((one, body) for _, one, body in rows), rule.collection):
                    yield found
                if len(rows) < page:
                    break
                last = rows[-1][0], rows[-1][1]

    async def _page(
        self, statement: str, asked: Question, page: int, last: _Last | None
    ) -> Sequence[Any]:
        return await self._in_order(statement, asked.old, asked.farthest, page, *(last or ()))

    async def _in_order(self, statement: str, *values: Any) -> Sequence[Any]:
        async def work(connection: Any) -> Sequence[Any]:
            await connection.execute(IN_ORDER)
            rows: Sequence[Any] = await connection.fetch(statement, *values)
            return rows

        return await self._link.run(work)

    async def leased(self, rule: SweepRule, now: datetime, at_most: int) -> int:
        statement, farthest = leased(rule, now)
        (row,) = await self._in_order(statement, now, farthest, at_most)
        return int(row[0])

    async def claim(
        self, rule: SweepRule, claims: Sequence[Claim], token: str, now: datetime, lease: timedelta
    ) -> frozenset[str]:
        until = now + lease
        changes = {
            each.document[ID]: claimed(
                each.document, each.requeue, token=token, until=until, now=now
            )
            for each in claims
        }
        return await self._change(rule, [each.document for each in claims], changes)

    async def give_up(
        self, rule: SweepRule, documents: Sequence[Document], now: datetime
    ) -> frozenset[str]:
        changes = {document[ID]: given_up(rule, now) for document in documents}
        return await self._change(rule, documents, changes)

    async def _change(
        self,
        rule: SweepRule,
        documents: Sequence[Document],
        changes: Mapping[str, Mapping[str, Any]],
    ) -> frozenset[str]:
        if not documents:
            return frozenset()
        as_read = AsRead(rule.collection, watched(rule), documents)
        return await self._link.run(lambda connection: as_read.change_free(connection, changes))

    async def published(self, rule: SweepRule, ids: Sequence[str], token: str) -> None:
        values = rule.collection, list(ids), token, jsonb(UNCLAIMED, rule.collection)
        if ids:
            await self._link.run(lambda connection: connection.execute(_PUBLISHED, *values))

    async def give_back(self, rule: SweepRule, ids: Sequence[str], token: str) -> None:
        keys = [(rule.collection, one) for one in dict.fromkeys(ids)]

        async def work(connection: Any) -> None:
            before = await document_rows.lock(connection, keys, waits=False)
            after = {
                key: {**document, **given_back(document)}
                for key, document in before.items()
                if document.get(CLAIM_TOKEN) == token
            }
            await document_rows.store(connection, before, after)

        if ids:
            await self._link.run(work)

    async def tally(self, rule: SweepRule, now: datetime) -> Tally:
        statement, values = counting(rule, now)
        (row,) = await self._in_order(statement, *values)
        return read_tally(row)
