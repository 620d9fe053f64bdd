"""Done-records as rows."""

# ruff: noqa: S608 (statements are put together from parts of our own; values are bound)

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from headway.adapters.sqlite.reader import Readers
from headway.adapters.sqlite.statements import as_json, insert
from headway.adapters.sqlite.timeline import Moment, Timeline, without_jumps
from headway.adapters.sqlite.writer import Writer
from headway.core.letter import Letter, letter_id, requeued_letter
from headway.ports.bus import Message
from headway.ports.records import DoneRecord, Ended, own_end

_COLUMNS = "key, operation, queue, generation, ended, at, letter, failed_queue, held"
_INTO = f"or ignore into headway_done ({_COLUMNS})"
_READ = "select key, operation, queue, ended, at, failed_queue, held from headway_done"
_FIND = f"{_READ} where key in (select value from json_each(?))"
_UNSENT = f"{_READ} where held is not null and at < ? order by at, id limit ?"
_SENT = """
update headway_done set held = null where key in (select value from json_each(?))
"""

_UNHELD = """
held = case when json_array_length(held, '$.outgoing') > 0 then json_set(held, '$.letter', null) end
"""
_REQUEUED = f"""
update headway_done set ended = case when queue = ? then 'requeued' else 'moved' end, {_UNHELD}
where letter = ? and letter is not null and ended in ('failed', 'purged')
  and failed_queue in ('', ?)
"""
_PURGED = f"""
update headway_done set ended = 'purged', {_UNHELD}
where letter in (select value from json_each(?)) and letter is not null and ended = 'failed'
  and failed_queue in ('', ?)
"""
_HAS_AGAIN = f"""
update headway_done set ended = case when queue = ? then 'requeued' else 'moved' end, {_UNHELD}
where letter = ? and letter is not null and ended = 'failed'
"""

_OLD = """
select id, queue, operation, ended from headway_done
where at < ? and ended <> 'failed' and held is null order by at limit ?
"""
_FORGET = "delete from headway_done where id in (select value from json_each(?))"
_UNACCEPT = """
delete from headway_accepted
where (queue, operation) = (:queue, :operation)
  and not exists (
    select 1 from headway_items i
    where i.generation <> '0' and i.operation = :operation and i.queue = :queue
  )
  and not exists (
    select 1 from headway_letters l where l.operation = :operation and l.source_queue = :queue
  )
  and not exists (
    select 1 from headway_done d
    where d.generation <> '0' and d.operation = :operation and d.queue = :queue
  )
"""
_LAST_TRACE = """
select not exists (
    select 1 from headway_done d
    where d.generation <> '0' and d.operation = :operation and d.queue = :queue
)
"""
_COUNT_FORGOTTEN = "update headway_forgotten set done = done + ?, purged = purged + ?"


_Owned = tuple[str, str]
"""A queue and an operation in it."""


class _Held(msgspec.Struct, frozen=True):
    outgoing: tuple[Message, ...]
    letter: Letter | None


_HELD = msgspec.json.Decoder(_Held)


class SqliteRecords:
    """Reads what commits have written, and forgets what is old."""

    def __init__(
        self, writer: Writer, readers: Readers, time: Timeline, *, counts_accepted: bool = True
    ) -> None:
        self._writer = writer
        self._readers = readers
        self._time = time
        self._was_last_trace = _was_last_trace if counts_accepted else _was_last_record

    async def find(self, keys: Sequence[str]) -> Mapping[str, DoneRecord]:
        wanted = as_json(keys)
        rows = await self._readers.run(lambda c: c.execute(_FIND, (wanted,)).fetchall())
        moment = self._time.moment()
        return {row[0]: _record(row, moment) for row in rows}

    async def undispatched(self, before: datetime, limit: int) -> Sequence[DoneRecord]:
        def read(connection: sqlite3.Connection) -> list[DoneRecord]:
            moment = self._time.moment()
            rows = connection.execute(_UNSENT, (moment.stored(before), limit)).fetchall()
            return [_record(row, moment) for row in rows]

        return await self._readers.run(read)

    async def dispatched(self, keys: Sequence[str]) -> None:
        await self._writer.run(lambda connection: take_down_as_sent(connection, keys))

    async def forget(self, before: datetime, limit: int) -> int:
        def work(connection: sqlite3.Connection) -> int:
            at = without_jumps(connection, self._time.moment().stored(before))
            return _forget(connection, at, limit, self._was_last_trace)

        return await self._writer.run(work)


