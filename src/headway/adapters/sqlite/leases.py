"""Leases by name, as rows."""

import sqlite3
from collections.abc import Sequence
from datetime import timedelta

from headway.adapters.sqlite.reader import Readers
from headway.adapters.sqlite.timeline import Timeline
from headway.adapters.sqlite.writer import Writer

_OVER = "delete from headway_leases where until <= ?"
_HOLD = """
insert into headway_leases (name, token, until) values (?, ?, ?)
on conflict (name) do update set until = excluded.until where token = excluded.token
"""
_LET_GO = "delete from headway_leases where name = ? and token = ?"
_HELD = """
select name from headway_leases
where until > :now and substr(name, 1, length(:prefix)) = :prefix order by name
"""


class SqliteLeases:
    """Who holds what, by the time of the file: setting the wall clock ends and prolongs nothing."""

    def __init__(self, writer: Writer, readers: Readers, time: Timeline) -> None:
        self._writer = writer
        self._readers = readers
        self._time = time

    async def hold(self, name: str, token: str, lease: timedelta) -> bool:
        def work(connection: sqlite3.Connection) -> bool:
            now = self._time.moment().at  # not before it is our turn: that may take a while
            connection.execute(_OVER, (now,))
            values = (name, token, now + lease.total_seconds())
            return connection.execute(_HOLD, values).rowcount == 1

        return await self._writer.run(work)

    async def let_go(self, name: str, token: str) -> None:
        await self._writer.run(lambda c: c.execute(_LET_GO, (name, token)).rowcount)

    async def held(self, prefix: str) -> Sequence[str]:
        def read(connection: sqlite3.Connection) -> list[str]:
            values = {"now": self._time.moment().at, "prefix": prefix}
            return [name for (name,) in connection.execute(_HELD, values)]

        return await self._readers.run(read)
