"""SQLite as a store beside a bus that is not SQLite's: effects and records, in the same groups.

What has to be sent is written into the record and stays there until somebody says that it arrived.
Nothing here knows of deliveries: who lost one is recognised by the record of whoever was quicker.
"""

import asyncio
import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import msgspec

from headway.adapters.sqlite import records
from headway.adapters.sqlite.commit import Group
from headway.adapters.sqlite.connection import Location
from headway.adapters.sqlite.documents import SqliteDocuments
from headway.adapters.sqlite.ends import SqliteEnds
from headway.adapters.sqlite.history import SqliteHistory
from headway.adapters.sqlite.reader import Readers
from headway.adapters.sqlite.records import SqliteRecords
from headway.adapters.sqlite.sweeping import sqlite_sweeping
from headway.adapters.sqlite.timeline import Moment, Timeline
from headway.adapters.sqlite.writer import Writer
from headway.core.event import FIRST_GENERATION
from headway.ports.bus import Then
from headway.ports.clock import Clock
from headway.ports.commit import Finish, Unit
from headway.ports.engine import Sweeping


class _Elsewhere:
    """The surroundings of units whose bus is another system."""

    def __init__(self, moment: Moment) -> None:
        self._moment = moment

    def is_ours(self, _connection: sqlite3.Connection, _unit: Unit) -> bool:
        return True

    def settle(self, _connection: sqlite3.Connection, _unit: Unit, _then: Then) -> None:
        """The bus does it, after this commit."""

    def settle_all(self, _connection: sqlite3.Connection, _units: Sequence[Unit]) -> bool:
        return True

    def send(self, _connection: sqlite3.Connection, _units: Sequence[Unit]) -> frozenset[str]:
        """It rides in the record."""
        return frozenset()

    def write(self, connection: sqlite3.Connection, units: Sequence[Unit]) -> bool:
        rows = []
        for unit in units:
            if unit.record is None:
                continue
            generation = unit.delivery.travel.generation
            if generation != FIRST_GENERATION:
                records.came_again(connection, unit.delivery.queue, generation)
            held = unit.record
            if unit.outgoing or unit.letter is not None:
                held = msgspec.structs.replace(held, outgoing=unit.outgoing, letter=unit.letter)
            row = records.row_of(held, generation, self._moment, unit.letter, unit.failed_queue)
            rows.append(row)
        return records.write(connection, rows)


class SqliteStore:
    """Documents, done-records and commits of one worker process."""

    aside = None

    def __init__(self, location: Location, time: Timeline) -> None:
        self._writer = Writer(location)
        self._readers = Readers(location)
        self._time = time
        self.records = SqliteRecords(self._writer, self._readers, time, counts_accepted=False)
        self.documents = SqliteDocuments(self._writer, self._readers)
        self.ends = SqliteEnds(self._readers)
        self.history = SqliteHistory(self._writer, self._readers)
        self.sweeping: Sweeping | None = sqlite_sweeping(self._writer, self._readers, time)

    async def commit(self, units: Sequence[Unit]) -> Sequence[Finish]:
        """Store effects and records, each unit as one; nothing is sent and nothing is settled."""
        if not units:
            return []
        group = Group(units, self._time, self._writer.guard, _Elsewhere)
        return await self._writer.run(group)

    async def requeued(self, failed_queue: str, letter_id: str, to: str | None) -> None:
        await self._writer.run(lambda c: records.requeued(c, failed_queue, letter_id, to))

    async def purged(self, failed_queue: str, letter_ids: Sequence[str]) -> None:
        await self._writer.run(lambda c: records.purged(c, failed_queue, letter_ids))

    async def open(self) -> None:
        """Make the tables if they are missing; a file that cannot be used is refused here."""
        await self._writer.run(lambda _connection: None)

    async def close(self) -> None:
        """Finish what was asked for, and let go of the file."""
        await asyncio.to_thread(self._let_go)

    def _let_go(self) -> None:
        self._writer.close()
        self._readers.close()


def sqlite_store(
    path: str | Path,
    clock: Clock,
    *,
    synchronous: str = "full",
    busy: timedelta = timedelta(seconds=30),
) -> SqliteStore:
    """Give the store of one worker process; the file is opened when it is first needed."""
    time = Timeline(clock)
    location = Location(path=Path(path), synchronous=synchronous, busy=busy, time=time)
    return SqliteStore(location, time)