_DONE = Ended.DONE.value  # to ask an enum for its value takes two calls, for every event


def row_of(
    record: DoneRecord,
    generation: str,
    moment: Moment,
    letter: Letter | None = None,
    failed_queue: str = "",
) -> tuple[Any, ...]:
    """Write a record as a row; one that failed remembers which letter is about it."""
    named = None
    if record.ended == Ended.FAILED:
        there = letter or record.letter
        named = there.letter_id if there else letter_id(record.queue, record.operation, generation)
    held = None
    if record.outgoing or record.letter is not None:
        held = as_json(_Held(outgoing=record.outgoing, letter=record.letter))
    return (
        record.key,
        record.operation,
        record.queue,
        generation,
        _DONE if record.ended is Ended.DONE else record.ended.value,
        moment.stored(record.at),
        named,
        failed_queue or record.failed_queue,
        held,
    )


def requeued(
    connection: sqlite3.Connection, failed_queue: str, letter_id: str, to: str | None
) -> None:
    """Let the record of a failure say that a person sent the event again, and where."""
    connection.execute(_REQUEUED, (to, letter_id, failed_queue))


def purged(connection: sqlite3.Connection, failed_queue: str, letter_ids: Sequence[str]) -> None:
    """Let records of failures say that a person removed their letters."""
    connection.execute(_PURGED, (as_json(letter_ids), failed_queue))


def came_again(connection: sqlite3.Connection, queue: str, generation: str) -> None:
    """An event that was sent again has ended: see that the record of its failure says so.

    Whoever sent it may have died before they could take it down.
    """
    letter = requeued_letter(generation)
    if letter is not None:
        connection.execute(_HAS_AGAIN, (queue, letter))


def take_down_as_sent(connection: sqlite3.Connection, keys: Sequence[str]) -> None:
    """Everything that these records held has arrived."""
    connection.execute(_SENT, (as_json(keys),))


def write(connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> bool:
    """Write records; False: some of the keys were there before, and the others are written."""
    return insert(connection, _INTO, rows) == len(rows)


def is_duplicate(
    connection: sqlite3.Connection, record: DoneRecord, generation: str, moment: Moment
) -> bool:
    """Say whether the work was done before; another operation that did the same has its own end."""
    found = connection.execute(f"{_READ} where key = ?", (record.key,)).fetchone()
    if found is None:
        return False
    end = own_end(_record(found, moment), record)
    if end is not None:
        write(connection, [row_of(end, generation, moment)])
    return True


def _record(row: tuple[Any, ...], moment: Moment) -> DoneRecord:
    key, operation, queue, ended, at, failed_queue, held = row
    rest = _Held((), None) if held is None else _HELD.decode(held)
    return DoneRecord(
        key=key,
        operation=operation,
        queue=queue,
        ended=Ended(ended),
        at=moment.shown(at),
        outgoing=rest.outgoing,
        letter=rest.letter,
        failed_queue=failed_queue,
    )


def _forget(
    connection: sqlite3.Connection,
    before: float,
    limit: int,
    was_last_trace: Callable[[sqlite3.Connection, _Owned, str], bool],
) -> int:
    """Remove old records, and with the last trace of an operation that it was accepted.

    What is then left of it is a number, so that the sum of all places still comes out.
    """
    rows = connection.execute(_OLD, (before, limit)).fetchall()
    connection.execute(_FORGET, (as_json([row[0] for row in rows]),))
    owned = {(queue, operation): ended for _, queue, operation, ended in rows}
    gone = [end for key, end in owned.items() if was_last_trace(connection, key, end)]
    connection.execute(_COUNT_FORGOTTEN, (len(gone), _purged(gone)))
    return len(rows)


def _was_last_trace(connection: sqlite3.Connection, owned: _Owned, _ended: str) -> bool:
    return connection.execute(_UNACCEPT, _named(owned)).rowcount == 1


def _was_last_record(connection: sqlite3.Connection, owned: _Owned, ended: str) -> bool:
    """Say so where the queues are elsewhere: what was requeued may still wait in one."""
    if ended == Ended.REQUEUED:
        return False
    return bool(connection.execute(_LAST_TRACE, _named(owned)).fetchone()[0])


def _named(owned: _Owned) -> dict[str, str]:
    return dict(zip(("queue", "operation"), owned, strict=True))


def _purged(ends: Iterable[str]) -> int:
    return sum(end == Ended.PURGED for end in ends)
