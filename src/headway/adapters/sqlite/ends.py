"""How operations ended, where only their records are in the file and their queues elsewhere."""

# ruff: noqa: S608 (statements are put together from parts of our own; values are bound)

import sqlite3
from collections.abc import Mapping, Sequence

from headway.adapters.sqlite.places import AT_ONCE, DONE, ENDS
from headway.adapters.sqlite.reader import Readers
from headway.adapters.sqlite.statements import as_json
from headway.ports.places import Undecided

_WHERE = f"""
with wanted (operation) as (select value from json_each(?))
select operation, 'done in ' || queue from ({ENDS}) where operation in wanted
union all
select operation, 'failed in ' || failed_queue from headway_done
where held is not null and ended = 'failed' and operation in wanted
"""
_UNDECIDED = """
select d.operation, d.queue, d.letter, d.failed_queue from headway_done d
where d.letter is not null and d.ended = 'failed' and d.held is null
  and not exists (
    select 1 from headway_done e
    where e.generation <> '0' and e.operation = d.operation and e.queue = d.queue and e.id > d.id
  )
order by d.id limit ?
"""
_FORGOTTEN = "select done, purged from headway_forgotten"


class SqliteEnds:
    """Reads records on a connection for reading.

    A letter that its record still holds is as good as written: somebody will send it.
    """

    def __init__(self, readers: Readers) -> None:
        self._readers = readers

    async def ping(self) -> None:
        await self._readers.run(lambda connection: connection.execute(_FORGOTTEN).fetchone())

    async def count(self) -> tuple[int, int]:
        return await self._readers.run(_count)

    async def where(self, operations: Sequence[str]) -> Mapping[str, Sequence[str]]:
        return await self._readers.run(lambda connection: _where(connection, operations))

    async def undecided(self, limit: int) -> Sequence[Undecided]:
        rows = await self._readers.run(lambda c: c.execute(_UNDECIDED, (limit,)).fetchall())
        return [
            Undecided(operation=operation, queue=queue, letter_id=letter, failed_queue=failed)
            for operation, queue, letter, failed in rows
        ]


def _count(connection: sqlite3.Connection) -> tuple[int, int]:
    done, purged = connection.execute(DONE).fetchone()
    forgotten = connection.execute(_FORGOTTEN).fetchone()
    return done + forgotten[0], purged + forgotten[1]


def _where(connection: sqlite3.Connection, operations: Sequence[str]) -> dict[str, list[str]]:
    places: dict[str, list[str]] = {}
    different = list(dict.fromkeys(operations))
    for start in range(0, len(different), AT_ONCE):
        wanted = as_json(different[start : start + AT_ONCE])
        for operation, place in connection.execute(_WHERE, (wanted,)):
            places.setdefault(operation, []).append(place)
    return places
