"""Leases by name, as rows."""

import sqlite3
from collections.abc import Sequence
from datetime import timedelta

from headway.adapters.sqlite.reader import Readers
from headway.adapters.sqlite.rows import seconds
from headway.adapters.sqlite.writer import Writer
from headway.ports.clock import Clock

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
    """Who holds what. All who use one file are on one machine, and so have one clock."""

    def __init__(self, writer: Writer, readers: Readers, clock: Clock) -> None:
        self._writer = writer
        self._readers = readers
        self._clock = clock

    async def hold(self, name: str, token: str, lease: timedelta) -> bool:
        def work(connection: sqlite3.Connection) -> bool:
            now = self._clock.now()  # not before it is our turn: that may take a while
            connection.execute(_OVER, (seconds(now),))
            values = (name, token, seconds(now + lease))
            return connection.execute(_HOLD, values).rowcount == 1

        return await self._writer.run(work)

    async def let_go(self, name: str, token: str) -> None:
        await self._writer.run(lambda c: c.execute(_LET_GO, (name, token)).rowcount)

    async def held(self, prefix: str) -> Sequence[str]:
        values = {"now": seconds(self._clock.now()), "prefix": prefix}
        rows = await self._readers.run(lambda c: c.execute(_HELD, values).fetchall())
        return [name for (name,) in rows]
