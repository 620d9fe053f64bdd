"""Tables of one's own in a file of Headway's, under the same rules for everybody.

Whoever opened the file in another way would wait longer for a turn to write, and make all others
wait: they pass one gate, and what several tasks write at the same time is one commit.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from headway.adapters.sqlite.connection import Location
from headway.adapters.sqlite.reader import Readers
from headway.adapters.sqlite.writer import Writer

T = TypeVar("T")


class Tables:
    """Some tables in one file, as one process sees them.

    Args:
        path: The file. Nothing is opened before the first use.
        schema: Statements that make the tables unless they are there.
        synchronous: How carefully the file is written: full, normal or off.
    """

    def __init__(
        self, path: str | Path, schema: Sequence[str] = (), *, synchronous: str = "full"
    ) -> None:
        location = Location(path=Path(path), synchronous=synchronous)
        self._schema = tuple(schema)
        self._writer = Writer(location)
        self._readers = Readers(location)

    async def prepare(self) -> None:
        """Make the tables; several processes may do so at once."""
        await self._writer.run(self._make)

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run work in a transaction, in a thread; when this returns, it is committed.

        All of it is, or nothing if it raises. It may run again if the transaction has to, so it
        must do nothing else; and it must not end the transaction.
        """
        return await self._writer.run(work)

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run work that only reads, in a thread; it sees one instant of the file."""
        return await self._readers.run(work)

    async def close(self) -> None:
        """Finish what was asked for, and close the file."""
        await asyncio.to_thread(self._let_go)

    def _make(self, connection: sqlite3.Connection) -> None:
        for statement in self._schema:
            connection.execute(statement)

    def _let_go(self) -> None:
        self._writer.close()
        self._readers.close()
