"""How those who wait for something to take hear that there may be something.

What this process stored rings the bell at once. What others stored is heard by asking SQLite now
and then whether the file has changed, which costs microseconds, and only while somebody waits.
"""

import asyncio
import threading
from contextlib import suppress
from datetime import timedelta

from headway.adapters.sqlite.connection import Connection, Location, connect
from headway.adapters.sqlite.reader import Readers
from headway.ports.clock import Clock

EVERY = timedelta(milliseconds=50)


class Bell:
    """Counts rings: who remembers the count can tell whether it missed one."""

    def __init__(self, location: Location, readers: Readers, clock: Clock) -> None:
        self.rings = 0
        self._location = location
        self._readers = readers
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: set[asyncio.Future[None]] = set()
        self._version = 0
        self._watching: Connection | None = None
        self._asked = clock.now() - EVERY

    def ring(self) -> None:
        with self._lock:
            self.rings += 1
            waiting, self._waiting = self._waiting, set()
        for future in waiting:
            with suppress(RuntimeError):  # its loop is closed: nobody waits there any more
                future.get_loop().call_soon_threadsafe(_wake, future)

    async def heard(self, since: int, within: timedelta) -> bool:
        """Wait for a ring after the count `since`, up to `within`; say whether there was one."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self.rings != since:
                return True
            self._waiting.add(future)
        over = asyncio.ensure_future(self._clock.wait(min(within, EVERY)))
        try:
            await asyncio.wait({future, over}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
            future.cancel()
            with self._lock:
                self._waiting.discard(future)
        if self.rings == since:
            await self._listen()
        return self.rings != since

    def close(self) -> None:
        if self._watching is not None:
            self._watching.close()

    async def _listen(self) -> None:
        """Ask whether somebody else changed the file, once for all who wait."""
        now = self._clock.now()
        if now - self._asked < EVERY / 2:
            return
        self._asked = now
        if self._watching is not None and not self._location.holds(self._watching):
            self._watching.close()
            self._watching, self._version = None, 0
        if self._watching is None:
            self._watching = await self._readers.alone(lambda: connect(self._location))
        # Asked on the event loop's own thread: it reads one number of shared memory and waits for
        # no lock, and a change of threads would cost ten times as much.
        version: int = self._watching.execute("pragma data_version").fetchone()[0]
        if version != self._version:
            self._version = version
            self.ring()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
