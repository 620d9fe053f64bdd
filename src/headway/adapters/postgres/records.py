"""Done-records as rows.

Rows that are there are locked in the order of their keys, as new ones are inserted: so no two of
our transactions wait for each other.
"""

# ruff: noqa: S608 (statements are put together from parts of our own; values are bound)

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from headway.adapters.postgres.link import Link, MeanwhileError
from headway.adapters.postgres.values import json_text, kept, kept_key, unkept
from headway.core.letter import Letter, letter_id
from headway.ports.bus import Message
from headway.ports.records import DoneRecord, Ended, own_end

_COLUMNS = "key, operation, queue, generation, ended, at, letter, failed_queue, outgoing, unwritten"
_WRITE = f"""
insert into headway_done ({_COLUMNS})
select * from unnest(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[],
    $7::text[], $8::text[], $9::text[], $10::text[]
) as record ({_COLUMNS})
order by key
on conflict (key) do nothing
returning 1
"""
_READ = """
select key, operation, queue, ended, at, failed_queue, outgoing, unwritten from headway_done
"""
_FIND = f"{_READ} where key = any($1::text[])"
_UNSENT = f"""
{_READ} where (outgoing is not null or unwritten is not null) and at < $1 order by at, id limit $2
"""
_SENT = """
update headway_done set outgoing = null, unwritten = null
where key = any($1::text[]) and (outgoing is not null or unwritten is not null)
"""
_DECIDED = """
with decided as (
    select id from headway_done where letter = any($1::text[]) and {1} order by key for update
)
update headway_done d set ended = {0}, unwritten = null from decided where d.id = decided.id
"""
_SENT_TO = "case when queue = $2::jsonb ->> letter then 'requeued' else 'moved' end"
_REQUEUED = _DECIDED.format(_SENT_TO, "ended in ('failed', 'purged') and failed_queue in ('', $3)")
_PURGED = _DECIDED.format("'purged'", "ended = 'failed' and failed_queue in ('', $2)")
_CAME_AGAIN = _DECIDED.format(_SENT_TO, "ended = 'failed'")
_UNWRITE = "delete from headway_done where key = any($1::text[])"

# What was requeued may still wait in a queue. Others who forget at the same time wait for us.
_FORGET = """
with alone as materialized (select one from headway_forgotten for update),
old as (
    select d.id from headway_done d, alone
    where d.at < $1 and d.ended <> 'failed' and d.outgoing is null and d.unwritten is null
    order by d.at, d.id limit $2 for update of d skip locked
)
delete from headway_done d using old where d.id = old.id
returning d.id, d.queue, d.operation, d.ended
"""
_LAST = """
select count(*), count(*) filter (where gone.ended = 'purged')
from (
    select distinct on (queue, operation) queue, operation, ended
    from unnest($1::bigint[], $2::text[], $3::text[], $4::text[]) as g (id, queue, operation, ended)
    order by queue, operation, id desc
) gone
where gone.ended <> 'requeued' and not exists (
    select 1 from headway_done d
    where d.generation <> '0' and d.operation = gone.operation and d.queue = gone.queue
)
"""
_COUNT_FORGOTTEN = "update headway_forgotten set done = done + $1, purged = purged + $2"

Row = tuple[Any, ...]
_OUTGOING = msgspec.json.Decoder(tuple[Message, ...])
_LETTER = msgspec.json.Decoder(Letter)


