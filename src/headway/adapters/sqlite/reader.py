"""Reads: a few threads, each with a connection of its own, never the event loop's."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from headway.adapters.sqlite.connection import Connection, Location
from headway.adapters.sqlite.schema import explained, open_for_reading

T = TypeVar("T")

_THREADS = 2


class Readers:
    """Every read sees one instant of the file, and holds up no write."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._own = threading.local()
        self._opened: list[Connection] = []
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="headway-reader")

    async def run(self, read: Callable[[sqlite3.Connection], T]) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._read, read)

    def close(self) -> None:
        self._threads.shutdown()
        while self._opened:
            self._opened.pop().close()

    def _read(self, read: Callable[[sqlite3.Connection], T]) -> T:
        connection: Connection | None = None
        try:
            connection = self._connection()
            connection.execute("begin")
            return read(connection)
        except sqlite3.Error as error:
            error.add_note(f"database file: {self._location.path}")
            told = explained(self._location, error)
            if told is error:
                raise
            raise told from error
        finally:
            if connection is not None and connection.in_transaction:
                with suppress(sqlite3.Error):
                    connection.execute("rollback")

    def _connection(self) -> Connection:
        connection: Connection | None = getattr(self._own, "connection", None)
        if connection is not None and connection.file is not None:
            self._location.check(connection)
        elif connection is not None:  # a stand-in: by now there may be a file with tables in it
            self._opened.remove(connection)
            connection.close()
            connection = self._own.connection = None
        if connection is None:
            connection = open_for_reading(self._location)
            self._opened.append(connection)
            self._own.connection = connection
        return connection
