"""The file of the demonstration, looked at and tampered with as by a person with `sqlite3`."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

_DOCUMENTS = """
select collection, count(*),
       sum(case collection when 'messages' then json_extract(body, '$.chunk_ids') is not null
                           when 'chunks' then json_extract(body, '$.embedding_generated') = true
                           else json_extract(body, '$.status') = 'processed' end)
from headway_documents group by collection
"""
_NOT_YET = "messages, not visible yet"
_HIDE = """
create trigger demo_hide after insert on headway_documents
when new.collection = 'messages' and new.id in (select id from demo_hidden)
begin
    update headway_documents set collection = '{aside}' where number = new.number;
end
"""
_SHOW = "update headway_documents set collection = 'messages' where collection = ?"
_WAITING = "select queue, count(*) from headway_items group by queue"
_PARKED = "select count(*) from headway_items where place = 'parked'"
_LETTERS = "select count(*) from headway_letters"
_FREE = """
select i.id, i.operation, json_extract(i.body, '$.data.chunk_ids[0]')
from headway_items i
join headway_documents d
  on d.collection = 'chunks' and d.id = json_extract(i.body, '$.data.chunk_ids[0]')
where i.queue = ? and i.token is null and json_array_length(i.body, '$.data.chunk_ids') = 1
  and not coalesce(json_extract(d.body, '$.attemptCount'), 0)
order by i.id desc limit 1
"""
_LOSE = "delete from headway_items where id = ? and token is null"
_WRITE_OFF = "delete from headway_accepted where queue = ? and operation = ?"
_HOLDERS = """
select w.pid, w.token, count(*) from headway_items i join headway_workers w using (token)
group by w.token order by 3 desc
"""
_HELD = "select queue, operation from headway_items where token = ?"
_DONE = """
select count(*) from headway_done
where queue = ? and operation = ? and ended not in ('failed', 'requeued')
"""
_EMBEDDED = """
select coalesce(json_extract(body, '$.embedding_generated'), 0) from headway_documents
where collection = 'chunks' and id = ?
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """How far everything is."""

    made: Mapping[str, int]
    """Documents, by collection."""
    done: Mapping[str, int]
    """Of these, the ones whose next step is done."""
    waiting: Mapping[str, int]
    """Events, by queue."""
    parked: int
    letters: int


@dataclass(frozen=True, slots=True)
class Lost:
    """An event that was removed, and the chunk that it was about."""

    queue: str
    operation: str
    chunk_id: str


class File:
    """The SQLite file that is bus and store."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def look(self) -> Seen:
        with self._open() as file:
            rows = file.execute(_DOCUMENTS).fetchall()
            return Seen(
                made={name: count for name, count, _ in rows},
                done={name: done or 0 for name, _, done in rows},
                waiting=dict(file.execute(_WAITING).fetchall()),
                parked=file.execute(_PARKED).fetchone()[0],
                letters=file.execute(_LETTERS).fetchone()[0],
            )

    def hide(self, ids: Sequence[str]) -> None:
        """Let nobody see these messages once they are stored, as on a replica that is behind."""
        with self._open() as file:
            file.execute("begin immediate")
            file.execute("create table demo_hidden (id text primary key)")
            file.executemany("insert into demo_hidden values (?)", [(each,) for each in ids])
            file.execute(_HIDE.format(aside=_NOT_YET))
            file.execute("commit")

    def show(self) -> int:
        """Let everybody see them; say how many there are."""
        with self._open() as file:
            file.execute("begin immediate")
            file.execute("drop trigger demo_hide")
            file.execute("drop table demo_hidden")
            count = file.execute(_SHOW, (_NOT_YET,)).rowcount
            file.execute("commit")
        return count

    def lose(self, queue: str) -> Lost | None:
        """Remove an event that nobody has in hand, about a chunk that nobody has tried yet."""
        with self._open() as file:
            file.execute("begin immediate")
            found = file.execute(_FREE, (queue,)).fetchone()
            if found is not None:
                file.execute(_LOSE, (found[0],))
            file.execute("commit")
        return None if found is None else Lost(queue, found[1], found[2])

    def write_off(self, lost: Lost) -> None:
        """Take a lost event out of the books as well: nobody will find it again."""
        with self._open() as file:
            file.execute(_WRITE_OFF, (lost.queue, lost.operation))

    def holders(self) -> list[tuple[int, str, int]]:
        """Give the pid and the token of each worker, and how many events it has in hand."""
        with self._open() as file:
            return file.execute(_HOLDERS).fetchall()

    def held(self, token: str) -> list[tuple[str, str]]:
        """Give the queue and the operation of what a worker has in hand."""
        with self._open() as file:
            return file.execute(_HELD, (token,)).fetchall()

    def count_done(self, operations: Sequence[tuple[str, str]]) -> int:
        with self._open() as file:
            return sum(file.execute(_DONE, each).fetchone()[0] > 0 for each in operations)

    def is_embedded(self, chunk_id: str) -> bool:
        with self._open() as file:
            found = file.execute(_EMBEDDED, (chunk_id,)).fetchone()
        return found is not None and bool(found[0])

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=30, isolation_level=None)) as file:
            yield file
