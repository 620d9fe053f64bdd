"""Failed queues: letters as rows, each written and decided upon in one commit."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime

import msgspec

from headway.adapters.sqlite import publishing, records
from headway.adapters.sqlite.bell import Bell
from headway.adapters.sqlite.reader import Readers
from headway.adapters.sqlite.rows import instant, seconds
from headway.adapters.sqlite.statements import as_json, insert
from headway.adapters.sqlite.timeline import Timeline
from headway.adapters.sqlite.writer import Writer
from headway.core.errors import ConfigurationError, LetterGoneError
from headway.core.event import FIRST_GENERATION
from headway.core.letter import Letter, letter_id
from headway.ports.bus import Message
from headway.ports.letters import FailedQueue
from headway.ports.records import Ended

_LETTER = msgspec.json.Decoder(Letter)

_INTO = (
    "or ignore into headway_letters "
    "(queue, letter_id, operation, generation, source_queue, written, body)"
)
_QUEUES = """
select q.name, count(l.id), min(l.written), max(l.written)
from headway_failed_queues q left join headway_letters l on l.queue = q.name
group by q.name order by q.name
"""
_THERE = "select id, source_queue from headway_letters where queue = ? and letter_id = ?"
_PAGE = "select body from headway_letters where queue = ? and id > ? order by id limit ?"
_REMOVE = "delete from headway_letters where queue = ? and letter_id = ?"
_ACCEPTED = "select 1 from headway_accepted where queue = ? and operation = ?"
_IS_THERE = """
select 1 from headway_items where generation <> '0' and queue = ? and operation = ?
union all select 1 from headway_letters where source_queue = ? and operation = ?
"""
# By two indexes: the record of the first generation by its letter, those of others by their names.
_LAST_END = """
select ended from (
    select id, ended from headway_done where letter = ?
    union all
    select id, ended from headway_done where generation <> '0' and queue = ? and operation = ?
)
order by id desc limit 1
"""
_BEFORE_ALL = -1


class SqliteLetters:
    """Reads on connections for reading; a decision and all that it does is one commit."""

    def __init__(self, writer: Writer, readers: Readers, bell: Bell, time: Timeline) -> None:
        self._writer = writer
        self._readers = readers
        self._bell = bell
        self._time = time

    async def queues(self) -> Sequence[FailedQueue]:
        rows = await self._readers.run(lambda c: c.execute(_QUEUES).fetchall())
        return [
            FailedQueue(
                name=name,
                letters=letters,
                oldest=None if oldest is None else instant(oldest),
                newest=None if newest is None else instant(newest),
            )
            for name, letters, oldest, newest in rows
        ]

    async def write(self, queue: str, letters: Sequence[Letter]) -> None:
        await self._writer.run(lambda c: write(c, queue, letters))

    async def read(self, queue: str, limit: int, after: str | None = None) -> Sequence[Letter]:
        def page(connection: sqlite3.Connection) -> list[tuple[str]]:
            start = _BEFORE_ALL
            if after is not None:
                found = connection.execute(_THERE, (queue, after)).fetchone()
                if found is None:
                    raise LetterGoneError(queue, after)
                start = found[0]
            return connection.execute(_PAGE, (queue, start, limit)).fetchall()

        return [_LETTER.decode(body) for (body,) in await self._readers.run(page)]

    async def requeue(self, queue: str, letter_id: str, message: Message) -> bool:
        def work(connection: sqlite3.Connection) -> bool:
            found = connection.execute(_THERE, (queue, letter_id)).fetchone()
            if found is None:
                return False
            if found[1] and message.queue != found[1]:
                _refuse_what_is_there(connection, message)
            _remove(connection, queue, letter_id)
            records.requeued(connection, queue, letter_id, message.queue)
            publishing.publish(connection, [message], self._time.moment())
            return True

        requeued = await self._writer.run(work)
        if requeued:
            self._bell.ring()
        return requeued

    async def remove(self, queue: str, letter_ids: Sequence[str]) -> int:
        def work(connection: sqlite3.Connection) -> int:
            removed = [one for one in letter_ids if _remove(connection, queue, one)]
            records.purged(connection, queue, removed)
            return len(removed)

        return await self._writer.run(work)


def write(connection: sqlite3.Connection, queue: str, letters: Sequence[Letter]) -> None:
    """Store letters; one with an id that is there already changes nothing."""
    connection.execute("insert or ignore into headway_failed_queues (name) values (?)", (queue,))
    rows = [
        (
            queue,
            letter.letter_id,
            letter.operation,
            letter.generation,
            letter.queue,
            seconds(datetime.fromisoformat(letter.timestamp)),
            as_json(letter),
        )
        for letter in letters
    ]
    insert(connection, _INTO, rows)


def _refuse_what_is_there(connection: sqlite3.Connection, message: Message) -> None:
    """Nobody could tell two ways of one operation through one queue apart.

    What was moved away from a queue may come back to it.
    """
    queue, operation = message.queue or "", message.travel.operation
    owned = (queue, operation)
    if connection.execute(_ACCEPTED, owned).fetchone() is None:
        return
    first = letter_id(queue, operation, FIRST_GENERATION)
    last = connection.execute(_LAST_END, (first, *owned)).fetchone()
    is_there = connection.execute(_IS_THERE, (*owned, *owned)).fetchone() is not None
    if is_there or last != (Ended.MOVED,):
        raise ConfigurationError(
            f"queue={queue!r} is not accepted for this letter: operation {operation!r} is "
            "in that queue's books already; requeue it to its own queue"
        )


def _remove(connection: sqlite3.Connection, queue: str, letter_id: str) -> bool:
    return connection.execute(_REMOVE, (queue, letter_id)).rowcount == 1
