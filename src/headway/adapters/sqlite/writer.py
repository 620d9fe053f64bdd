"""All writes of a process: one thread, one connection, and one commit for all that wait.

A commit costs a wait for the disk, however much is in it. So the thread takes every request that
has come in, runs each in a savepoint of its own, and commits them together: what one of them raises
is its own affair. If the commit itself fails, nothing of the group is stored, and all are told.
"""

import asyncio
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from headway.adapters.sqlite.connection import Connection, Location
from headway.adapters.sqlite.guard import Guard, UndoneError, in_transaction
from headway.adapters.sqlite.savepoints import BEGIN, COMMIT, hold, release, undo
from headway.adapters.sqlite.schema import open_file
from headway.adapters.sqlite.turnstile import Turnstile

T = TypeVar("T")

Work = Callable[[sqlite3.Connection], T]
"""What a request does. It may run again if the whole transaction has to."""


class _Request(Generic[T]):
    """Work, and who waits for what comes of it."""

    __slots__ = ("error", "future", "loop", "result", "unwanted", "work")

    def __init__(self, work: Work[T], unwanted: Callable[[T], None] | None) -> None:
        self.work = work
        self.unwanted = unwanted
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self.loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None

    def answer(self) -> None:
        if self.future.cancelled():
            if self.unwanted is not None and self.result is not None:
                self.unwanted(self.result)
        elif self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class Writer:
    """Runs requests in groups. The thread starts with the first of them."""

    def __init__(self, location: Location) -> None:
        self.guard = Guard()
        self._location = location
        self._turnstile = Turnstile(location)
        self._connection: Connection | None = None
        self._waiting: list[_Request[Any]] = []
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    async def run(self, work: Work[T], *, unwanted: Callable[[T], None] | None = None) -> T:
        """Run work in the next group; when this returns, it is committed.

        `unwanted` is told the result if nobody waits for it any more.
        """
        request = _Request(work, unwanted)
        with self._wake:
            if self._closed:
                raise RuntimeError(f"the engine on {str(self._location.path)!r} is closed")
            if self._thread is None:
                # A daemon: a process that forgot to close can still end.
                self._thread = threading.Thread(
                    target=self._work_on, name="headway-writer", daemon=True
                )
                self._thread.start()
            self._waiting.append(request)
            self._wake.notify()
        return await request.future

    def close(self) -> None:
        """Finish what was asked for, and end the thread."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()

    def _work_on(self) -> None:
        while group := self._next_group():
            try:
                self._commit_together(group)
            except BaseException as error:  # noqa: BLE001 (it belongs to those who wait)
                error.add_note(f"database file: {self._location.path}")
                self._let_go()
                for request in group:
                    request.error = error
            _answer(group)
        self._let_go()
        self._turnstile.close()

    def _next_group(self) -> list[_Request[Any]]:
        with self._wake:
            while not self._waiting and not self._closed:
                self._wake.wait()
            group, self._waiting = self._waiting, []
            return group

    def _commit_together(self, group: list[_Request[Any]]) -> None:
        connection = self._connected()
        with self._turnstile:
            while True:
                connection.execute(BEGIN)
                if self._location.time is not None:
                    self._location.time.mark(connection)
                try:
                    for request in group:
                        if not request.future.cancelled():
                            _run(connection, request)
                except UndoneError:
                    # Whoever caused it remembers, and keeps out of it this time.
                    self._let_go()
                    connection = self._connected()
                else:
                    break
            connection.execute(COMMIT)
        self._location.check(connection)  # else it is in a file that is gone
        if connection.isolation_level is not None:  # a body changed it; here it harms nobody
            connection.isolation_level = None

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = self._open()
        else:
            self._location.check(self._connection)
        return self._connection

    def _open(self) -> Connection:
        connection = open_file(self._location)
        self.guard.watch(connection)
        return connection

    def _let_go(self) -> None:
        """Close, which rolls back whatever was left; the next group opens anew."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()


def _run(connection: sqlite3.Connection, request: _Request[Any]) -> None:
    hold(connection, "request")
    try:
        request.result, request.error = request.work(connection), None
    except UndoneError:
        raise
    except BaseException as error:
        if not in_transaction(connection):  # SQLite gave all of it up: a full disk, for one
            raise
        request.error = error
        undo(connection, "request")
    release(connection, "request")


def _answer(group: list[_Request[Any]]) -> None:
    """Wake every event loop once, however many wait in it."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Request[Any]]] = defaultdict(list)
    for request in group:
        by_loop[request.loop].append(request)
    for loop, requests in by_loop.items():
        with suppress(RuntimeError):  # that loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_answer_all, requests)


def _answer_all(requests: list[_Request[Any]]) -> None:
    for request in requests:
        request.answer()
