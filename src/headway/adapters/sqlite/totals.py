"""Totals, as rows: added to and read in one commit."""

import sqlite3
from collections.abc import Mapping

from headway.adapters.sqlite.statements import insert
from headway.adapters.sqlite.writer import Writer

_ADD = "into headway_totals (family, name, total)"
_TO = "on conflict (family, name) do update set total = total + excluded.total"
_ALL = "select name, total from headway_totals where family = ?"


class SqliteTotals:
    """Adds up what processes count that do not live long."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def add(self, group: str, increments: Mapping[str, float]) -> Mapping[str, float]:
        rows = [(group, name, by) for name, by in increments.items()]

        def work(connection: sqlite3.Connection) -> Mapping[str, float]:
            insert(connection, _ADD, rows, _TO)
            return dict(connection.execute(_ALL, (group,)).fetchall())

        return await self._writer.run(work)