class PostgresRecords:
    """Reads what commits have written, and forgets what is old."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def find(self, keys: Sequence[str]) -> Mapping[str, DoneRecord]:
        asked = {kept_key(key): key for key in keys}
        rows = await self._link.fetch(_FIND, list(asked)) if asked else ()
        return {asked[row[0]]: _record(row, asked[row[0]]) for row in rows}

    async def undispatched(self, before: datetime, limit: int) -> Sequence[DoneRecord]:
        return [_record(row) for row in await self._link.fetch(_UNSENT, before, limit)]

    async def dispatched(self, keys: Sequence[str]) -> None:
        if keys:
            sent = [kept_key(key) for key in keys]
            await self._link.run(lambda connection: connection.execute(_SENT, sent))

    async def forget(self, before: datetime, limit: int) -> int:
        return await self._link.run(lambda connection: _forget(connection, before, limit))

    async def requeued(self, failed_queue: str, letter_id: str, to: str | None) -> None:
        """Say so where a record says FAILED or PURGED."""
        to_queue = json_text({letter_id: None if to is None else kept(to)})
        values = [letter_id], to_queue, kept(failed_queue)
        await self._link.run(lambda connection: connection.execute(_REQUEUED, *values))

    async def purged(self, failed_queue: str, letter_ids: Sequence[str]) -> None:
        """Say so where a record says FAILED."""
        values = list(letter_ids), kept(failed_queue)
        await self._link.run(lambda connection: connection.execute(_PURGED, *values))


def row_of(
    record: DoneRecord, generation: str, letter: Letter | None = None, failed_queue: str = ""
) -> Row:
    """Write a record as a row; one that failed remembers which letter is about it."""
    named = None
    if record.ended == Ended.FAILED:
        there = letter or record.letter
        named = there.letter_id if there else letter_id(record.queue, record.operation, generation)
    return (
        kept_key(record.key),
        kept(record.operation),
        kept(record.queue),
        kept(generation),
        str(record.ended),
        record.at,
        named,
        kept(failed_queue or record.failed_queue),
        json_text(record.outgoing) if record.outgoing else None,
        None if record.letter is None else json_text(record.letter),
    )


async def write(connection: Any, rows: Sequence[Row]) -> bool:
    """Write records; False: some of the keys were there before, and the others are written."""
    if not rows:
        return True
    columns = [list(column) for column in zip(*rows, strict=True)]
    return len(await connection.fetch(_WRITE, *columns)) == len(rows)


async def unwrite(connection: Any, keys: Sequence[str]) -> None:
    """Take back records that this transaction has written."""
    await connection.execute(_UNWRITE, [kept_key(key) for key in keys])


async def came_again(connection: Any, letters: Mapping[str, str]) -> None:
    """Events that were sent again have ended in these queues: the records of failures say so.

    Whoever sent them may have died before they could take it down.
    """
    queues = json_text({letter: kept(queue) for letter, queue in letters.items()})
    await connection.execute(_CAME_AGAIN, list(letters), queues)


async def end_as_duplicate(connection: Any, record: DoneRecord, generation: str) -> None:
    """See that work whose key is taken was done before; an operation of its own has its own end.

    Raises:
        KeyTakenError: The key belongs to work that failed.
        MeanwhileError: The key is free again.
    """
    found = await connection.fetchrow(_FIND, [kept_key(record.key)])
    if found is None:
        raise MeanwhileError
    end = own_end(_record(found), record)
    if end is not None:
        await write(connection, [row_of(end, generation)])


async def _forget(connection: Any, before: datetime, limit: int) -> int:
    """Remove old records. What is left of an operation is a number, so that sums come out."""
    rows = await connection.fetch(_FORGET, before, limit)
    if rows:
        columns = [list(column) for column in zip(*rows, strict=True)]
        gone = await connection.fetchrow(_LAST, *columns)
        await connection.execute(_COUNT_FORGOTTEN, *gone)
    return len(rows)


def _record(row: Any, key: str | None = None) -> DoneRecord:
    return DoneRecord(
        key=unkept(row[0]) if key is None else key,
        operation=unkept(row[1]),
        queue=unkept(row[2]),
        ended=Ended(row[3]),
        at=row[4],
        outgoing=() if row[6] is None else _OUTGOING.decode(row[6]),
        letter=None if row[7] is None else _LETTER.decode(row[7]),
        failed_queue=unkept(row[5]),
    )
