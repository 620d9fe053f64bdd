"""What may be stuck, found by indexes and claimed in one commit."""

import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from headway.adapters.sqlite.reader import Readers
from headway.adapters.sqlite.selecting import as_read, fetch, put, read_row
from headway.adapters.sqlite.stuck import Expressions, Range, leased, questions, unreadable
from headway.adapters.sqlite.tallying import tally
from headway.adapters.sqlite.writer import Writer
from headway.core.beginning import UNCLAIMED
from headway.core.document import CLAIM_TOKEN
from headway.core.sweep import SweepRule, claimed, given_back, given_up, watched
from headway.core.writes import ID, Document
from headway.ports.candidates import Claim, Tally, View

_INDEXES = "select name from sqlite_master where type = 'index'"
_LOG = logging.getLogger("headway")


class SqliteCandidates:
    """Reads page by page, each in a transaction of its own: nobody waits for a slow sweeper."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def prepare(self, rules: Sequence[SweepRule]) -> None:
        """Make what is missing, each index in a commit of its own: others write in between."""
        there = {
            name for (name,) in await self._readers.run(lambda c: c.execute(_INDEXES).fetchall())
        }
        for rule in rules:
            for name, statement in Expressions(rule.lifecycle).indexes().items():
                if name not in there:
                    await self._writer.run(partial(_execute, statement=statement))
                    there.add(name)

    async def scan(
        self, rule: SweepRule, view: View, now: datetime, *, newest_first: bool, page: int
    ) -> AsyncIterator[Sequence[Document]]:
        if view is View.UNMOVED:  # once in each sweep
            await self._name_unreadable(rule)
        for asked in await self._readers.run(lambda c: questions(c, rule, view, now)):
            statement = asked.page(newest_first=newest_first)
            for whole in reversed(asked.ranges) if newest_first else asked.ranges:
                left = whole
                while True:
                    rows = await self._page(statement, left, page)
                    if documents := _readable(rows, rule):
                        yield documents
                    if len(rows) < page:
                        break
                    left = left.after(rows[-1][0], newest_first=newest_first)

    async def _name_unreadable(self, rule: SweepRule) -> None:
        """Name in the log what is in no view, because it is no document at all."""
        statement = unreadable(rule.lifecycle)
        number, first = await self._readers.run(lambda c: c.execute(statement).fetchone())
        if number:
            _left_alone(rule, number, first)

    async def _page(self, statement: str, left: Range, page: int) -> list[tuple[str, str, Any]]:
        values = (left.above, left.below, page)
        return await self._readers.run(lambda c: c.execute(statement, values).fetchall())

    async def leased(self, rule: SweepRule, now: datetime, at_most: int) -> int:
        statement, runs = leased(rule, now)
        values = (runs.above, runs.below, at_most)
        (number,) = await self._readers.run(lambda c: c.execute(statement, values).fetchone())
        return int(number)

    async def claim(
        self, rule: SweepRule, claims: Sequence[Claim], token: str, now: datetime, lease: timedelta
    ) -> frozenset[str]:
        requeues = {claim.document[ID]: claim.requeue for claim in claims}
        until = now + lease

        def change(document: Document) -> Document:
            requeue = requeues[document[ID]]
            return claimed(document, requeue, token=token, until=until, now=now)

        return await self._change(rule, [claim.document for claim in claims], change)

    async def give_up(
        self, rule: SweepRule, documents: Sequence[Document], now: datetime
    ) -> frozenset[str]:
        return await self._change(rule, documents, lambda _document: given_up(rule, now))

    async def _change(
        self,
        rule: SweepRule,
        documents: Sequence[Document],
        changes: Callable[[Document], Mapping[str, Any]],
    ) -> frozenset[str]:
        """Change those that are as they were read."""

        def work(connection: sqlite3.Connection) -> frozenset[str]:
            ours = as_read(connection, rule.collection, documents, watched(rule))
            put(connection, rule.collection, ours, changes)
            return frozenset(ours)

        return await self._writer.run(work) if documents else frozenset()

    async def published(self, rule: SweepRule, ids: Sequence[str], token: str) -> None:
        await self._end(rule, ids, token, lambda _document: UNCLAIMED)

    async def give_back(self, rule: SweepRule, ids: Sequence[str], token: str) -> None:
        await self._end(rule, ids, token, given_back)

    async def _end(
        self,
        rule: SweepRule,
        ids: Sequence[str],
        token: str,
        changes: Callable[[Document], Mapping[str, Any]],
    ) -> None:
        def work(connection: sqlite3.Connection) -> None:
            found = fetch(connection, rule.collection, ids)
            ours = {one: each for one, each in found.items() if each.get(CLAIM_TOKEN) == token}
            put(connection, rule.collection, ours, changes)

        if ids:
            await self._writer.run(work)

    async def tally(self, rule: SweepRule, now: datetime) -> Tally:
        return await self._readers.run(lambda connection: tally(connection, rule, now))


def _readable(rows: Iterable[tuple[str, str, Any]], rule: SweepRule) -> list[Document]:
    """Read rows; what somebody else's program wrote and nobody can read is named in the log."""
    read = {one: read_row(one, body) for _, one, body in rows}
    lost = [one for one, document in read.items() if document is None]
    if lost:
        _left_alone(rule, len(lost), lost[0])
    return [document for document in read.values() if document is not None]


def _left_alone(rule: SweepRule, number: int, first: str) -> None:
    _LOG.warning(
        "%s: %d documents are left alone, for nobody can read them (the first is %.200r): "
        "write each as a JSON object, or purge it by its id",
        rule.collection,
        number,
        first,
    )


def _execute(connection: sqlite3.Connection, statement: str) -> None:
    connection.execute(statement)
