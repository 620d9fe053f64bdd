"""How those who wait for something to take hear that there may be something.

What this process stored rings the bell at once. What others stored is heard by asking SQLite now
and then whether the file has changed, which costs microseconds, and only while somebody waits. A
thread of its own asks: to wake the event loop costs several times as much as to wake a thread, and
asking is nearly all that an idle worker does.
"""

import asyncio
import sqlite3
import threading
from contextlib import suppress
from datetime import timedelta

from headway.adapters.sqlite.connection import Connection, Location, connect
from headway.core.errors import ConfigurationError
from headway.ports.clock import Clock

EVERY = timedelta(milliseconds=50)


class Bell:
    """Counts rings: who remembers the count can tell whether it missed one."""

    def __init__(self, location: Location, clock: Clock) -> None:
        self.rings = 0
        self._location = location
        self._clock = clock
        self._wanted = threading.Condition()
        """Guards the count and who waits; told when there is somebody to listen for."""
        self._waiting: set[asyncio.Future[None]] = set()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._version = 0
        self._watching: Connection | None = None

    def ring(self) -> None:
        self._wake(None)

    async def heard(self, since: int, within: timedelta) -> bool:
        """Wait for a ring after the count `since`, up to `within`; say whether there was one.

        Raises:
            StorageLostError: The file is not there any more.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._wanted:
            if self.rings != since:
                return True
            self._waiting.add(future)
            self._start()
            self._wanted.notify()
        over = asyncio.ensure_future(self._clock.wait(within))
        try:
            await asyncio.wait({future, over}, return_when=asyncio.FIRST_COMPLETED)
            if future.done():
                future.result()
        finally:
            over.cancel()
            future.cancel()
            with self._wanted:
                self._waiting.discard(future)
        return self.rings != since

    def close(self) -> None:
        """Ask no more; who still waits is woken."""
        self._closed.set()
        self.ring()
        with self._wanted:
            self._wanted.notify()
        if self._thread is not None:
            self._thread.join()

    def _start(self) -> None:
        if self._thread is None and not self._closed.is_set():
            # A daemon: a process that forgot to close can still end.
            self._thread = threading.Thread(target=self._listen, name="headway-bell", daemon=True)
            self._thread.start()

    def _listen(self) -> None:
        while not self._closed.is_set():
            with self._wanted:
                while not self._waiting and not self._closed.is_set():
                    self._wanted.wait()
            if not self._closed.wait(EVERY.total_seconds()):
                try:
                    changed = self._has_changed()
                except (sqlite3.Error, OSError, ConfigurationError) as error:
                    self._let_go()
                    self._wake(error)
                else:
                    if changed:
                        self.ring()
        self._let_go()

    def _has_changed(self) -> bool:
        """Ask whether somebody else changed the file: it reads one number, and waits for nobody."""
        if self._watching is None:
            self._watching = connect(self._location)
        else:
            self._location.check(self._watching)
        version: int = self._watching.execute("pragma data_version").fetchone()[0]
        changed, self._version = version != self._version, version
        return changed

    def _let_go(self) -> None:
        watching, self._watching, self._version = self._watching, None, 0
        if watching is not None:
            with suppress(sqlite3.Error):
                watching.close()

    def _wake(self, error: Exception | None) -> None:
        with self._wanted:
            self.rings += error is None
            waiting, self._waiting = self._waiting, set()
        for future in waiting:
            with suppress(RuntimeError):  # its loop is closed: nobody waits there any more
                future.get_loop().call_soon_threadsafe(_answer, future, error)


def _answer(future: asyncio.Future[None], error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
