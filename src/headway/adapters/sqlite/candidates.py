"""What may be stuck, found by indexes and claimed in one commit."""

# ruff: noqa: S608 (statements are put together from parts of our own; names in them are quoted)

import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from headway.adapters.sqlite.reader import Readers
from headway.adapters.sqlite.selecting import as_read, fetch, put, read_row
from headway.adapters.sqlite.stuck import (
    AFTER_ID,
    UNDATED,
    Expressions,
    Question,
    Range,
    question,
    time_of,
    time_text,
)
from headway.adapters.sqlite.writer import Writer
from headway.core.beginning import UNCLAIMED
from headway.core.document import CLAIM_TOKEN, FARTHEST_AHEAD
from headway.core.lifecycle import State
from headway.core.sweep import SweepRule, claimed, given_back, given_up, watched
from headway.core.writes import ID, Document
from headway.ports.candidates import Claim, Tally, View

_INDEXES = "select name from sqlite_master where type = 'index'"
_LOG = logging.getLogger("headway")
_LOOKED_AT = 100
"""Of the oldest times, until one is found that is a time for everybody."""


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
        asked = question(rule, view, now)
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

    async def _page(self, statement: str, left: Range, page: int) -> list[tuple[str, str, Any]]:
        values = (left.above, left.below, page)
        return await self._readers.run(lambda c: c.execute(statement, values).fetchall())

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
        return await self._readers.run(lambda connection: _tally(connection, rule, now))


def _readable(rows: Iterable[tuple[str, str, Any]], rule: SweepRule) -> list[Document]:
    """Read rows; what somebody else's program wrote and nobody can read is named in the log."""
    read = {one: read_row(one, body) for _, one, body in rows}
    lost = [one for one, document in read.items() if document is None]
    if lost:
        _LOG.warning(
            "%s: %d documents are left alone, for nobody can read them (the first is %.200r): "
            "write each as a JSON object",
            rule.collection,
            len(lost),
            lost[0],
        )
    return [document for document in read.values() if document is not None]


def _execute(connection: sqlite3.Connection, statement: str) -> None:
    connection.execute(statement)


def _tally(connection: sqlite3.Connection, rule: SweepRule, now: datetime) -> Tally:
    sql = Expressions(rule.lifecycle)
    views = [question(rule, view, now) for view in (View.FAILED, View.UNMOVED)]
    farthest = time_text(now + FARTHEST_AHEAD)
    times = [_oldest(connection, each, farthest) for each in views]
    times += [_oldest_made(connection, each, sql.created, farthest) for each in views]
    given = f"{sql.stage} = '{State.GIVEN_UP}'"
    found = sum(
        _number(connection, f"{each.which} and {each.key} > ? and {each.key} < ?", part)
        for each in views
        for part in each.ranges
    )
    return Tally(
        stuck=found - _young(connection, sql, views[-1], time_text(now - rule.grace), farthest),
        given_up=_number(connection, given),
        oldest=min((time for time in times if time is not None), default=None),
    )


def _number(connection: sqlite3.Connection, which: str, part: Range | None = None) -> int:
    values = () if part is None else (part.above, part.below)
    found = connection.execute(f"select count(*) from headway_documents where {which}", values)
    return int(found.fetchone()[0])


def _young(
    connection: sqlite3.Connection, sql: Expressions, asked: Question, since: str, farthest: str
) -> int:
    """Count what was never attempted and made only just now: its event may be on its way."""
    statement = f"""
        select count(*) from headway_documents
        where {asked.which} and {asked.key} > ? and {asked.key} < ?
        and {sql.created} > ? and {sql.created} <= ? and not coalesce({sql.attempts} > 0, false)
    """
    counted = [
        connection.execute(statement, (*each, since, farthest)) for each in _undated(farthest)
    ]
    return sum(int(found.fetchone()[0]) for found in counted)


def _undated(farthest: str) -> tuple[tuple[str, str], ...]:
    """Give the keys of what has no time, or one that is none."""
    return ("", UNDATED), (f"{farthest}{AFTER_ID}", "~")


def _oldest(connection: sqlite3.Connection, asked: Question, farthest: str) -> datetime | None:
    """Say when the oldest was attempted, of those of which that is known."""
    statement = asked.page(newest_first=False)
    for part in reversed(asked.ranges):
        above, below = max(part.above, UNDATED), min(part.below, f"{farthest}{AFTER_ID}")
        rows = connection.execute(statement, (above, below, _LOOKED_AT)).fetchall()
        if (found := _first_time(key for key, _, _ in rows)) is not None:
            return found
    return None


def _oldest_made(
    connection: sqlite3.Connection, asked: Question, created: str, farthest: str
) -> datetime | None:
    """Say when the oldest was made, of those of which nobody knows when they were attempted."""
    statement = f"""
        select {created} from headway_documents
        where {asked.which} and {asked.key} > ? and {asked.key} < ? and {created} <= ?
        order by 1 limit {_LOOKED_AT}
    """
    undated = _undated(farthest)
    rows = [row for each in undated for row in connection.execute(statement, (*each, farthest))]
    return _first_time(sorted(time for (time,) in rows))


def _first_time(texts: Iterable[str]) -> datetime | None:
    times = (time_of(text) for text in texts)
    return next((time for time in times if time is not None), None)
